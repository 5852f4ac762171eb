"""The promises on real data: run by ``make check-data``, skipped where the data sets are not at hand."""

from __future__ import annotations

import pytest

from doubtless.columns import ForecastColumns
from doubtless.conformal.evaluate import Evaluation
from doubtless.reproduce import Options, find
from doubtless.segments import read

pytestmark = pytest.mark.data

ENSEMBLE = ForecastColumns(samples=("ens3", "ens7", "ens89", "ens891"))


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3])
def test_intervals_of_the_ensemble_hold_overall_and_in_every_language_pair(data, alpha):
    table = read(data / "wmt20_comet.parquet").where("not mt_is_ref")
    figures = Evaluation(alpha, splits=20).run(
        ENSEMBLE.read(table), table.numbers("da_z"), groups=table.labels(["lp"])
    )
    methods = figures["methods"]
    assert methods["conformal"]["coverage"] == pytest.approx(1 - alpha, abs=0.005)
    assert methods["raw"]["coverage"] < 0.45
    assert len(figures["groups"]) == 7
    for group in figures["groups"].values():
        assert group["grouped"] == pytest.approx(1 - alpha, abs=0.02)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3])
def test_intervals_of_dropout_hold_too(data, alpha):
    table = read(data / "wmt20_comet.parquet").where("not mt_is_ref and mcd is not null")
    forecast = ForecastColumns(samples=("mcd",)).read(table)
    figures = Evaluation(alpha, splits=20).run(forecast, table.numbers("da_z"), groups=table.labels(["lp"]))
    assert figures["methods"]["conformal"]["coverage"] == pytest.approx(1 - alpha, abs=0.01)
    assert figures["methods"]["raw"]["coverage"] < 0.6
    for group in figures["groups"].values():
        assert group["grouped"] == pytest.approx(1 - alpha, abs=0.02)


def test_coverage_of_table_1_is_as_promised(data):
    rows = find("conformal-table1").run(str(data), Options(splits=20))
    assert {(row["quantifier"], row["set"]) for row in rows} == {
        (q, s) for q in ("MCD", "DE") for s in ("wmt20", "qt21-hter")
    }
    for row in rows:
        assert row["conformal"] == pytest.approx(0.9, abs=0.01)
        assert row["raw"] < 0.7


@pytest.mark.parametrize(
    "name", ["conformal-table2", "conformal-table3", "conformal-figure7", "conformal-figure8"]
)
def test_every_study_runs_and_stands_beside_the_paper(data, name):
    rows = find(name).run(str(data), Options(splits=2))
    assert rows
    ours = {key for key in rows[0] if f"paper_{key}" in rows[0]}
    assert ours
    assert all(row[key] is not None for row in rows for key in ours)
