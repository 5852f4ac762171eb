"""Files are written whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import polars as pl
import pytest

from doubtless.errors import InputError
from doubtless.segments import Table, as_table, read, render, write

FRAME = pl.DataFrame({"src": ["a", None], "human": [0.5, 1.0]})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def unwritable(frame: pl.DataFrame, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        write(frame, path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).removeprefix(f"{path.parent}/")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f.tsv", b"src\thuman\na\t0.5\n\t1.0\n"),
        ("f.csv", b"src,human\na,0.5\n,1.0\n"),
        ("f.jsonl", b'{"src":"a","human":0.5}\n{"src":null,"human":1.0}\n'),
        ("f.json", b'[\n{"src":"a","human":0.5},\n{"src":null,"human":1.0}\n]\n'),
    ],
)
def test_the_ending_tells_the_format(tmp_path: Path, name: str, expected: bytes):
    write(as_table(FRAME), tmp_path / name)
    assert (tmp_path / name).read_bytes() == expected


def test_an_empty_text_is_written_like_a_missing_one_in_tsv_and_csv():
    empty, missing = (pl.DataFrame({"a": [value], "b": ["x"]}) for value in ("", None))
    assert render(empty, "tsv") == render(missing.cast(pl.String), "tsv") == b"a\tb\n\tx\n"
    assert render(empty.select("a"), "csv") == render(missing.select("a"), "csv") == b'a\n""\n'


def test_lists_and_objects_are_json_inside_tsv():
    frame = pl.DataFrame({"l": [[0.1, 2.0], None], "o": [{"ä": 'x"'}, None]})
    assert render(frame, "tsv").decode() == 'l\to\n[0.1,2.0]\t"{""ä"":""x\\""""}"\n\t\n'


def test_what_is_not_finite_is_null_in_json():
    frame = pl.DataFrame({"a": [float("nan"), float("inf"), 1.0]})
    assert render(frame, "jsonl") == b'{"a":null}\n{"a":null}\n{"a":1.0}\n'


def test_parquet_carries_metadata(tmp_path: Path):
    write(FRAME, tmp_path / "f.parquet", {"doubtless.signature": "conformal|α:0.1"})
    assert pl.read_parquet_metadata(tmp_path / "f.parquet")["doubtless.signature"] == "conformal|α:0.1"


def test_an_unknown_ending_is_refused(tmp_path: Path):
    expected = "f.xls: unknown ending '.xls', expected one of: .tsv .csv .jsonl .ndjson .json .parquet"
    assert unwritable(FRAME, tmp_path / "f.xls") == expected


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "json"])
def test_columns_that_a_format_cannot_hold_are_refused(
    tmp_path: Path, format: str, capfd: pytest.CaptureFixture
):
    path = tmp_path / f"f.{format}"
    path.write_text("old")
    expected = f"column 'a' holds Binary, which {format} cannot hold"
    assert unwritable(pl.DataFrame({"a": [b"\xff"]}), path) == expected
    assert unwritable(pl.DataFrame({"a": [[b"\xff"]]}), path) == f"the table cannot be written as {format}"
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert capfd.readouterr().err == ""  # the Rust side panics, and would say so


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "f.tsv"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert unwritable(FRAME, path) == "f.tsv: the file cannot be written (no space left on device)"
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(FRAME, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f.tsv"]


def test_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "d.tsv").mkdir()
    assert unwritable(FRAME, tmp_path / "d.tsv") == "d.tsv: this is a directory, expected a file"


def test_a_missing_directory_is_refused(tmp_path: Path):
    path = tmp_path / "none" / "f.tsv"
    assert unwritable(FRAME, path) == "f.tsv: the file cannot be written (no such file or directory)"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)
    path = tmp_path / "f.tsv"
    assert unwritable(FRAME, path) == "f.tsv: the file cannot be written (permission denied)"


def test_permissions_are_those_of_the_old_file_or_the_usual_ones(tmp_path: Path):
    path = tmp_path / "f.tsv"
    before = os.umask(0o027)
    try:
        write(FRAME, path)
        assert mode(path) == 0o640
        path.chmod(0o604)
        write(FRAME, path)
        assert mode(path) == 0o604
    finally:
        os.umask(before)


def test_a_link_is_followed_and_kept(tmp_path: Path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "f.tsv", tmp_path / "link.tsv"
    link.symlink_to(target)
    for _ in range(2):
        write(FRAME, link)
        assert link.is_symlink()
        assert len(read(target)) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.tsv", "there"]


def test_a_pipe_is_written_into(tmp_path: Path):
    os.mkfifo(tmp_path / "f.tsv")
    found: list[Table] = []
    reader = threading.Thread(target=lambda: found.append(read(tmp_path / "f.tsv")))
    reader.start()
    write(FRAME, tmp_path / "f.tsv")
    reader.join()
    assert len(found[0]) == 2


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path):
    path = tmp_path / ("x" * 251 + ".tsv")
    write(FRAME, path)
    assert len(read(path)) == 2


def test_a_file_can_replace_the_one_it_was_read_from(tmp_path: Path):
    path = tmp_path / "f.parquet"
    write(FRAME, path)
    write(read(path), path)
    assert read(path).frame.equals(FRAME)
