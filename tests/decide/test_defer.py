"""Rules against closed forms, spending against brute force, the simulation against a plain loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from doubtless.conformal.predictive import PredictiveDistribution
from doubtless.decide.budget import Price, allowance, spend, word_counts
from doubtless.decide.defer import RULES, Case, chance_of_bad, expected_loss, reason, urgency
from doubtless.decide.losses import Loss
from doubtless.decide.simulate import Setting, curves
from doubtless.errors import InputError, UndefinedError
from doubtless.forecast import ErrorEstimate, Gaussian, Quantiles, Samples

SHARES = (0.0, 0.25, 0.5, 1.0)


@pytest.fixture
def forecast() -> Gaussian:
    rng = np.random.default_rng(0)
    return Gaussian(rng.normal(size=50), rng.uniform(0.2, 2, size=50))


def test_rules_order_by_what_they_say(forecast):
    human = np.random.default_rng(1).normal(size=50)
    case = Case(forecast, human=human, threshold=-0.3)
    first = {rule: int(urgency(rule, case).argmax()) for rule in RULES}
    assert first["confidence"] == first["width"] == first["loss"] == forecast.sd.argmax()
    assert first["score"] == forecast.mean.argmin()
    assert first["oracle-score"] == human.argmin()
    assert first["oracle-error"] == np.abs(human - forecast.mean).argmax()
    assert first["chance"] == ((-0.3 - forecast.mean) / forecast.sd).argmax()


def test_lower_scores_may_be_the_better_ones(forecast):
    case = Case(forecast, threshold=0.5, higher=False)
    assert urgency("score", case).argmax() == forecast.mean.argmax()
    np.testing.assert_allclose(chance_of_bad(case), stats.norm.sf(0.5, forecast.mean, forecast.sd), atol=1e-6)
    assert reason("score", case, 1.25) == "score 1.25"


def test_the_chance_of_a_bad_score_is_the_normal_one(forecast):
    found = chance_of_bad(Case(forecast, threshold=0.4))
    np.testing.assert_allclose(found, stats.norm.cdf(0.4, forecast.mean, forecast.sd), atol=1e-6)
    quantiles = Quantiles((0.05, 0.5, 0.95), np.array([[-1.0, 0.0, 3.0]]))
    assert chance_of_bad(Case(quantiles, threshold=-1.0))[0] == pytest.approx(0.05, abs=1e-6)
    samples = Samples([[0.0, 1.0, 2.0, 3.0]])
    assert chance_of_bad(Case(samples, threshold=2.5, assume="samples"))[0] == 0.75


def test_a_calibration_says_the_chance_and_the_loss():
    rng = np.random.default_rng(2)
    forecast = Gaussian(rng.normal(size=400), np.ones(400))
    human = forecast.mean + rng.exponential(size=400) - 1
    known = PredictiveDistribution.fit(forecast, human)
    case = Case(forecast[:5], threshold=0.0, distribution=known, loss=Loss("al", 3, "over"))
    np.testing.assert_array_equal(urgency("chance", case), known.chance_below(forecast[:5], 0.0))
    residual = human - forecast.mean
    by_hand = np.where(residual < 0, -3 * residual, residual).mean()
    np.testing.assert_allclose(expected_loss(case), by_hand)


@pytest.mark.parametrize("costly", ["under", "over"])
def test_the_expected_loss_is_that_of_a_normal_error(costly):
    forecast = ErrorEstimate([0.1, 5.0], [0.5, 2.0])
    sd = np.array([0.5, 2.0]) * np.sqrt(np.pi / 2)
    linear = expected_loss(Case(forecast, loss=Loss("al", 4, costly)))
    np.testing.assert_allclose(linear, 2.5 * np.array([0.5, 2.0]), rtol=1e-6)
    square = expected_loss(Case(forecast, loss=Loss("aq", 4, costly)))
    np.testing.assert_allclose(square, 2.5 * sd**2, rtol=1e-6)


@pytest.mark.parametrize(("costly", "sign"), [("under", 1), ("over", -1)])
@pytest.mark.parametrize("w", [1e-3, 0.7, 12.0, 30.0])
def test_the_expected_linex_loss_is_the_closed_form_of_a_normal_error(costly, sign, w):
    """``E[exp(cX)]`` is ``exp(c mean + c^2 variance / 2)``, most of it c standard deviations out."""
    sd = np.array([0.1, 0.5, 1.0])
    found = expected_loss(Case(Gaussian([4.0, 0.0, -7.0], sd), loss=Loss("linex", w, costly)))
    np.testing.assert_allclose(found, np.expm1(w**2 * sd**2 / 2), rtol=1e-6)
    # A score that is not the mean: the median of a distribution with two widths, against brute force.
    quantiles = Quantiles((0.25, 0.5, 0.75), np.array([[-0.1, 0.0, 0.5]]))
    z = np.linspace(-60, 60, 100_001)
    x = sign * w * np.where(z < 0, 0.1, 0.5) * z / stats.norm.ppf(0.75)
    by_hand = np.trapezoid(np.exp(x + stats.norm.logpdf(z)) - (x + 1) * stats.norm.pdf(z), z)
    found = expected_loss(Case(quantiles, loss=Loss("linex", w, costly)))
    assert found[0] == pytest.approx(by_hand, rel=1e-4)


def test_an_expected_loss_beyond_numbers_is_refused():
    case = Case(Gaussian([0.0, 0.0], [1.0, 9.0]), loss=Loss("linex", 12.0))
    with pytest.raises(UndefinedError, match="the expected loss of row 2 is infinite or too large"):
        urgency("loss", case)
    assert np.isfinite(urgency("loss", replace(case, bounds=(-5.0, 5.0)))).all()


def test_the_loss_is_per_unit_of_cost(forecast):
    cost = np.arange(1.0, 51.0)
    np.testing.assert_allclose(
        urgency("loss", Case(forecast, cost=cost)) * cost, urgency("loss", Case(forecast))
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [("chance", "needs a threshold"), ("oracle-error", "needs the human scores"), ("luck", "no rule 'luck'")],
)
def test_what_a_rule_misses_is_said(forecast, rule, said):
    with pytest.raises(InputError, match=said):
        urgency(rule, Case(forecast))


def test_the_random_rule_depends_on_the_seed_alone(forecast):
    one, same, other = (urgency("random", Case(forecast, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


amounts = st.lists(
    st.tuples(st.floats(0, 9), st.integers(1, 9), st.sampled_from("abc")), min_size=1, max_size=12
)


@given(amounts, st.floats(0, 60), st.booleans())
def test_spending_never_exceeds_the_budget_and_leaves_nothing_that_fits(rows, budget, grouped):
    wish, cost, strata = map(np.array, zip(*rows, strict=True))
    chosen = spend(wish, cost, budget, strata if grouped else None)
    spent = cost[chosen].sum()
    assert spent <= budget * (1 + 1e-9)
    assert not (cost[~chosen] <= budget - spent - 1e-9).any()


@given(amounts, st.floats(0, 60))
def test_spending_takes_the_most_urgent_first(rows, budget):
    wish, cost, _ = map(np.array, zip(*rows, strict=True))
    taken, left = set(), budget
    for row in sorted(range(len(wish)), key=lambda row: -wish[row]):
        if cost[row] <= left * (1 + 1e-12):
            taken.add(row)
            left -= cost[row]
    assert set(np.flatnonzero(spend(wish, cost, budget))) == taken


def test_with_equal_costs_no_other_choice_is_more_urgent():
    wish = np.random.default_rng(3).normal(size=8)
    chosen = spend(wish, np.ones(8), 3)
    assert wish[chosen].sum() == max(wish[list(rows)].sum() for rows in combinations(range(8), 3))


def test_every_group_gets_its_share():
    strata = np.repeat(["good", "bad"], [30, 70])
    wish = np.concatenate([np.zeros(30), np.ones(70)])
    chosen = spend(wish, np.ones(100), 20, strata)
    assert [chosen[strata == name].sum() for name in ("good", "bad")] == [6, 14]


def test_unknown_urgency_and_costs_are_refused():
    with pytest.raises(InputError, match="how urgent row 2 is"):
        spend([1.0, np.nan], [1, 1], 1)
    with pytest.raises(InputError, match="2 segments have 1 costs"):
        spend([1.0, 2.0], [1], 1)
    for text in ("x", "-1", "120%", "nan"):
        with pytest.raises(InputError, match="a budget is a number"):
            allowance(text, 10)
    for prices in ((0, 0), (-1, 2), (np.inf, 0)):
        with pytest.raises(InputError, match="prices are not negative"):
            Price(*prices)


def test_words_are_counted_in_any_script():
    counted = word_counts(["It's 5 %.", "", "東京は晴れ。", "ok 東京", None]).tolist()
    assert counted == [3, 0, 5, 3, 0]


def a_setting(seed: int = 0, segments: int = 30, systems: int = 5) -> Setting:
    rng = np.random.default_rng(seed)
    system, segment = np.repeat(np.arange(systems), segments), np.tile(np.arange(segments), systems)
    human = 0.1 * system + rng.normal(size=len(system))
    spread = rng.uniform(0.2, 2, len(system))
    forecast = Gaussian(human + spread * rng.normal(size=len(system)), spread)
    return Setting(Case(forecast, human=human), system, segment, rng.integers(1, 30, len(system)) * 1.0)


def test_curves_are_those_of_a_plain_loop():
    setting = a_setting()
    case, cost = setting.case, setting.cost
    rows = curves([setting], ["confidence", "oracle-error"], shares=SHARES, resamples=0)
    for row in rows:
        order = np.argsort(-urgency(row["rule"], case), kind="stable")
        mixed, spent = case.forecast.score.copy(), 0.0
        for place in order:
            spent += cost[place]
            if spent > row["share"] * cost.sum() + 1e-9:
                break
            mixed[place] = case.human[place]
        means = [[values[setting.system == s].mean() for s in range(5)] for values in (mixed, case.human)]
        assert row["spearman"] == pytest.approx(stats.spearmanr(*means).statistic)


@pytest.mark.parametrize("strata", ["systems", "documents"])
def test_strata_are_those_of_the_verb(strata):
    """With equal costs, exactly what is chosen there; small groups leave much to the most urgent of all."""
    setting = a_setting(4)
    groups = setting.system if strata == "systems" else setting.segment // 4
    setting = replace(setting, cost=np.ones(150), strata=groups)
    shares = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)
    for row in curves([setting], ["confidence", "score"], shares=shares, resamples=0):
        wish = urgency(row["rule"], setting.case)
        chosen = spend(wish, setting.cost, row["share"] * 150, groups)
        mixed = np.where(chosen, setting.case.human, setting.case.forecast.score)
        means = [[v[setting.system == s].mean() for s in range(5)] for v in (mixed, setting.case.human)]
        assert row["spearman"] == pytest.approx(stats.spearmanr(*means).statistic)


def test_one_stratum_is_none():
    setting = a_setting(5)
    rules = ["random", "confidence", "drawn"]
    plain, one = (
        curves([replace(setting, strata=strata)], rules, shares=SHARES, resamples=5)
        for strata in (None, np.zeros(150))
    )
    for a, b in zip(plain, one, strict=True):
        assert a == pytest.approx(b)


def test_a_resample_of_all_segments_once_is_the_data():
    setting = a_setting()
    from doubtless.decide import simulate

    twice = np.ones((2, len(setting.cost)))
    twice[1] *= 2
    wish = urgency("score", setting.case)
    means = simulate._deferred(setting, twice, wish, np.array(SHARES))
    np.testing.assert_allclose(means[0], means[1])


def test_people_alone_agree_with_themselves_and_intervals_hold_the_figure():
    settings = [a_setting(1), a_setting(2)]
    rows = curves(settings, ["random", "confidence", "drawn"], shares=(0.3, 1.0), resamples=15)
    for row in rows:
        assert row["lower"] <= row["upper"]
        if row["share"] == 1.0:
            assert row["spearman"] == row["lower"] == 1.0
        if row["rule"] != "random":
            assert row["gain_lower"] <= row["gain_upper"]
    assert rows == curves(settings, ["random", "confidence", "drawn"], shares=(0.3, 1.0), resamples=15)


def test_errors_that_are_known_are_worth_deferring():
    settings = [a_setting(seed, segments=60) for seed in range(20)]
    rows = curves(settings, ["random", "oracle-error"], shares=(0.2, 0.4), resamples=20)
    gains = [row["gain_lower"] for row in rows if row["rule"] == "oracle-error"]
    assert min(gains) > 0


def test_a_simulation_needs_systems_and_all_human_scores():
    setting = a_setting()
    with pytest.raises(InputError, match="at least two"):
        Setting(setting.case, np.zeros(150, dtype=int), setting.segment, setting.cost)
    with pytest.raises(InputError, match="human score of every row"):
        Setting(Case(setting.case.forecast), setting.system, setting.segment, setting.cost)
