"""What is written can be read back: every text byte for byte, every number exactly."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubtless.errors import InputError
from doubtless.segments import as_table, read, read_parallel, write, write_parallel

DELIMITED = ["tsv", "csv"]
OTHERS = ["jsonl", "json", "parquet"]

relaxed = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# All of Unicode but the surrogates, which no text holds, and NUL, which is refused. The characters that
# formats give a meaning to are drawn far more often than chance would.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
special = st.sampled_from("\t\n\r\",\ufeff\u2028\x0b\x0c\x1a\x1f\x7f\x85\xa0 \\'#[]{}:xX^NA")
texts = st.text(st.one_of(special, characters), max_size=12)
columns_of_texts = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[texts] * width), min_size=1, max_size=6)
)
floats = st.floats(allow_nan=False, allow_infinity=False)


def frame_of(rows: list[tuple[str, ...]]) -> pl.DataFrame:
    names = ["src", "mt", "ref", 'a column, with "quotes"\tand a\nline break']
    return pl.DataFrame(rows, schema=dict.fromkeys(names[: len(rows[0])], pl.String), orient="row")


@pytest.mark.parametrize("ending", DELIMITED + OTHERS)
@relaxed
@given(rows=columns_of_texts)
def test_texts_survive(tmp_path: Path, ending: str, rows: list[tuple[str, ...]]):
    frame = frame_of(rows)
    write(frame, tmp_path / f"f.{ending}")
    assert read(tmp_path / f"f.{ending}").frame.equals(frame)


@pytest.mark.parametrize("ending", DELIMITED + OTHERS)
@relaxed
@given(rows=st.lists(st.tuples(st.none() | texts, st.none() | texts), min_size=1, max_size=6))
def test_a_missing_text_stays_missing_except_in_tsv_and_csv(tmp_path: Path, ending: str, rows: list):
    frame = pl.DataFrame(rows, schema={"src": pl.String, "mt": pl.String}, orient="row")
    write(frame, tmp_path / f"f.{ending}")
    expected = frame.fill_null("") if ending in DELIMITED else frame
    found = read(tmp_path / f"f.{ending}").frame
    assert found.rows() == expected.rows()


@pytest.mark.parametrize("ending", DELIMITED)
@relaxed
@given(rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_lines_are_counted_right_after_cells_with_line_breaks(tmp_path: Path, ending: str, rows: list):
    path = tmp_path / f"f.{ending}"
    write(pl.DataFrame(rows, schema={"src": pl.String, "mt": pl.String}, orient="row"), path)
    sound = path.read_bytes()
    line = sound.count(b"\n") + 1
    separator = b"\t" if ending == "tsv" else b","
    path.write_bytes(sound + b"alone\n")
    with pytest.raises(InputError, match=rf":{line}: 1 column, expected 2$"):
        read(path)
    path.write_bytes(sound + b"x" + separator + b"\xff\n")
    with pytest.raises(InputError, match=rf":{line}: byte 3 of the line is not valid UTF-8"):
        read(path)
    path.write_bytes(sound + b"x" + separator + b"y\n")
    assert read(path).lines[-1] == line


@pytest.mark.parametrize("ending", DELIMITED + OTHERS)
@relaxed
@given(values=st.lists(floats, min_size=1, max_size=20))
def test_numbers_survive_exactly(tmp_path: Path, ending: str, values: list[float]):
    write(pl.DataFrame({"human": values, "mt": "x"}), tmp_path / f"f.{ending}")
    found = read(tmp_path / f"f.{ending}").numbers("human")
    assert found.tobytes() == np.array(values).tobytes()  # tells 0.0 from -0.0


@pytest.mark.parametrize("ending", DELIMITED + OTHERS)
@relaxed
@given(
    matrix=st.integers(1, 5).flatmap(
        lambda width: st.lists(st.lists(floats, min_size=width, max_size=width), min_size=1, max_size=6)
    )
)
def test_lists_of_numbers_survive_exactly(tmp_path: Path, ending: str, matrix: list[list[float]]):
    write(pl.DataFrame({"samples": matrix, "mt": "x"}), tmp_path / f"f.{ending}")
    found = read(tmp_path / f"f.{ending}").number_lists("samples")
    assert found.tobytes() == np.array(matrix).tobytes()


@pytest.mark.parametrize("ending", DELIMITED + OTHERS)
@relaxed
@given(values=st.lists(st.none() | floats, min_size=1, max_size=20))
def test_missing_numbers_survive(tmp_path: Path, ending: str, values: list[float | None]):
    frame = pl.DataFrame({"human": values}, schema={"human": pl.Float64})
    write(frame, tmp_path / f"f.{ending}")
    found = read(tmp_path / f"f.{ending}").numbers("human", missing=True)
    assert [None if math.isnan(x) else x for x in found] == values


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@relaxed
@given(row=st.dictionaries(texts, json_values, min_size=1, max_size=3))
def test_nested_json_is_kept_or_refused_but_never_altered(tmp_path: Path, row: dict):
    (tmp_path / "f.jsonl").write_text(json.dumps(row), encoding="utf-8")
    refusal = ""
    try:
        table = read(tmp_path / "f.jsonl")
    except InputError as error:
        refusal = str(error)
    assert "mixes" in refusal or numbers_alike(table.frame.to_dicts()[0], row)


def numbers_alike(found: object, expected: object) -> bool:
    """Compare, but let 1 stand for 1.0 and an absent key for null: a column has one type."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            numbers_alike(found[key], expected.get(key)) for key in {*found, *expected}
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(numbers_alike, found, expected))
        )
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


@relaxed
@given(
    rows=st.lists(
        st.tuples(*[texts.map(lambda t: t.replace("\n", "").removesuffix("\r"))] * 2), min_size=1, max_size=6
    )
)
def test_parallel_text_survives(tmp_path: Path, rows: list[tuple[str, str]]):
    if any(text.endswith("\r") for row in rows for text in row):
        return
    frame = frame_of(rows)
    files = {"src": tmp_path / "src.txt", "mt": tmp_path / "mt.txt"}
    write_parallel(as_table(frame), files)
    assert read_parallel(files["src"], [files["mt"]]).frame.select("src", "mt").equals(frame)
