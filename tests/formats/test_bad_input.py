"""Every kind of bad input gets one sentence, with file and line."""

import io
import os
import sys
from pathlib import Path

import polars as pl
import pytest

from doubtless.errors import InputError
from doubtless.segments import as_table, read, read_parallel, render, write


def refusal(path: object, data: bytes | str | None = None, **options: object) -> str:
    """Return the sentence that reading gives, without the directory."""
    path = Path(str(path))
    if data is not None:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(InputError) as caught:
        read(path, **options)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).removeprefix(f"{path.parent}/")


def complaint(path: Path, data: str, column: str = "human", what: str = "numbers") -> str:
    """Return the sentence that the use of a column gives."""
    path.write_text(data, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        getattr(read(path), what)(column)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).removeprefix(f"{path.parent}/")


# Files that cannot be opened


def test_a_missing_file_is_named(tmp_path: Path):
    assert refusal(tmp_path / "f.tsv") == "f.tsv: there is no such file"


def test_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "d.tsv").mkdir()
    assert refusal(tmp_path / "d.tsv") == "d.tsv: this is a directory, expected a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path):
    (tmp_path / "f.tsv").touch(mode=0o000)
    assert refusal(tmp_path / "f.tsv") == "f.tsv: the file cannot be read (permission denied)"


def test_a_file_as_directory_is_refused(tmp_path: Path):
    (tmp_path / "f").touch()
    with pytest.raises(InputError, match=r"the file cannot be read \(not a directory\)$"):
        read(tmp_path / "f" / "g.tsv")


@pytest.mark.parametrize("name", ["a\0b.tsv", "\ud800.tsv"])
def test_impossible_file_names_are_refused(name: str):
    for use in (read, lambda path: write(pl.DataFrame({"a": [1]}), path)):
        with pytest.raises(InputError) as caught:
            use(name)
        assert str(caught.value) == f"{name!r} cannot be the name of a file"


def test_a_line_break_in_a_file_name_does_not_break_the_sentence():
    with pytest.raises(InputError) as caught:
        read("no such\nfile.tsv")
    assert str(caught.value) == "'no such\\nfile.tsv': there is no such file"


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match=r"^standard input: it is closed$"):
        read("-")


def test_an_unknown_format_is_refused(tmp_path: Path):
    expected = "unknown format 'xls', expected one of: csv, json, jsonl, parquet, tsv"
    assert refusal(tmp_path / "f.tsv", "a\n1\n", format="xls") == expected
    with pytest.raises(InputError) as caught:
        render(pl.DataFrame({"a": [1]}), "xls")
    assert str(caught.value) == expected


# Empty files


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("f.tsv", "", "f.tsv: the file is empty, expected a header line"),
        ("f.csv", "\ufeff", "f.csv:1: the line is empty, expected a header line"),
        ("f.tsv", "\n\n", "f.tsv:1: the line is empty, expected a header line"),
        ("f.tsv", "src\tmt\n", "f.tsv: the file holds no rows"),
        ("f.jsonl", "", "f.jsonl: the file holds no rows"),
        ("f.jsonl", "\n \n", "f.jsonl: the file holds no rows"),
        ("f.json", "", "f.json: the file is empty, expected a JSON list"),
        ("f.json", "[]", "f.json: the file holds no rows"),
        ("f.json", "{}", "f.json: the file holds no rows"),
        ("f.parquet", "", "f.parquet: the file is empty, expected Parquet"),
        ("f.parquet", render(pl.DataFrame({"a": []}), "parquet"), "f.parquet: the file holds no rows"),
    ],
)
def test_an_empty_file_is_refused(tmp_path: Path, name: str, data: str | bytes, expected: str):
    assert refusal(tmp_path / name, data) == expected


# TSV and CSV


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("src\tmt\na\tb\nc\n", "f.tsv:3: 1 column, expected 2"),
        ("src\tmt\na\tb\tc\n", "f.tsv:2: 3 columns, expected 2"),
        ("src\tmt\na\tb\n\n", "f.tsv:3: the line is empty, expected 2 columns"),
        ('src\tmt\n"a\n\nb"\tc\nd\n', "f.tsv:5: 1 column, expected 2"),
        ('"src\n"\tmt\na\tb\nc\n', "f.tsv:4: 1 column, expected 2"),
    ],
)
def test_a_ragged_line_is_named_with_file_and_line(tmp_path: Path, data: str, expected: str):
    assert refusal(tmp_path / "f.tsv", data) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("src\tmt\tsrc", "f.tsv:1: the header names column 'src' twice"),
        ("src\t\tmt", "f.tsv:1: column 2 of the header has no name"),
        ("src\t \tmt", "f.tsv:1: column 2 of the header has no name"),
        ('"a\nb"\t"a\nb"\tc', "f.tsv:1: the header names column 'a\\nb' twice"),
    ],
)
def test_a_header_without_clear_names_is_refused(tmp_path: Path, header: str, expected: str):
    assert refusal(tmp_path / "f.tsv", f"{header}\na\tb\tc\n") == expected


@pytest.mark.parametrize("cell", ['"never ends', '"ends"early'])
def test_a_quoted_cell_without_a_proper_end_is_refused(tmp_path: Path, cell: str):
    expected = (
        "f.tsv:3: a quoted cell does not end properly"
        " (if quotes are ordinary characters here, use --quotes none)"
    )
    data = f"src\tmt\na\tb\nc\t{cell}\ne\tf\n"
    assert refusal(tmp_path / "f.tsv", data) == expected
    assert read(tmp_path / "f.tsv", quotes=False).frame["mt"].to_list() == ["b", cell, "f"]


def test_a_carriage_return_outside_quotes_is_refused(tmp_path: Path):
    expected = "f.csv:3: a carriage return stands inside a cell that is not quoted"
    assert refusal(tmp_path / "f.csv", "src,mt\na,b\nc\rd,e\n") == expected


def test_undecodable_bytes_are_named_with_file_and_line(tmp_path: Path):
    data = 'src\tmt\n"a\nb"\tc\nd\té\n'.encode().replace("é".encode(), b"\xe9")
    expected = "f.tsv:4: byte 3 of the line is not valid UTF-8 (0xe9)"
    assert refusal(tmp_path / "f.tsv", data) == expected
    assert refusal(tmp_path / "f.jsonl", b'{"a": "x"}\n{"a": "\xff"}\n') == (
        "f.jsonl:2: byte 8 of the line is not valid UTF-8 (0xff)"
    )


def test_other_encodings_are_refused(tmp_path: Path):
    data = "src\tmt\na\tb\n".encode("utf-16")
    assert refusal(tmp_path / "f.tsv", data) == "f.tsv:1: the file is UTF-16, expected UTF-8"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("f.tsv", "src\tmt\na\tb\nc\td\0\n", "f.tsv:3: the line holds a NUL character"),
        ("f.jsonl", '{"a": "x\0"}\n', "f.jsonl:1: the line holds a NUL character"),
        ("f.jsonl", '{"a": "x"}\n{"a": "\\u0000"}\n', "f.jsonl:2: a text holds a NUL character"),
        ("f.json", '[{"a": 1},\n{"a": 2, "b": ["\\u0000"]}]', "f.json:2: a text holds a NUL character"),
        (
            "f.parquet",
            render(pl.DataFrame({"a": ["x", None, "\0"]}), "parquet"),
            "f.parquet, row 3: column 'a' holds a NUL character",
        ),
    ],
)
def test_nul_is_refused(tmp_path: Path, name: str, data: str | bytes, expected: str):
    assert refusal(tmp_path / name, data) == expected


def test_a_missing_column_is_named_with_all_that_there_are(tmp_path: Path):
    (tmp_path / "f.tsv").write_text("lp\tsrc\tmt\nen-de\ta\tb\n")
    (tmp_path / "f.jsonl").write_text('{"lp": 1, "src": 2}\n{"mt": 3}\n')
    pl.DataFrame({"lp": [1], "src": 2, "mt": 3}).write_parquet(tmp_path / "f.parquet")
    for name in ("f.tsv", "f.jsonl", "f.parquet"):
        table = read(tmp_path / name, columns={"src", "score"})
        assert table.frame.columns == ["src"]
        with pytest.raises(InputError, match=f"{name}: no column 'score' \\(its columns: lp, src, mt\\)$"):
            table.numbers("score")
        with pytest.raises(InputError, match=f"{name}: no column 'hyp' \\(its columns: lp, src, mt\\)$"):
            read(tmp_path / name, roles={"mt": "hyp"})


def test_of_very_many_columns_some_are_listed(tmp_path: Path):
    (tmp_path / "f.tsv").write_text("\t".join(f"c{i}" for i in range(100)) + "\n" + "\t" * 99 + "\n")
    with pytest.raises(InputError, match=r"c39 and 60 more\)$"):
        read(tmp_path / "f.tsv").column("x")


# Parquet


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path):
    assert refusal(tmp_path / "f.parquet", "src\tmt\n") == "f.parquet: the file is not Parquet"


def test_damaged_parquet_is_refused(tmp_path: Path):
    message = refusal(tmp_path / "f.parquet", b"PAR1" + b"x" * 50)
    assert message.startswith("f.parquet: the Parquet file is damaged (")


# Numbers


@pytest.mark.parametrize(
    "cell", ["x", "0x10", "1_000", "true", "1,5", "--1", "1.5.", "١", "−1", "1 5", "two\nlines"]
)
def test_a_score_that_is_not_a_number_is_named_with_file_and_line(tmp_path: Path, cell: str):
    data = f'human\tmt\n0.5\t"a\nb"\n"{cell}"\tc\n'
    assert complaint(tmp_path / "f.tsv", data) == f"f.tsv:4: {cell!r} in column 'human' is not a number"


@pytest.mark.parametrize(("cell", "shown"), [("nan", "nan"), ("-Inf", "-inf"), ("1e999", "inf")])
def test_a_score_that_is_not_finite_is_named_with_file_and_line(tmp_path: Path, cell: str, shown: str):
    expected = f"f.tsv:3: column 'human' is {shown}, not a finite number"
    assert complaint(tmp_path / "f.tsv", f"human\n1\n{cell}\n") == expected


def test_an_empty_score_is_named_with_file_and_line(tmp_path: Path):
    assert complaint(tmp_path / "f.csv", "human,mt\n1,a\n,b\n") == "f.csv:3: column 'human' is empty"
    assert complaint(tmp_path / "f.jsonl", '{"human": 1}\n\n{"human": null}\n') == (
        "f.jsonl:3: column 'human' is empty"
    )


def test_a_column_of_truth_values_is_no_score(tmp_path: Path):
    expected = "f.jsonl: column 'human' holds Boolean, expected numbers"
    assert complaint(tmp_path / "f.jsonl", '{"human": true}\n') == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["[1, 2]", "[1]"], "f.tsv:3: 1 number in 'human', expected 2 as in the first row"),
        (["[]", "[1]"], "f.tsv:2: 0 numbers in 'human', expected some"),
        (["[1]", "1"], "f.tsv:3: '1' in column 'human' is not a list of numbers"),
        (["[1]", ""], "f.tsv:3: '' in column 'human' is not a list of numbers"),
        (["[1]", "[null]"], "f.tsv:3: '[null]' in column 'human' is not a list of numbers"),
        (["[1]", "[NaN]"], "f.tsv:3: '[NaN]' in column 'human' is not a list of numbers"),
        (["[1]", "[1 2]"], "f.tsv:3: '[1 2]' in column 'human' is not a list of numbers"),
        (["[1]", "[1,]"], "f.tsv:3: '[1,]' in column 'human' is not a list of numbers"),
        (["[1]", "[[1]]"], "f.tsv:3: '[[1]]' in column 'human' is not a list of numbers"),
        (["[1]", "[1e999]"], "f.tsv:3: 'human' holds a number that is missing or not finite"),
    ],
)
def test_a_bad_list_is_named_with_file_and_line(tmp_path: Path, cells: list[str], expected: str):
    data = "mt\thuman\n" + "".join(f"x\t{cell}\n" for cell in cells)
    assert complaint(tmp_path / "f.tsv", data, what="number_lists") == expected


# Parallel text


def test_parallel_files_of_different_length_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("src").write_text("a\nb\n")
    Path("mt").write_text("a\n")
    with pytest.raises(InputError, match=r"^mt: 1 line, but src has 2$"):
        read_parallel("src", ["mt"])
    with pytest.raises(InputError, match=r"^mt: 1 line, but src has 2$"):
        read_parallel("src", ["src"], "mt")
    Path("mt").write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match=r"^mt:2: byte 1 of the line is not valid UTF-8 \(0xff\)$"):
        read_parallel("src", ["mt"])
    with pytest.raises(InputError, match=r"^no translation was given$"):
        read_parallel("src", [])
    Path("mt").write_text("")
    with pytest.raises(InputError, match=r"^mt: the file is empty$"):
        read_parallel("mt", ["mt"])


# Data in memory


@pytest.mark.parametrize("data", [3, "text", [1, 2], {"a": [1]}, None])
def test_data_of_another_kind_is_refused(data: object):
    with pytest.raises(InputError, match=r"^the data: expected a data frame or a list of dicts$"):
        as_table(data)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({1: 2}, "the data: column '1' cannot be used (Series name must be a string)"),
        ({"a": 10**400}, "the data: column 'a' cannot be used (int too large to convert to float)"),
        ({"a": "\ud800"}, "the data: column 'a' cannot be used ('utf-8' codec can't encode character"),
        (
            {"\n\ud800": 1},
            "the data: column '\\n\\ud800' cannot be used ('utf-8' codec can't encode character",
        ),
    ],
)
def test_values_that_no_column_can_hold_are_refused(row: dict, expected: str):
    with pytest.raises(InputError) as caught:
        as_table([row])
    assert str(caught.value).startswith(expected)
    assert len(str(caught.value).splitlines()) == 1


def test_errors_inside_standard_input_are_named(monkeypatch: pytest.MonkeyPatch):
    stream = io.TextIOWrapper(io.BytesIO(b"src\tmt\na\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(InputError, match=r"^standard input:2: 1 column, expected 2$"):
        read("-")
