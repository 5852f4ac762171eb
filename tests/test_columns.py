from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from doubtless import ErrorEstimate, Gaussian, InputError, Quantiles, Samples, WarpedGaussian
from doubtless.columns import ForecastColumns, attribute
from doubtless.segments import as_table

FRAME = pl.DataFrame(
    {
        "src": ["one two three", "一二三四", ""],
        "s": [0.1, 0.2, 0.3],
        "sd": [0.1, 0.2, 0.3],
        "low": [0.0, 0.1, 0.4],
        "high": [0.5, 0.4, 0.6],
        "list": [[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]],
        "text": ["[1, 2]", "[3, 5]", "[0, 0]"],
    }
)


@pytest.mark.parametrize(
    ("columns", "family"),
    [
        ({"score": "s"}, ErrorEstimate),
        ({"score": "s", "error": "sd"}, ErrorEstimate),
        ({"score": "s", "sd": "sd"}, Gaussian),
        ({"score": "s", "sd": "sd", "warp": "log"}, WarpedGaussian),
        ({"samples": ("list",)}, Samples),
        ({"samples": ("text",)}, Samples),
        ({"samples": ("s", "sd")}, Samples),
        ({"score": "s", "samples": ("list",)}, Gaussian),
        ({"lower": "low", "upper": "high"}, Quantiles),
        ({"score": "s", "lower": "low", "upper": "high"}, Quantiles),
    ],
)
def test_the_columns_decide_the_family_and_survive_a_file(columns, family):
    made = ForecastColumns(**columns)
    forecast = made.read(FRAME)
    assert type(forecast) is family
    again = ForecastColumns.from_json(made.as_json())
    assert again == made
    np.testing.assert_array_equal(again.read(FRAME).score, forecast.score)


def test_lists_and_columns_of_samples_agree():
    by_list = ForecastColumns(samples=("list",)).read(FRAME)
    by_text = ForecastColumns(samples=("text",)).read(FRAME)
    assert by_list.score.tolist() == by_text.score.tolist() == [1.5, 4.0, 0.0]
    assert by_list.sd.tolist() == [0.5, 1.0, 0.0]


def test_an_interval_has_the_level_asked_for_or_its_own():
    forecast = ForecastColumns(score="s", lower="low", upper="high").read(FRAME, alpha=0.2)
    assert forecast.levels == (0.1, 0.5, 0.9)
    assert forecast.crossings == 1
    own = ForecastColumns(score="s", lower="low", upper="high", level=0.5).read(FRAME, alpha=0.2)
    assert own.levels == (0.25, 0.5, 0.75)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "a forecast needs a score column, or samples, or lower and upper"),
        ({"sd": "sd"}, "a forecast needs a score column, or samples, or lower and upper"),
        ({"score": "s", "lower": "low"}, "lower and upper go together"),
        (
            {"score": "s", "sd": "sd", "error": "sd"},
            "samples, sd, lower and upper, and error exclude each other.*",
        ),
        ({"score": "s", "sd": "sd", "warp": "cube"}, "unknown warping 'cube', expected log"),
        ({"score": "s", "warp": "log"}, "a warping needs sd"),
        ({"score": "s", "floor": 0.0}, "floor must be positive and finite, found 0.0"),
        ({"score": "s", "level": 0.9}, "a level needs lower and upper"),
        ({"lower": "low", "upper": "high", "level": 90.0}, "level must lie between 0 and 1, found 90.0"),
    ],
)
def test_columns_that_make_no_forecast_are_refused(columns, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        ForecastColumns(**columns)


def test_a_negative_standard_deviation_is_named_with_its_row():
    bad = FRAME.with_columns(sd=pl.Series([0.1, -0.2, 0.3]))
    with pytest.raises(
        InputError, match="^the data, row 2: column 'sd' is -0.2, expected no negative number$"
    ):
        ForecastColumns(score="s", sd="sd").read(bad)


def test_attributes_are_columns_or_computed():
    table = as_table(FRAME)
    forecast = ForecastColumns(score="s", sd="sd").read(table)
    assert attribute(table, forecast, "@source-length", 0.1).tolist() == [3, 4, 0]
    assert attribute(table, forecast, "@score", 0.1).tolist() == [0.1, 0.2, 0.3]
    assert attribute(table, forecast, "low", 0.1).tolist() == [0.0, 0.1, 0.4]
    np.testing.assert_allclose(
        attribute(table, forecast, "@uncertainty", 0.1), 1.6448536 * FRAME["sd"].to_numpy()
    )
    with pytest.raises(InputError, match="^'@colour' is not known"):
        attribute(table, forecast, "@colour", 0.1)
