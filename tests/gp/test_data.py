"""Promises on real data: run by ``make check-data``, skipped where the data sets are not at hand."""

from __future__ import annotations

import json

import pytest

from doubtless.cli.main import main
from doubtless.reproduce import Options, find

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("human", "model"),
    [
        ("z_mean", ["--warp", "tanh2"]),
        ("hter", ["--warp", "none"]),
    ],
)
def test_from_raw_text_to_intervals_that_hold(data, tmp_path, capsys, human, model):
    """Romanian to English: fitted on 1,000 rated segments, calibrated on 1,000, tried on 1,000 more."""
    table, folder = str(data / "mlqe_pe.parquet"), str(tmp_path / "model")
    corpus = ["--corpus", str(data / "parallel_text.parquet"), "--corpus-where", "lp = 'ro-en'"]
    pair = "lp = 'ro-en' and split ="
    rows = ["--where", f"{pair} 'train' and cast(id as int) < 1000", "--human", human]
    assert main(["gp", "fit", table, *rows, *corpus, *model, "-o", folder]) == 0
    for part in ("dev", "test20"):
        out = str(tmp_path / f"{part}.parquet")
        assert main(["gp", "score", table, "--where", f"{pair} '{part}'", "-m", folder, "-o", out]) == 0
    forecast = ["--score", "score", "--lower", "q0.05", "--upper", "q0.95", "--level", "0.9"]
    calibration = str(tmp_path / "calibration.json")
    dev, test = (str(tmp_path / f"{part}.parquet") for part in ("dev", "test20"))
    assert main(["calibrate", dev, *forecast, "--human", human, "-o", calibration]) == 0
    capsys.readouterr()
    assert main(["apply", calibration, test, "--human", human, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coverage"] == pytest.approx(0.9, abs=0.03)
    assert main(["evaluate", test, *forecast, "--human", human, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["pearson"] > 0.6
    assert figures["methods"]["conformal"]["coverage"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("name", ["gp-table1", "gp-table2"])
def test_a_model_of_the_tables_stands_beside_the_paper(data, name):
    (row,) = find(name).run(str(data), Options(sets=("wmt14_en-es",), models=("log-mat52",)))
    ours = {key for key in row if f"paper_{key}" in row}
    assert len(ours) == 4
    assert row["folds"] == 10
    for key in ours:
        assert row[key] == pytest.approx(row[f"paper_{key}"], rel=0.05), key
