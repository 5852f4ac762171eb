from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from doubtless.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FORECASTS = str(EXAMPLES / "forecasts.tsv")
SAMPLES = "chrf2,chrf4,chrf6,chrfpp,ter100"


def doubtless(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "doubtless.cli.main", *arguments]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, input=stdin, env=environment, check=False)


@pytest.fixture
def calibration(tmp_path):
    path = str(tmp_path / "calibration.json")
    arguments = [
        "--samples",
        SAMPLES,
        "--where",
        "split = 'calibration'",
        "--range",
        "0,100",
        "--alpha",
        "0.2",
    ]
    assert main(["calibrate", FORECASTS, *arguments, "--distribution", "-o", path]) == 0
    return path


def test_evaluate_prints_one_json_object(capsys):
    arguments = ["--samples", SAMPLES, "--human", "human", "--alpha", "0.1", "--by", "lp", "--splits", "5"]
    assert main(["evaluate", FORECASTS, *arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    for name in ("n", "alpha", "pearson", "spearman", "kendall", "mae", "ups"):
        assert name in figures
    for method in ("raw", "ece", "conformal"):
        assert {"coverage", "width"} <= figures["methods"][method].keys()
    assert "q" in figures["methods"]["conformal"]
    assert set(figures["groups"]) == {"en-de", "es-en", "zh-en"}
    assert {"n", "raw", "conformal", "grouped"} <= figures["groups"]["en-de"].keys()


def test_evaluate_prints_tables_for_people(capsys):
    assert (
        main(
            ["evaluate", FORECASTS, "--samples", SAMPLES, "--by", "lp", "--bins", "@score", "--alpha", "0.3"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "Promised coverage: 0.700" in out
    assert "Coverage by lp" in out
    assert "Coverage by @score" in out


def test_a_score_alone_can_be_evaluated(capsys):
    assert main(["evaluate", FORECASTS, "--score", "chrf6", "--alpha", "0.2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures["methods"]) == {"conformal"}
    assert figures["ups"] is None


def test_apply_writes_a_table_that_can_be_read_again(tmp_path, calibration, capsys):
    out = tmp_path / "out.parquet"
    assert (
        main(["apply", calibration, FORECASTS, "--where", "split = 'new'", "--below", "50", "-o", str(out)])
        == 0
    )
    frame = pl.read_parquet(out)
    assert frame.height == 28
    assert {"src", "mt", "human", "score", "lower", "upper", "flags", "chance_below_50"} <= set(frame.columns)
    assert ((frame["lower"] >= 0) & (frame["upper"] <= 100)).all()
    assert pl.read_parquet_metadata(out)["doubtless.signature"] == "kind:split|alpha:0.2|n:56|version:0.1.0"
    assert capsys.readouterr().out == ""


def test_apply_prints_tsv_into_a_pipe_and_a_drawing_for_people(calibration):
    piped = doubtless("apply", calibration, FORECASTS, "--where", "split = 'new'")
    assert piped.returncode == 0
    header, *rows = piped.stdout.decode().splitlines()
    assert header.split("\t")[-4:] == ["score", "lower", "upper", "flags"]
    assert len(rows) == 28
    drawn = doubtless(
        "apply",
        calibration,
        FORECASTS,
        "--where",
        "split = 'new'",
        "--human",
        "human",
        "--pretty",
        "--rows",
        "5",
    )
    text = drawn.stdout.decode()
    assert "├" in text
    assert "◆" in text
    assert "… and 23 more rows" in text
    assert "80% intervals" in text


def test_apply_warns_of_rows_it_was_calibrated_on(calibration):
    done = doubtless("apply", calibration, FORECASTS, "--json")
    figures = json.loads(done.stdout)
    assert "56 of 84 rows took part in the calibration" in figures["warnings"][0]
    assert b"doubtless: warning: 56 of 84 rows took part" in done.stderr


def test_a_table_can_come_from_standard_input(calibration):
    done = doubtless("apply", calibration, "-", "--json", stdin=Path(FORECASTS).read_bytes())
    assert json.loads(done.stdout)["n"] == 84


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frobnicate"], "there is no verb 'frobnicate' (doubtless --help lists them)"),
        (["evalute"], "there is no verb 'evalute', did you mean 'evaluate'? (doubtless --help lists them)"),
        (["evaluate", "missing.tsv", "--score", "x"], "missing.tsv: there is no such file"),
        (
            ["evaluate", FORECASTS, "--score", "chrf6", "--human", "lp"],
            f"{FORECASTS}:2: 'en-de' in column 'lp' is not a number",
        ),
        (
            ["evaluate", FORECASTS, "--score", "chrf6", "--range", "5"],
            "a range is two numbers LOW,HIGH, found '5'",
        ),
        (
            ["evaluate", FORECASTS, "--score", "chrf6", "--quotes", "maybe"],
            "quotes is csv or none, found 'maybe'",
        ),
        (["evaluate", FORECASTS], "a forecast needs a score column, or samples, or lower and upper"),
        (["reproduce", "nothing"], "nothing is called 'nothing', expected one of: bundled-scores,"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, sentence):
    done = doubtless(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"doubtless: {sentence}")


def test_nothing_is_written_when_something_is_wrong(tmp_path, calibration):
    out = tmp_path / "out.tsv"
    out.write_text("old")
    done = doubtless(
        "apply", calibration, FORECASTS, "--prefix", "", "--below", "50", "--human", "mt", "-o", str(out)
    )
    assert done.returncode == 2
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calibration.json", "out.tsv"]


def test_mistaken_options_are_one_sentence_too():
    done = doubtless("evaluate", FORECASTS, "--frobnicate")
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("doubtless: no such option: --frobnicate")


def test_a_table_whose_score_column_is_called_score_can_be_drawn(tmp_path):
    table = tmp_path / "t.tsv"
    table.write_text(
        "score\tsd\thuman\n" + "".join(f"{i / 9}\t0.{1 + i % 3}\t{i / 9 + 0.1}\n" for i in range(20))
    )
    cal = str(tmp_path / "c.json")
    assert doubtless("calibrate", str(table), "--score", "score", "--sd", "sd", "-o", cal).returncode == 0
    drawn = doubtless("apply", cal, str(table), "--pretty")
    assert drawn.returncode == 0
    assert "├" in drawn.stdout.decode()


def test_help_of_a_verb_comes_in_two_ways(capsys):
    assert main(["help", "apply"]) == 0
    one = capsys.readouterr().out
    assert main(["apply", "--help"]) == 0
    assert capsys.readouterr().out == one
    assert "Add intervals to new forecasts" in one


def test_standard_output_can_be_named(calibration):
    done = doubtless("apply", calibration, FORECASTS, "-o", "-")
    assert done.stdout.startswith(b"lp\t")
    done = doubtless("calibrate", FORECASTS, "--score", "chrf6", "-o", "-")
    assert json.loads(done.stdout)["format"] == "doubtless calibration"


def test_a_reader_that_goes_away_is_no_error(calibration):
    command = f"{sys.executable} -m doubtless.cli.main apply {calibration} {FORECASTS} | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.stdout.startswith(b"lp\t")


def test_reproduce_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("DOUBTLESS_DATA", raising=False)
    done = doubtless("reproduce", "conformal-table1")
    assert done.returncode == 2
    assert b"give its directory by --data or in DOUBTLESS_DATA" in done.stderr
    done = doubtless("reproduce", "conformal-table1", "--data", str(tmp_path))
    assert b"there is no such file" in done.stderr


def test_reproduce_lists_what_there_is(capsys):
    assert main(["reproduce"]) == 0
    assert "conformal-table3" in capsys.readouterr().out


def test_help_and_version(capsys):
    assert main([]) == 0
    assert "Usage: doubtless VERB" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("doubtless 0.")


@pytest.mark.parametrize("name", ["[/b]", "[red]x[/red]", "[bold"])
def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path, name, capsys):
    table, cal = tmp_path / "t.tsv", str(tmp_path / "c.json")
    rows = [f"{name}\t{name}\tx\t{i / 9}\t{i / 8}" for i in range(20)]
    table.write_text("\n".join(["lp\tsystem\tmt\ts\thuman", *rows, ""]))
    assert main(["calibrate", str(table), "--score", "s", "--by", "lp", "-o", cal]) == 0
    assert main(["evaluate", str(table), "--score", "s", "--by", "lp", "--alpha", "0.2"]) == 0
    assert main(["apply", cal, str(table), "--pretty"]) == 0
    assert capsys.readouterr().out.count(name) >= 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--alpha", "nan"], "alpha must lie between 0 and 1, found nan"),
        (["--seed", "-1"], "--seed"),
        (["--floor", "inf"], "floor must be positive and finite, found inf"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments, sentence):
    done = doubtless("evaluate", FORECASTS, "--score", "chrf6", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1


def test_one_row_cannot_be_split(tmp_path):
    table = tmp_path / "t.tsv"
    table.write_text("s\tsd\thuman\n1\t1\t1\n")
    done = doubtless("evaluate", str(table), "--score", "s", "--sd", "sd")
    assert done.stderr.decode() == "doubtless: 1 rows are too few to split into calibration and test rows\n"
