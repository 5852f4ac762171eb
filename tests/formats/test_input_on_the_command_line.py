"""Bad input ends a command with one sentence on standard error, exit code 2, and no output."""

import subprocess
import sys
from pathlib import Path

import pytest


def doubtless(*arguments: str, cwd: Path, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "doubtless.cli.main", *arguments]
    return subprocess.run(command, cwd=cwd, input=input, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"src\tmt\tscore\thuman\na\tb\t0.5\n", "f.tsv:2: 3 columns, expected 4"),
        (b"score\thuman\n0.5\t1\n0.5\thigh\n", "f.tsv:3: 'high' in column 'human' is not a number"),
        (b"score\thuman\n0.5\t\xff\n", "f.tsv:2: byte 5 of the line is not valid UTF-8 (0xff)"),
    ],
)
def test_a_bad_file_is_one_sentence_and_exit_code_2(tmp_path: Path, data: bytes, expected: str):
    (tmp_path / "f.tsv").write_bytes(data)
    done = doubtless("evaluate", "f.tsv", "--score", "score", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode() == f"doubtless: {expected}\n"
    assert done.stdout == b""


def test_a_bad_file_leaves_no_output_behind(tmp_path: Path):
    (tmp_path / "f.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    done = doubtless("calibrate", "f.parquet", "--score", "score", "-o", "c.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"doubtless: f.parquet: the Parquet file is damaged")
    assert done.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"]])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, options: list[str]):
    data = b'{"score": 0.5, "human": 1}\n{"score": 0.5, "human": "x"}\n'
    done = doubtless("evaluate", "-", "--score", "score", *options, cwd=tmp_path, input=data)
    expected = b"doubtless: standard input:2: 'human' is text, but a number in the rows before\n"
    assert (done.returncode, done.stderr) == (2, expected)
