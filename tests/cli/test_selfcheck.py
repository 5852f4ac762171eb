from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError


@pytest.fixture(scope="module")
def golden(shipped, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("golden") / "golden.tsv")
    assert main(["selfcheck", "--model", shipped, "--golden", path, "--record"]) == 0
    return path


def test_what_was_recorded_is_found_again(shipped, golden, capsys):
    assert pl.read_csv(golden, separator="\t").columns == ["src", "mt", "lp", "score", "error"]
    assert main(["selfcheck", "--model", shipped, "--golden", golden, "--tolerance", "1e-5"]) == 0
    out = capsys.readouterr().out
    assert "as recorded: 84 segments" in out
    assert "segments a second" in out


def test_drift_is_exit_code_1(shipped, golden, tmp_path, capsys):
    frame = pl.read_csv(golden, separator="\t")
    moved = str(tmp_path / "moved.tsv")
    frame.with_columns(pl.col("score") + 0.5).write_csv(moved, separator="\t")
    assert main(["selfcheck", "--model", shipped, "--golden", moved, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["drift"]["score"] == pytest.approx(0.5, abs=1e-4)
    assert found["drift"]["error"] < 1e-5
    assert {"doubtless", "python", "numpy", "onnxruntime"} == set(found["versions"])
    assert found["cpu_ms_per_segment"] > 0
    assert found["resident_mb"] > 1


def test_another_model_does_not_overwrite_the_bundled_scores(shipped):
    with pytest.raises(DoubtlessError, match="--golden FILE"):
        main(["selfcheck", "--model", shipped, "--record"])


def test_models_lists_what_there_is(shipped, monkeypatch, capsys):
    monkeypatch.setattr("doubtless.bundled.folder", lambda: Path(shipped))
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "whole" in out
    assert "de-en zh-en" in out
    assert "OWNER/NAME" in out
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bundled"]["alphas"] == [0.1, 0.2]


def test_models_says_that_there_is_none(monkeypatch, capsys):
    from doubtless.errors import InputError

    def nothing():
        raise InputError("no model comes with this installation: name one")

    monkeypatch.setattr("doubtless.bundled.folder", nothing)
    assert main(["models"]) == 0
    assert "No model comes with this installation." in capsys.readouterr().out
