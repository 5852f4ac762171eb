"""Files of every format are read as they are."""

import io
import json
import os
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from doubtless.formats import chunks
from doubtless.segments import Table, read, render

ROWS = [{"src": "Hund", "mt": "dog", "human": 0.5}, {"src": "Katze", "mt": "cat", "human": 1.0}]
SEGMENT = {"src": "Hund", "mt": "dog", "ref": "dog", "COMET": 0.9}
COMET = {
    "hyp-a.txt": [SEGMENT],
    "hyp-b.txt": [{**SEGMENT, "mt": "hound", "COMET": 0.7, "errors": [{"text": "hound", "start": 0}]}],
}


def wrote(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def fed(monkeypatch: pytest.MonkeyPatch, data: str | bytes) -> None:
    """Put data on standard input."""
    raw = data.encode() if isinstance(data, str) else data
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO(raw)}))


def rows_of(table: Table) -> list[dict]:
    return [{**row, "human": float(row["human"])} for row in table.frame.to_dicts()]


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "ndjson", "json", "parquet", "TSV"])
def test_the_ending_tells_the_format(tmp_path: Path, ending: str):
    format = {"ndjson": "jsonl", "TSV": "tsv"}.get(ending, ending)
    table = read(wrote(tmp_path / f"f.{ending}", render(pl.DataFrame(ROWS), format)))
    assert rows_of(table) == ROWS
    assert table.numbers("human").tolist() == [0.5, 1.0]


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "json", "parquet"])
def test_a_given_format_overrules_the_ending(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch):
    data = render(pl.DataFrame(ROWS), format)
    assert rows_of(read(wrote(tmp_path / "f.txt", data), format=format)) == ROWS
    fed(monkeypatch, data)
    assert rows_of(read("-", format=format)) == ROWS


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n \n"])
def test_the_first_bytes_tell_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, before: bytes
):
    if before.isspace() and format in ("tsv", "csv"):
        pytest.skip("the first line of TSV and CSV is the header")
    data = render(pl.DataFrame(ROWS), format)
    data = data if format == "parquet" else before + data
    fed(monkeypatch, data)
    table = read("-")
    assert table.name == "standard input"
    assert rows_of(table) == ROWS
    assert rows_of(read(wrote(tmp_path / "no-ending", data))) == ROWS


@pytest.mark.parametrize("indent", [None, 2])
def test_comet_json_is_told_from_json_lines(monkeypatch: pytest.MonkeyPatch, indent: int | None):
    fed(monkeypatch, json.dumps(COMET, indent=indent))
    assert read("-").frame["system"].to_list() == ["hyp-a.txt", "hyp-b.txt"]


def test_a_long_first_line_is_still_json_lines(monkeypatch: pytest.MonkeyPatch):
    fed(monkeypatch, json.dumps({"src": "x" * 200_000}) + '\n{"src": "y"}\n')
    assert len(read("-")) == 2


def test_deeply_nested_standard_input_is_no_traceback(monkeypatch: pytest.MonkeyPatch):
    fed(monkeypatch, '{"a": ' + "[" * 100_000)
    with pytest.raises(ValueError, match="not a list of segments|nested too deeply"):
        read("-")


def test_comet_json_gives_one_row_a_segment_with_its_system_and_line(tmp_path: Path):
    table = read(wrote(tmp_path / "f.json", json.dumps(COMET, indent=4)))
    assert table.frame.to_dicts() == [
        {"system": "hyp-a.txt", **COMET["hyp-a.txt"][0], "errors": None},
        {"system": "hyp-b.txt", **COMET["hyp-b.txt"][0]},
    ]
    assert table.lines.tolist() == [3, 11]
    assert table.numbers("COMET").tolist() == [0.9, 0.7]


def test_a_json_list_keeps_the_line_of_each_object(tmp_path: Path):
    table = read(wrote(tmp_path / "f.json", '[\n{"a": 1},\n\n{"a":\n2}, {"a": 3}]'))
    assert table.lines.tolist() == [2, 4, 5]
    assert table.place(1) == f"{tmp_path}/f.json:4"


def test_blank_lines_between_json_lines_count_but_are_no_rows(tmp_path: Path):
    table = read(wrote(tmp_path / "f.jsonl", '\n{"a": 1}\r\n\r\n{"a": 2}'))
    assert table.lines.tolist() == [2, 4]


def test_a_key_that_some_rows_lack_is_missing_there(tmp_path: Path):
    table = read(wrote(tmp_path / "f.jsonl", '{"a": 1}\n{"b": "x"}\n{}\n'))
    assert table.frame.to_dicts() == [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


def test_whole_numbers_stay_exact_and_mix_with_others(tmp_path: Path):
    data = '{"a": 9007199254740993, "b": 1, "c": [1, 2.5], "d": 18446744073709551616}\n{"b": 0.5, "c": []}\n'
    frame = read(wrote(tmp_path / "f.jsonl", data)).frame
    assert frame.row(0) == (9007199254740993, 1.0, [1.0, 2.5], 18446744073709551616.0)
    assert frame.schema["b"] == pl.Float64


def test_a_column_may_first_appear_in_a_later_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("doubtless.formats.json.ROWS_PER_CHUNK", 2)
    lines = ['{"a": 1}'] * 3 + [
        '{"a": 1, "late": []}',
        '{"a": 1, "late": [{"b": 1}]}',
        '{"late": [{"c": "x"}]}',
    ]
    table = read(wrote(tmp_path / "f.jsonl", "\n".join(lines)), columns={"late"})
    assert len(table) == table.frame.height == 6
    assert table.lines.tolist() == [1, 2, 3, 4, 5, 6]
    late = [None, None, None, [], [{"b": 1, "c": None}], [{"b": None, "c": "x"}]]
    assert table.frame["late"].to_list() == late


def test_rows_keep_their_lines_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("doubtless.formats.delimited.ROWS_PER_CHUNK", 2)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    data = "a\tb\n" + "".join(f'"{i}\n"\t{i}\n' for i in range(5))
    table = read(wrote(tmp_path / "f.tsv", data))
    assert table.lines.tolist() == [2, 4, 6, 8, 10]
    assert table.frame["a"].to_list() == [f"{i}\n" for i in range(5)]


@pytest.mark.parametrize("name", ["f.tsv", "f.jsonl", "f.json", "f.parquet"])
def test_rows_are_counted_even_if_no_wanted_column_is_there(tmp_path: Path, name: str):
    path = wrote(tmp_path / name, render(pl.DataFrame(ROWS), name.removeprefix("f.")))
    table = read(path, columns={"nothing"})
    assert len(table) == 2
    assert table.frame.width == 0
    assert len(table.where("1 = 1")) == 2


def test_tsv_cells_stay_text_and_keep_everything(tmp_path: Path):
    data = '\ufeffsrc\tmt\tn\r\n"tab\there"\t"two\r\nlines ""quoted"""\t007\r\n \u2028\ufeff\tsay "x"\t\r\n'
    table = read(wrote(tmp_path / "f.tsv", data))
    assert table.frame.rows() == [
        ("tab\there", 'two\r\nlines "quoted"', "007"),
        (" \u2028\ufeff", 'say "x"', ""),
    ]
    assert table.lines.tolist() == [2, 4]


def test_quotes_may_be_ordinary_characters(tmp_path: Path):
    table = read(wrote(tmp_path / "f.tsv", 'src\tmt\n"a\tb"\n""\t"\n'), quotes=False)
    assert table.frame.rows() == [('"a', 'b"'), ('""', '"')]


def test_a_blank_line_is_an_empty_text_where_there_is_one_column(tmp_path: Path):
    assert read(wrote(tmp_path / "f.csv", "src\na\n\nb\n")).frame["src"].to_list() == ["a", "", "b"]


def test_a_cell_may_be_very_long(tmp_path: Path):
    table = read(wrote(tmp_path / "f.csv", f'a,b\n"{"x" * 300_000}",1\n'))
    assert len(table.frame["a"][0]) == 300_000


@pytest.mark.parametrize("name", ["[a]*.parquet", "lp=en-de/f.parquet", "a?.parquet"])
def test_parquet_is_not_taken_for_a_pattern_or_a_partition(tmp_path: Path, name: str):
    (tmp_path / "lp=en-de").mkdir()
    for path in (tmp_path / name, tmp_path / "a1.parquet"):
        wrote(path, render(pl.DataFrame({"name": [path.name]}), "parquet"))
    assert read(tmp_path / name).frame.to_dicts() == [{"name": Path(name).name}]


def test_a_pipe_can_be_read(tmp_path: Path):
    for format in ("tsv", "parquet"):
        os.mkfifo(tmp_path / f"pipe.{format}")
        data = render(pl.DataFrame(ROWS), format)
        writer = threading.Thread(target=(tmp_path / f"pipe.{format}").write_bytes, args=(data,))
        writer.start()
        assert rows_of(read(tmp_path / f"pipe.{format}")) == ROWS
        writer.join()


def test_parquet_rows_are_named_by_number(tmp_path: Path):
    table = read(wrote(tmp_path / "f.parquet", render(pl.DataFrame(ROWS), "parquet")), columns={"human"})
    assert table.frame.columns == ["human"]
    assert table.place(1) == f"{tmp_path}/f.parquet, row 2"
