from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError


def test_score_calibrate_and_score_again(models, table, tmp_path, capsys):
    model, out, calibration = str(models / "exits"), str(tmp_path / "out.tsv"), str(tmp_path / "c.json")
    assert main(["score", table, "--model", model, "-o", out]) == 0
    frame = pl.read_csv(out, separator="\t")
    assert frame.columns == ["src", "mt", "human", "score", "error", "layer", "flags"]
    assert (frame["layer"] == 3).all()
    assert frame["flags"].to_list()[-2:] == ["copy", "empty"]
    assert (
        main(["calibrate", out, "--score", "score", "--error", "error", "--alpha", "0.2", "-o", calibration])
        == 0
    )
    again = str(tmp_path / "again.parquet")
    assert (
        main(["score", table, "--model", model, "--calibration", calibration, "--exit", "9", "-o", again])
        == 0
    )
    scored = pl.read_parquet(again)
    assert {"lower", "upper", "layer"} <= set(scored.columns)
    assert (scored["layer"] == 1).all()
    assert scored["flags"].to_list()[-2:] == ["copy", "empty"]
    signature = pl.read_parquet_metadata(again)["doubtless.signature"]
    assert "model:exits|weights:" in signature
    assert "exit:9" in signature
    assert "alpha:0.2" in signature
    capsys.readouterr()


def test_parallel_text_is_scored_for_every_system(models, tmp_path, capsys):
    for name, lines in {"s": "Katze\nHund\n", "a": "cat\ndog\n", "b": "cow\nhen\n"}.items():
        (tmp_path / name).write_text(lines)
    paths = {name: str(tmp_path / name) for name in "sab"}
    arguments = ["-s", paths["s"], "-t", paths["a"], "-t", paths["b"], "--model", str(models / "plain")]
    assert main(["score", *arguments]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split("\t") == ["src", "mt", "system", "seg", "score", "flags"]
    assert len(out) == 5


@pytest.mark.parametrize("uncertainty", ["mcd:3", "bt", "dup"])
def test_uncertainties_become_columns(models, table, uncertainty, capsys):
    extra = ["--error-model", str(models / "errors")] if uncertainty == "dup" else []
    assert main(["score", table, "--model", str(models / "plain"), "--uncertainty", uncertainty, *extra]) == 0
    header = capsys.readouterr().out.splitlines()[0].split("\t")
    assert header[-3:] == ["score", "sd" if uncertainty == "mcd:3" else "error", "flags"]


def test_an_ensemble_is_several_models(models, table, capsys):
    assert main(["score", table, "-m", str(models / "plain"), "-m", str(models / "tags"), "--json"]) == 0
    assert "uncertainty:ensemble" in json.loads(capsys.readouterr().out)["signature"]


def test_spans_are_a_column_of_lists(models, table, tmp_path):
    out = str(tmp_path / "out.jsonl")
    assert main(["score", table, "--model", str(models / "tags"), "--spans", "-o", out]) == 0
    rows = [json.loads(line) for line in Path(out).read_text(encoding="utf-8").splitlines()]
    found = [span for row in rows for span in row["spans"] or []]
    assert all(row["mt"][s["start"] : s["end"]] == s["text"] for row in rows for s in row["spans"] or [])
    assert all(span["severity"] == "BAD" for span in found)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "nowhere"], "nowhere: there is no such folder"),
        (["--model", "PLAIN", "--exit", "0.1"], "the model has no exits before its last layer"),
        (
            ["--model", "PLAIN", "--exit", "soon"],
            "an exit is TOLERANCE, constant:LAYER or variance:THRESHOLD",
        ),
        (["--model", "PLAIN", "--uncertainty", "instant"], "the model gives score, which is no 'instant'"),
        (["--model", "PLAIN", "--spans"], "nothing marks errors here: --spans needs"),
        (["--model", "PLAIN", "--device", "nonsense"], "device 'nonsense' cannot be used"),
    ],
)
def test_what_cannot_be_done_is_said(models, table, arguments, sentence):
    arguments = [str(models / "plain") if word == "PLAIN" else word for word in arguments]
    with pytest.raises(DoubtlessError, match=sentence):
        main(["score", table, *arguments])


def test_a_score_column_is_not_overwritten(models, tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("src\tmt\tscore\na\tb\t1\n")
    with pytest.raises(DoubtlessError, match="there is a column 'score' already"):
        main(["score", str(path), "--model", str(models / "plain")])


def test_every_member_of_an_ensemble_gets_the_texts_it_uses(models, tmp_path, capsys):
    path = tmp_path / "t.tsv"
    path.write_text("src\tmt\tref\nKatze\tcat\tthe cat\nHund\tdog\ta dog\n")
    scores = []
    for order in (["plain", "unite"], ["unite", "plain"]):
        named = [word for name in order for word in ("-m", str(models / name))]
        assert main(["score", str(path), *named]) == 0
        scores.append([line.split("\t")[3] for line in capsys.readouterr().out.splitlines()[1:]])
    assert [float(a) for a in scores[0]] == pytest.approx([float(b) for b in scores[1]], abs=1e-7)


def test_a_calibration_of_quantiles_needs_no_score_column(models, table, tmp_path):
    out, cal = str(tmp_path / "q.tsv"), str(tmp_path / "c.json")
    assert main(["score", table, "--model", str(models / "quantile"), "-o", out]) == 0
    assert main(["calibrate", out, "--lower", "q0.05", "--upper", "q0.95", "--alpha", "0.2", "-o", cal]) == 0
    again = str(tmp_path / "again.tsv")
    assert main(["score", table, "--model", str(models / "quantile"), "--calibration", cal, "-o", again]) == 0
    assert {"lower", "upper", "score"} <= set(pl.read_csv(again, separator="\t").columns)


def test_an_unknown_ending_is_refused_before_anything_is_scored(models, table):
    with pytest.raises(DoubtlessError, match="unknown ending"):
        main(["score", table, "--model", "nowhere", "-o", "out.xyz"])


def test_a_model_of_errors_means_dup(models, table, capsys):
    assert (
        main(
            [
                "score",
                table,
                "--model",
                str(models / "plain"),
                "--error-model",
                str(models / "errors"),
                "--json",
            ]
        )
        == 0
    )
    assert "uncertainty:dup" in json.loads(capsys.readouterr().out)["signature"]
