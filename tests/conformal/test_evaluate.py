from __future__ import annotations

import numpy as np
import pytest
from simulate import Rows

from doubtless import ErrorEstimate, InputError, Samples
from doubtless.conformal.evaluate import AtAlpha, Evaluation


def rows(n=3_000, seed=0):
    return Rows.draw(np.random.default_rng(seed), n)


def test_figures_have_their_promised_names():
    r = rows(400)
    samples = Samples(np.stack([r.forecast.score - 0.1, r.forecast.score + 0.1 * r.x], axis=1))
    figures = Evaluation(0.1, splits=3).run(
        samples, r.human, groups=np.array(["a", "b"])[r.group], numbers=r.x
    )
    for name in ("n", "alpha", "pearson", "spearman", "kendall", "mae", "ups", "ece", "nlpd", "sharpness"):
        assert name in figures
    for method in ("raw", "ece", "conformal", "grouped", "binned"):
        assert {"coverage", "width"} <= figures["methods"][method].keys()
    assert figures["methods"]["conformal"]["q"] > 0
    assert {"n", "raw", "conformal", "grouped"} <= figures["groups"]["a"].keys()
    assert {"name", "n", "raw", "conformal", "binned"} <= figures["bins"][0].keys()


def test_coverage_is_as_promised_overall_and_within_groups_and_bins():
    r = rows()
    figures = Evaluation(0.1, splits=20).run(r.forecast, r.human, groups=r.group, numbers=r.x)
    assert figures["methods"]["conformal"]["coverage"] == pytest.approx(0.9, abs=0.01)
    one, other = figures["groups"]["0"], figures["groups"]["1"]
    assert abs(one["conformal"] - other["conformal"]) > 0.08
    assert one["grouped"] == pytest.approx(0.9, abs=0.02)
    assert other["grouped"] == pytest.approx(0.9, abs=0.02)
    last = figures["bins"][-1]
    assert last["conformal"] < 0.87
    assert last["binned"] == pytest.approx(0.9, abs=0.03)


def test_the_same_seed_gives_the_same_figures():
    r = rows(300)
    plan = Evaluation(0.2, splits=4, seed=7)
    assert plan.run(r.forecast, r.human, groups=r.group) == plan.run(r.forecast, r.human, groups=r.group)
    assert plan.run(r.forecast, r.human) != Evaluation(0.2, splits=4, seed=8).run(r.forecast, r.human)


@pytest.mark.parametrize("balanced", [False, True])
def test_splits_take_their_share_of_every_group(balanced):
    codes = np.repeat([0, 1, 2], [100, 40, 60])
    for calibration, test in Evaluation(splits=5, share=0.25, balanced=balanced)._draws(200, codes):
        assert not set(calibration) & set(test)
        expected = ([10, 10, 10], [30, 30, 30]) if balanced else ([25, 10, 15], [75, 30, 45])
        assert np.bincount(codes[calibration]).tolist() == expected[0]
        assert np.bincount(codes[test]).tolist() == expected[1]


def test_splits_without_groups_divide_all_rows():
    calibration, test = next(Evaluation(splits=1, share=0.3)._draws(10, None))
    assert sorted([*calibration, *test]) == list(range(10))
    assert len(calibration) == 3


def test_scores_without_uncertainty_have_no_raw_intervals():
    r = rows(200)
    forecast = ErrorEstimate(r.forecast.score, np.ones(200))
    figures = Evaluation(splits=2).run(forecast, r.human, uncertain=False)
    assert set(figures["methods"]) == {"conformal"}
    assert figures["ups"] is None


def test_a_group_too_small_for_alpha_is_unbounded_not_wrong():
    r = rows(100)
    groups = np.array(["many"] * 96 + ["few"] * 4)
    figures = Evaluation(0.1, splits=2).run(r.forecast, r.human, groups=groups)
    assert figures["groups"]["few"]["grouped"] == 1.0
    assert figures["methods"]["grouped"]["width"] == np.inf


def test_a_reduced_forecast_gives_the_same_spreads():
    forecast = Samples(np.random.default_rng(0).normal(size=(50, 4)))
    reduced = AtAlpha.of(forecast, 0.1)
    np.testing.assert_array_equal(reduced.spread(0.1)[0], forecast.spread(0.1)[0])
    np.testing.assert_array_equal(reduced[3:7].score, forecast.score[3:7])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"splits": 0}, "the number of splits must be positive, found 0"),
        ({"share": 1.0}, "the calibration share must lie between 0 and 1, found 1.0"),
        ({"alpha": 2}, "alpha must lie between 0 and 1, found 2"),
    ],
)
def test_wrong_options_are_refused(options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        Evaluation(**options)
