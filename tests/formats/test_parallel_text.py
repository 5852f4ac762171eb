"""Plain text, one segment a line: a line ends at a line feed and nowhere else."""

import io
import sys
from pathlib import Path

import polars as pl
import pytest

from doubtless.errors import InputError
from doubtless.segments import as_table, read_parallel, write_parallel


def sources(tmp_path: Path, data: bytes) -> list[str]:
    (tmp_path / "t").write_bytes(data)
    return read_parallel(tmp_path / "t", [tmp_path / "t"]).frame["src"].to_list()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\n\n", ["a", ""]),
        ("\n", [""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\rb\r", ["a\rb\r"]),
        ("a\r\r\n", ["a\r"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("one\u2028line\x0c\x0b\x85\u2029\x1c\n", ["one\u2028line\x0c\x0b\x85\u2029\x1c"]),
        (' "a\t \n', [' "a\t ']),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path: Path, data: str, expected: list[str]):
    assert sources(tmp_path, data.encode()) == expected


def test_several_translations_are_several_systems(tmp_path: Path):
    for name, text in {"src": "a\nb\n", "one": "c\nd\n", "two": "e\nf\n", "ref": "g\nh\n"}.items():
        (tmp_path / name).write_text(text)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    table = read_parallel(tmp_path / "src", [one, two], tmp_path / "ref")
    assert table.frame.rows() == [
        ("a", "c", "g", one, 0),
        ("b", "d", "h", one, 1),
        ("a", "e", "g", two, 0),
        ("b", "f", "h", two, 1),
    ]
    assert table.frame.columns == ["src", "mt", "ref", "system", "seg"]
    assert table.place(3) == f"{tmp_path}/src:2"


def test_a_text_can_come_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mt").write_text("b\n")
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO(b"a\n")}))
    table = read_parallel("-", [tmp_path / "mt"])
    assert table.place(0) == "standard input:1"


def test_columns_are_written_as_lines(tmp_path: Path):
    frame = pl.DataFrame({"src": ["a", None], "hyp": ["\ufeffc", "d\re"]})
    write_parallel(as_table(frame), {"src": tmp_path / "s", "hyp": tmp_path / "h"})
    assert (tmp_path / "s").read_bytes() == b"a\n\n"
    assert sources(tmp_path, (tmp_path / "h").read_bytes()) == ["\ufeffc", "d\re"]


@pytest.mark.parametrize("text", ["two\nlines", "end\r", "\n"])
def test_a_segment_of_several_lines_is_refused_before_anything_is_written(tmp_path: Path, text: str):
    rows = [{"src": "a", "mt": "b"}, {"src": "c", "mt": text}]
    with pytest.raises(InputError) as caught:
        write_parallel(rows, {"src": tmp_path / "s", "mt": tmp_path / "m"})
    assert str(caught.value) == "the data, row 2: column 'mt' holds a line break, expected one line"
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_not_parallel_text(tmp_path: Path):
    with pytest.raises(InputError, match=r"^the data: column 'src' holds Int64, expected text$"):
        write_parallel([{"src": 1}], {"src": tmp_path / "s"})
