from __future__ import annotations

import numpy as np
import pytest

from doubtless.cli.look import Look
from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import CalibrationPlan
from doubtless.conformal.store import Reading
from doubtless.neural.config import ModelConfig
from doubtless.segments import as_table

Z, HTER = ModelConfig(), ModelConfig(scale="hter", direction="lower")


def calibration(by=(), **options):
    rng = np.random.default_rng(0)
    human = rng.normal(size=200)
    rows = [
        {"lp": f"{'ab'[i % 2]}-en", "score": y + rng.normal(0, 0.3), "error": 0.3, "human": y}
        for i, y in enumerate(human)
    ]
    reading = Reading(ForecastColumns(score="score", error="error"), by=by)
    return CalibrationPlan(alpha=0.1, **options).calibrate(as_table(rows), reading), as_table(rows)


@pytest.mark.parametrize("by", [(), ("lp",)])
@pytest.mark.parametrize("config", [Z, HTER])
def test_a_fifth_of_the_calibration_rows_would_be_looked_at(by, config):
    made, table = calibration(by)
    look = Look.of(config, made, None)
    intervals = made.intervals(table, made.forecast(table))
    ends = intervals.lower if look.higher else intervals.upper
    assert look.rows(ends, [""] * 200).mean() == pytest.approx(0.2, abs=0.01)
    colours = [look.colour(x) for x in table.numbers("score")]
    assert colours.count("red") == pytest.approx(40, abs=1)
    assert colours.count("green") == pytest.approx(100, abs=1)
    worst = np.argmin(table.numbers("score")) if look.higher else np.argmax(table.numbers("score"))
    assert colours[worst] == "red"


def test_flags_of_the_text_count_and_flags_of_the_interval_do_not():
    look = Look.of(Z, None, -5.0)
    flags = ["", "copy", "unseen-group", "truncated unseen-group"]
    assert look.rows(np.zeros(4), flags).tolist() == [False, True, False, True]
    assert look.rule(True) == "flagged, or lower end below -5.00"
    assert look.rule(False) == "flagged, or score below -5.00"


def test_without_a_calibration_the_scale_decides():
    assert Look.of(Z, None, None).threshold == -0.84
    unknown = Look.of(HTER, None, None)
    assert unknown.rule(False) == "flagged"
    assert unknown.colour(0.5) == ""
    assert not unknown.rows(np.array([0.9]), [""]).any()


def test_an_interval_without_a_worse_end_says_nothing():
    assert Look.of(Z, calibration(side="upper")[0], None).threshold is None
    assert Look.of(Z, calibration(side="lower")[0], None).threshold is not None
    assert Look.of(Z, calibration(method="ece")[0], None).threshold is None
