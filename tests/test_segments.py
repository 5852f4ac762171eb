"""Tables: columns by name and role, numbers, lists, groups, conditions, data in memory."""

import datetime
import math
import types
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from doubtless.errors import InputError
from doubtless.segments import as_table, read, write

TSV = (
    "lp\thyp\thuman\tmt_is_ref\tnote\nen-de\ta\t0.5\tfalse\t\nen-de\tb\t 10 \tTrue\tx\nde-en\tc\t\tFALSE\ty\n"
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("f.tsv").write_text(TSV)
    return "f.tsv"


# Columns and roles


def test_a_role_finds_the_column_of_another_name(path: str):
    table = read(path, roles={"mt": "hyp"})
    assert table.has("mt")
    assert table.has("hyp")
    assert not table.has("ref")
    assert table.column("mt").to_list() == table.column("hyp").to_list() == ["a", "b", "c"]


def test_the_column_of_a_role_is_read_even_if_only_others_are_wanted(path: str):
    table = read(path, columns={"human"}, roles={"mt": "hyp"})
    assert table.frame.columns == ["hyp", "human"]


def test_a_role_without_its_column_is_refused(path: str):
    with pytest.raises(InputError) as caught:
        read(path, roles={"mt": "target"})
    assert str(caught.value) == "f.tsv: no column 'target' (its columns: lp, hyp, human, mt_is_ref, note)"


def test_taking_rows_keeps_their_places(path: str):
    table = read(path).take(np.array([True, False, True]))
    assert len(table) == 2
    assert [table.place(row) for row in range(2)] == ["f.tsv:2", "f.tsv:4"]
    assert table.take(np.array([1])).place(0) == "f.tsv:4"


def test_a_column_that_was_left_out_is_not_called_missing(path: str):
    with pytest.raises(InputError, match=r"^f.tsv: column 'lp' was not among those to be read$"):
        read(path, columns={"human"}).column("lp")


# Numbers


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (" 1.5 ", 1.5),
        ("+1.5", 1.5),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("5.", 5),
        ("007", 7),
        ("\u00a01\u3000", 1),
    ],
)
def test_text_cells_are_read_as_decimal_numbers(cell: str, value: float):
    assert as_table([{"a": cell}]).numbers("a").tolist() == [value]


@pytest.mark.parametrize("cell", ["0x10", "1_000", "true", "١٢", "1,5", "1d", "e5", "-", "\ufeff1"])
def test_other_ways_to_write_numbers_are_refused(cell: str):
    with pytest.raises(InputError) as caught:
        as_table([{"a": "1"}, {"a": cell}]).numbers("a")
    assert str(caught.value) == f"the data, row 2: {cell!r} in column 'a' is not a number"


def test_a_long_cell_is_cut_in_the_sentence():
    with pytest.raises(InputError, match=r"row 1: 'x{59}…' in column 'a' is not a number$"):
        as_table([{"a": "x" * 10_000}]).numbers("a")


@pytest.mark.parametrize("values", [["0.5", "", " "], [0.5, None, math.nan], ["0.5", None, None]])
def test_missing_numbers_become_nan_where_they_are_allowed(values: list):
    table = as_table(pl.DataFrame({"a": values}))
    assert np.isnan(table.numbers("a", missing=True)).tolist() == [False, True, True]
    with pytest.raises(InputError, match=r"^the data, row 2: column 'a' is empty$"):
        table.numbers("a")


def test_a_column_without_any_value_is_missing_throughout():
    table = as_table([{"a": None}, {"a": None}])
    assert np.isnan(table.numbers("a", missing=True)).all()


@pytest.mark.parametrize("value", ["nan", "inf", math.inf, -math.inf])
def test_what_is_not_finite_is_refused_even_where_missing_is_allowed(value: object):
    with pytest.raises(
        InputError, match=r"^the data, row 1: column 'a' is -?(nan|inf), not a finite number$"
    ):
        as_table([{"a": value}]).numbers("a", missing=True)


def test_whole_and_decimal_numbers_of_any_width_are_numbers():
    for dtype in (pl.Int8, pl.UInt64, pl.Float32, pl.Decimal(10, 2)):
        assert as_table(pl.DataFrame({"a": pl.Series([1, 2]).cast(dtype)})).numbers("a").tolist() == [1, 2]


# Lists of numbers


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "json", "parquet"])
def test_lists_are_read_from_every_format(tmp_path: Path, ending: str):
    write(pl.DataFrame({"s": [[0.1, 2.0], [3.0, -4e-7]], "mt": ["a", "b"]}), tmp_path / f"f.{ending}")
    assert read(tmp_path / f"f.{ending}").number_lists("s").tolist() == [[0.1, 2.0], [3.0, -4e-7]]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["[1, 2]", " [ 3 ,4.0e0 ] "]),
        pl.Series([[1, 2], [3, 4]]),
        pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Float32, 2)),
        pl.Series([np.array([1.0, 2.0]), np.array([3.0, 4.0])]),
    ],
)
def test_lists_may_be_text_lists_or_arrays(column: pl.Series):
    assert as_table(pl.DataFrame({"s": column})).number_lists("s").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([[1.0], [1.0, 2.0]], "the data, row 2: 2 numbers in 's', expected 1 as in the first row"),
        ([[1.0], None], "the data, row 2: 0 numbers in 's', expected 1 as in the first row"),
        ([[], []], "the data, row 1: 0 numbers in 's', expected some"),
        ([[1.0], [None]], "the data, row 2: 's' holds a number that is missing or not finite"),
        ([[1.0], [math.nan]], "the data, row 2: 's' holds a number that is missing or not finite"),
        ([["1"], ["2"]], "the data: column 's' holds List(String), expected lists of numbers"),
        ([[[1]], [[2]]], "the data: column 's' holds List(List(Int64)), expected lists of numbers"),
        ([1.0, 2.0], "the data: column 's' holds Float64, expected lists of numbers"),
    ],
)
def test_a_bad_list_is_named_with_its_row(column: list, expected: str):
    with pytest.raises(InputError) as caught:
        as_table(pl.DataFrame({"s": column})).number_lists("s")
    assert str(caught.value) == expected


# Groups and repetitions


def test_groups_of_several_columns_are_joined():
    table = as_table([{"lp": "en-de", "n": 1, "b": True}, {"lp": "de-en", "n": 2, "b": False}])
    assert table.labels(["lp"]).to_list() == ["en-de", "de-en"]
    assert table.labels(["lp", "n", "b"]).to_list() == ["en-de/1/true", "de-en/2/false"]


@pytest.mark.parametrize("value", ["", None])
def test_a_row_without_a_group_is_refused(value: str | None):
    with pytest.raises(InputError, match=r"^the data, row 2: column 'lp' is empty, expected a group$"):
        as_table([{"lp": "en-de"}, {"lp": value}]).labels(["lp"])


def test_lists_are_no_groups():
    with pytest.raises(InputError, match=r"^the data: column 'lp' holds List\(Int64\), expected groups$"):
        as_table([{"lp": [1]}]).labels(["lp"])


def test_repeated_rows_are_counted_within_a_system():
    rows = [{"src": "a", "mt": "b", "system": "x"}] * 3 + [{"src": "a", "mt": "b", "system": "y"}]
    assert as_table(rows).repeated() == 2
    assert as_table([{k: v for k, v in row.items() if k != "system"} for row in rows]).repeated() == 3
    assert as_table([{"src": "a"}] * 2).repeated() == 0


# Conditions


@pytest.mark.parametrize(
    ("condition", "lines"),
    [
        ("human > 1", [3]),
        ("human > 9", [3]),  # as text, '10' would come before '9'
        ("human is null", [4]),
        ("human = 10 or lp = 'de-en'", [3, 4]),
        ("mt_is_ref", [3]),
        ("not mt_is_ref", [2, 4]),
        ("mt_is_ref = false", [2, 4]),
        ("note = ''", [2]),
        ("note in ('x', 'z')", [3]),
        ("hyp like 'a%'", [2]),
        ("mt = 'c'", [4]),
        ("hyp\n=\n'c'", [4]),
        ("human = max(human)", [3]),
        ("max(human) > 1", [2, 3, 4]),
        ("count(*) = 3", [2, 3, 4]),
        ("true", [2, 3, 4]),
    ],
)
def test_a_condition_keeps_the_rows_that_meet_it(path: str, condition: str, lines: list[int]):
    assert read(path, roles={"mt": "hyp"}).where(condition).lines.tolist() == lines


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("lp = 'fr-en'", """f.tsv: no row meets "lp = 'fr-en'\""""),
        ("false", "f.tsv: no row meets 'false'"),
        ("x = 1", "f.tsv: no column 'x' (its columns: lp, hyp, human, mt_is_ref, note)"),
        ("", "the condition '' cannot be used ("),
        ("lp =", "the condition 'lp =' cannot be used ("),
        ("no sense\nat all (", "the condition 'no sense\\nat all (' cannot be used ("),
        ("select 1", "the condition 'select 1' cannot be used ("),
        ("human = 'x'", """the condition "human = 'x'" cannot be used ("""),
        ("lp", "the condition 'lp' cannot be used ("),
        ("lp::int > 1", "the condition 'lp::int > 1' cannot be used ("),
        ("regexp_like(lp, '[')", """the condition "regexp_like(lp, '[')" cannot be used ("""),
        ("unnest(string_to_array(lp, '-')) = 'en'", "the condition "),
    ],
)
def test_a_condition_that_cannot_be_met_is_refused_in_one_sentence(path: str, condition: str, expected: str):
    with pytest.raises(InputError) as caught:
        read(path).where(condition)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(expected) if expected[-1] in "( " else message == expected


# Data in memory


def test_a_table_stays_what_it_is(path: str):
    table = read(path)
    assert as_table(table) is table


def test_lists_of_dicts_are_tables():
    rows = [{"src": "Hund", "mt": "dog", "n": np.float32(0.5)}, {"src": "Katze", "s": np.array([1.0, 2.0])}]
    table = as_table(iter(rows))
    assert table.frame["mt"].to_list() == ["dog", None]
    assert table.numbers("n", missing=True)[0] == 0.5
    assert len(as_table([])) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 0.5], [1.0, 0.5]),
        ([[1, 0.5], None], [[1.0, 0.5], None]),
        ([(1, 0.5), np.array([1, 2])], [[1.0, 0.5], [1.0, 2.0]]),
        ([np.float32(0.5), np.int64(1)], [0.5, 1.0]),
        ([2**70, 1], [2.0**70, 1.0]),
        ([{"a": [1, 0.5]}, {"b": "x"}], [{"a": [1.0, 0.5], "b": None}, {"a": None, "b": "x"}]),
        ([1, "x"], ["1", "x"]),
        ([b"x", None], [b"x", None]),
        ([datetime.date(2024, 2, 29)], [datetime.date(2024, 2, 29)]),
    ],
)
def test_values_in_memory_are_kept(values: list, expected: list):
    assert as_table([{"a": value} for value in values]).frame["a"].to_list() == expected


def test_pandas_frames_are_tables():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "mt": ["a", None, "c"],
            "lp": pandas.Categorical(["x", "y", "x"]),
            "human": [0.5, math.nan, 1.0],
            "n": pandas.array([1, None, 3], dtype="Int64"),
            "s": [[1.0, 2.0], [3.0, 4.0], np.array([5.0, 6.0])],
            7: [True, False, True],
        },
        index=[3, 1, 2],
    )
    table = as_table(frame)
    assert table.frame["mt"].to_list() == ["a", None, "c"]
    assert table.frame["7"].to_list() == [True, False, True]
    assert table.labels(["lp"]).to_list() == ["x", "y", "x"]
    assert table.number_lists("s").tolist() == [[1, 2], [3, 4], [5, 6]]
    for name in ("human", "n"):
        assert np.isnan(table.numbers(name, missing=True)).tolist() == [False, True, False]


class FakeColumn(list):
    """As much of a pandas column as is used."""

    def isna(self) -> list[bool]:
        return [item is None or item != item for item in self]


def fake_pandas(**columns: list) -> object:
    class ILoc:
        def __getitem__(self, key: tuple[slice, int]) -> FakeColumn:
            return FakeColumn(list(columns.values())[key[1]])

    return types.SimpleNamespace(columns=[name.rstrip("_") for name in columns], iloc=ILoc())


def test_pandas_is_not_needed_to_take_its_frames():
    table = as_table(fake_pandas(mt=["a", math.nan], human=[0.5, math.nan]))
    assert table.frame["mt"].to_list() == ["a", None]
    assert np.isnan(table.numbers("human", missing=True)).tolist() == [False, True]


def test_pandas_columns_of_the_same_name_are_refused():
    with pytest.raises(InputError, match=r"^the data: two columns have the name 'a'$"):
        as_table(fake_pandas(a=[1], a_=[2]))
