from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from doubtless.conformal.split import SplitConformal
from doubtless.decide.candidates import Pools, one_row_each
from doubtless.decide.race import TO_SD, Finish, Halving, Race, ahead, budget_of, run
from doubtless.decide.rerank import Choices, Method, Reranked, Trace, replay
from doubtless.errors import InputError
from doubtless.forecast import Gaussian
from doubtless.segments import as_table

EXITS = np.arange(1, 7)


def trace(seed=0, sources=5, most=9, coarse=False) -> Trace:
    """Scores that come closer to the last one, with doubts that are honest on average."""
    random = np.random.default_rng(seed)
    present = np.arange(most) < random.integers(1, most + 1, size=sources)[:, None]
    steps = random.normal(size=(sources, most, len(EXITS))) / np.sqrt(EXITS)
    score = np.cumsum(steps, axis=2)
    change = np.abs(score - score[:, :, -1:]) * random.uniform(0.3, 2, score.shape)
    if coarse:  # ties everywhere
        score, change = np.round(score), np.round(change)
    return Trace(EXITS, present, score, change)


def algorithm_2(score, change, budget, gamma, start):
    """The paper's pseudocode, one pull after the other, for one source."""
    n, depth = score.shape
    place = np.full(n, start)
    spent = n * start
    sigma = change * np.sqrt(np.pi / 2)
    remaining = [c for c in range(n) if start < depth]
    while spent + 1 <= budget and remaining:
        bounds = [score[c, place[c] - 1] + gamma * sigma[c, place[c] - 1] for c in remaining]
        pulled = remaining[int(np.argmax(bounds))]
        place[pulled] += 1
        spent += 1
        if place[pulled] == depth:
            remaining.remove(pulled)
    return place, int(np.argmax(score[np.arange(n), place - 1]))


@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.4, 1),
    gamma=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    start=st.integers(1, 2),
    coarse=st.booleans(),
)
def test_the_bandit_pulls_exactly_what_the_papers_algorithm_pulls(seed, share, gamma, start, coarse):
    recorded = trace(seed, coarse=coarse)
    method = Method("ucb-paper", budget=share, gamma=gamma, start=start)
    found = replay(recorded, method)
    for source, present in enumerate(recorded.present):
        score, change = recorded.score[source, present], recorded.change[source, present]
        budget = np.floor(share * len(score) * EXITS[-1] + 1e-9)
        place, chosen = algorithm_2(score, change, budget, gamma, start)
        assert found.spent[source] == place.sum() <= max(budget, start * len(score))
        assert found.chosen[source] == chosen
        assert found.finishing[source] == EXITS[-1] - place[chosen]


def levelled_algorithm_2(score, change, budget, gamma):
    """The same, with the mean step of those that went from one layer to the next expected of the others."""
    n, depth = score.shape
    place = np.ones(n, int)
    spent = n

    def expected():
        steps = [0.0] * depth
        for layer in range(1, depth):
            passed = [score[c, layer] - score[c, layer - 1] for c in range(n) if place[c] > layer]
            steps[layer] = np.mean(passed) if passed else 0.0
        return np.array([score[c, place[c] - 1] + sum(steps[place[c] : place.max()]) for c in range(n)])

    while spent + 1 <= budget and (place < depth).any():
        bounds = expected() + gamma * change[np.arange(n), place - 1] * np.sqrt(np.pi / 2)
        pulled = int(np.argmax(np.where(place < depth, bounds, -np.inf)))
        place[pulled] += 1
        spent += 1
    return place, int(np.argmax(expected()))


@given(seed=st.integers(0, 10_000), share=st.floats(0.2, 1), gamma=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_the_levelled_bandit_pulls_few_candidates_one_by_one(seed, share, gamma):
    recorded = trace(seed)
    found = replay(recorded, Method("ucb", budget=share, gamma=gamma))
    for source, present in enumerate(recorded.present):
        score, change = recorded.score[source, present], recorded.change[source, present]
        budget = np.floor(share * len(score) * EXITS[-1] + 1e-9)
        place, chosen = levelled_algorithm_2(score, change, budget, gamma)
        assert found.spent[source] == place.sum()
        assert found.chosen[source] == chosen
        assert found.finishing[source] == EXITS[-1] - place[chosen]


@given(seed=st.integers(0, 10_000), share=st.floats(0.2, 1), most=st.sampled_from([9, 40]))
@pytest.mark.parametrize("kind", ["ucb", "halving", "race"])
def test_what_moves_all_candidates_of_a_source_alike_changes_no_choice(seed, share, most, kind):
    recorded = trace(seed, most=most)
    movement = np.random.default_rng(seed).normal(size=(len(recorded.score), 1, len(EXITS)))
    moved = Trace(EXITS, recorded.present, recorded.score + movement, recorded.change)
    found, other = (replay(one, Method(kind, budget=share)) for one in (recorded, moved))
    np.testing.assert_array_equal(found.chosen, other.chosen)
    np.testing.assert_array_equal(found.spent, other.spent)


def test_without_levelling_what_moves_all_alike_is_taken_for_quality():
    # The second is better by a little at every layer; the first is pulled first, and rises with its layers.
    score = np.array([[[0.1, 1.1, 2.1, 3.1, 4.1, 5.1], [0.2, 1.2, 2.2, 3.2, 4.2, 5.2]]])
    change = np.array([[[0.5] * 6, [0.1] * 6]])
    recorded = Trace(EXITS, np.ones((1, 2), bool), score, change)
    assert replay(recorded, Method("ucb-paper", budget=0.5)).chosen.tolist() == [0]
    assert replay(recorded, Method("ucb", budget=0.5)).chosen.tolist() == [1]


@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.2, 1),
    kind=st.sampled_from(["ucb", "ucb-paper", "halving"]),
    most=st.sampled_from([9, 40]),
)
def test_no_budget_is_exceeded(seed, share, kind, most):
    recorded = trace(seed, most=most)
    found = replay(recorded, Method(kind, budget=share))
    assert (found.spent <= share * found.full + 1e-6).all()
    assert found.cost <= share + 1e-9


@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("kind", ["ucb", "ucb-paper", "halving", "random", "full"])
def test_with_all_of_the_cost_the_best_is_found(seed, kind):
    recorded = trace(seed)
    found = replay(recorded, Method(kind, budget=1.0), np.zeros(recorded.present.shape))
    np.testing.assert_array_equal(found.chosen, recorded.final.argmax(axis=1))
    np.testing.assert_array_equal(found.spent, found.full)
    assert not found.finishing.any()


@given(seed=st.integers(0, 10_000))
def test_a_race_with_doubts_that_hold_never_loses_the_best(seed):
    recorded = trace(seed)
    # Nothing moves further than sigma; the sum of two is at most sqrt(2) times their hypotenuse.
    sure = np.abs(recorded.score - recorded.score[:, :, -1:]) / TO_SD
    recorded = Trace(EXITS, recorded.present, recorded.score, sure)
    best = recorded.final.argmax(axis=1)
    gamma = np.sqrt(2) + 1e-9
    np.testing.assert_array_equal(replay(recorded, Method("race", gamma=gamma)).chosen, best)
    stopped = replay(recorded, Method("ucb-paper", budget=1.0, lead=gamma))
    np.testing.assert_array_equal(stopped.chosen, best)
    assert stopped.spent.sum() <= replay(recorded, Method("ucb-paper", budget=1.0)).spent.sum()


@given(seed=st.integers(0, 10_000), share=st.floats(0.2, 1))
def test_fewer_survive_at_every_exit_and_their_cost_is_what_was_given(seed, share):
    recorded = trace(seed)
    race = Race(EXITS, recorded.present, budget_of(share, recorded.present, EXITS))
    survivors = Halving().survivors(race)
    assert (np.diff(survivors, axis=1) <= 0).all()
    assert (survivors[:, 0] == recorded.present.sum(axis=1)).all()
    assert (survivors.sum(axis=1) <= race.budget).all()
    # Nobody runs alone, unless all may run: then the choice is made.
    whole = survivors.sum(axis=1) == race.full
    assert (survivors[~whole, 1:] != 1).all()
    found = replay(recorded, Method("halving", budget=share))
    np.testing.assert_array_equal(found.spent, survivors.sum(axis=1))


def test_with_little_to_spend_most_are_dropped_at_once_with_much_late():
    race = Race(EXITS, np.ones((2, 100), bool), budget_of(0.3, np.ones((2, 100), bool), EXITS) * [1, 2.7])
    little, much = Halving().survivors(race)
    assert little[1] < 50
    assert much[3] > 75
    assert little.sum() == pytest.approx(0.3 * 600, abs=8)
    assert much.sum() == pytest.approx(0.81 * 600, abs=8)


def test_exits_of_their_own():
    recorded = trace(3)
    same = replay(recorded, Method("constant", 2))
    np.testing.assert_array_equal(same.spent, 2 * recorded.present.sum(axis=1))
    at_2 = np.where(recorded.present, recorded.score[:, :, 1], -np.inf)
    np.testing.assert_array_equal(same.chosen, at_2.argmax(axis=1))
    leave = recorded.change < 0.3
    leave[:, :, -1] = True
    place = np.where(recorded.present, leave.argmax(axis=2) + 1, 0)
    np.testing.assert_array_equal(
        replay(recorded, Method("confidence", 0.3)).spent, np.where(recorded.present, place, 0).sum(axis=1)
    )


def test_a_subset_is_what_the_budget_pays_for():
    recorded = trace(1)
    preference = np.random.default_rng(0).random(recorded.present.shape)
    found = replay(recorded, Method("random", budget=0.5), preference)
    for source, present in enumerate(recorded.present):
        count = max(int(0.5 * present.sum()), 1)
        scored = np.argsort(-preference[source, present])[:count]
        assert found.chosen[source] == scored[recorded.final[source, scored].argmax()]
        assert found.spent[source] == count * EXITS[-1]
    with pytest.raises(InputError, match="which candidates are preferred"):
        replay(recorded, Method("random"))


def test_the_runner_up_is_the_best_of_the_others():
    recorded = trace(2)
    found = replay(recorded, Method("full"))
    for source, present in enumerate(recorded.present):
        order = np.argsort(-recorded.final[source])
        expected = order[1] if present.sum() > 1 else -1
        assert found.runner_up[source] == expected


def finished(recorded: Trace, method: Method) -> tuple[Choices, Race]:
    """A race whose chosen candidates were taken to the last exit."""
    policy = method.policy
    course = method.start_race(recorded.exits, recorded.present)
    run(policy, course, recorded.advance)
    choices = Choices.of(policy, course)
    run(Finish(choices.chosen), course, recorded.advance)
    return choices, course


CHOOSING = [Method("ucb"), Method("ucb-paper"), Method("race", start=2), Method("constant", 2)]


@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("method", CHOOSING, ids=lambda method: method.signature)
def test_a_runner_up_is_expected_to_move_as_those_that_went_further_did(seed, method):
    recorded = trace(seed)
    choices, course = finished(recorded, method)
    for source, (chosen, other) in enumerate(zip(choices.chosen, choices.runner_up, strict=True)):
        score, place = recorded.score[source], course.place[source]
        assert course.levelled[source, chosen] == pytest.approx(score[chosen, -1])
        if other < 0:
            continue
        expected = score[other, place[other] - 1]
        for layer in range(place[other], len(EXITS)):
            further = place > layer
            expected += np.mean(score[further, layer] - score[further, layer - 1])
        assert course.levelled[source, other] == pytest.approx(expected)
    # Nothing but the chosen one was moved, and no more than was said to be lacking.
    assert (course.spent == choices.spent + choices.finishing).all()


@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("kind", ["ucb", "halving", "race"])
def test_what_moves_all_alike_is_no_lead_over_the_runner_up(seed, kind):
    recorded = trace(seed)
    movement = np.random.default_rng(seed).normal(size=(len(recorded.score), 1, len(EXITS)))
    moved = Trace(EXITS, recorded.present, recorded.score + movement, recorded.change)

    def lead(one):
        choices, course = finished(one, Method(kind))
        sources, other = np.arange(len(one.present)), choices.runner_up
        return (course.levelled[sources, choices.chosen] - course.levelled[sources, other])[other >= 0]

    np.testing.assert_allclose(lead(recorded), lead(moved), atol=1e-9)


def test_who_leads_by_more_than_the_doubt():
    race = Race(EXITS, np.array([[True, True, True], [True, False, False]]), np.full(2, 18.0))
    assert not ahead(race, 1.0).any()  # nobody has begun
    race.place[race.present] = 1
    race.score[0], race.doubt[0] = [1.0, 0.0, 0.2], [0.3, 0.4, 0.4]
    race.score[1, 0] = 0.0
    assert ahead(race, 1.5).tolist() == [True, True]  # 0.8 > 1.5 * 0.5
    assert ahead(race, 1.7).tolist() == [False, True]


def test_the_chance_is_that_of_two_normal_errors():
    random = np.random.default_rng(0)
    one = np.array([0])
    choices = Choices(one, np.array([1]), one, one, one)
    outputs = {"score": np.array([0.6]), "error": np.array([0.4])}
    other = {"score": np.array([0.3]), "error": np.array([0.5]), "doubt": np.array([0.2])}
    found = Reranked(one, np.array([1]), outputs, other, np.array([2]), choices, one > 0, 0)
    draws = 200_000
    mine = 0.6 + random.normal(0, 0.4 * TO_SD, draws)
    theirs = 0.3 + random.normal(0, 0.5 * TO_SD, draws) + random.normal(0, 0.2, draws)
    assert found.chance()[0] == pytest.approx((mine > theirs).mean(), abs=0.005)
    assert found.chance(np.array([0.0]), np.array([0.0]))[0] > 0.9
    worse = Reranked(one, np.array([1]), outputs, other, np.array([2]), choices, one > 0, 0, higher=False)
    assert worse.chance()[0] == pytest.approx(1 - found.chance()[0])
    alone = Reranked(one, np.array([-1]), outputs, other, np.array([1]), choices, one > 0, 0)
    assert np.isnan(alone.chance()).all()


def test_the_promise_for_the_best_of_many_needs_a_smaller_alpha():
    """Errors as large as the differences between candidates: the best score is mostly too high."""
    random = np.random.default_rng(0)
    alpha, sources, candidates = 0.1, 4_000, 12

    def scored(*shape):
        human = random.normal(size=shape)
        return human, human + random.normal(size=shape)

    known, forecast = scored(5_000)
    human, score = scored(sources, candidates)
    best = np.arange(sources), score.argmax(axis=1)

    def coverage(alpha):
        fitted = SplitConformal(alpha).fit(Gaussian(forecast, np.ones(len(forecast))), known)
        return fitted.intervals(Gaussian(score[best], np.ones(sources))).covers(human[best]).mean()

    # Given its score s a candidate's error is normal about s/2, of variance 1/2; the best s has this density:
    at = np.linspace(-8, 12, 4_001)
    density = candidates * norm.pdf(at, scale=np.sqrt(2)) * norm.cdf(at, scale=np.sqrt(2)) ** (candidates - 1)
    reach = norm.ppf(1 - alpha / 2)
    covered = np.diff(norm.cdf([[-reach], [reach]], loc=at / 2, scale=np.sqrt(1 / 2)), axis=0)[0]
    expected = np.trapezoid(density * covered, at)
    assert expected == pytest.approx(0.73, abs=0.005)
    assert coverage(alpha) == pytest.approx(expected, abs=0.03)
    slack = 3 * np.sqrt(alpha * (1 - alpha) / sources)
    assert coverage(alpha / candidates) > 1 - alpha - slack


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Method("best"), "a method is one of"),
        (lambda: Method.parse("constant"), "needs the number of a layer: constant:6"),
        (lambda: Method.parse("constant:0.5"), "needs the number of a layer: constant:6"),
        (lambda: Method.parse("constant:inf"), "needs the number of a layer"),
        (lambda: Method.parse("constant:nan"), "needs the number of a layer"),
        (lambda: Method.parse("confidence:inf"), "needs a positive number: confidence:0.1"),
        (lambda: Method.parse("ucb:7"), "'ucb' takes no number, found 7"),
        (lambda: Method.parse("ucb:0"), "'ucb' takes no number, found 'ucb:0'"),
        (lambda: Method("ucb", gamma=-3.0), "gamma is a number of standard deviations from 0 on, found -3"),
        (lambda: Method("ucb", lead=float("nan")), "lead is a number of standard deviations"),
        (lambda: Method("ucb", start=0), "start is a layer from 1 on, found 0"),
        (lambda: Method.parse("race", budget=0.5), "'race' has no budget: only halving, ucb, .* have"),
        (lambda: Method.parse("full", gamma=2.0), "'full' has no gamma: only race, .* have"),
        (lambda: Method.parse("confidence:soon"), "'soon' in 'confidence:soon' is not a number"),
        (lambda: replay(trace(), Method("ucb", budget=1.5)), "a share of the full cost"),
        (
            lambda: replay(trace(), Method("ucb", budget=0.1)),
            "does not take all candidates to their first exit",
        ),
        (lambda: replay(trace(), Method("halving", budget=0.4, start=3)), "does not take all candidates"),
    ],
)
def test_what_cannot_be_is_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_sources_are_told_by_segment_and_pair():
    rows = [
        {"lp": "de-en", "seg": 2, "src": "Haus", "mt": "house"},
        {"lp": "de-en", "seg": 1, "src": "Hund", "mt": "dog"},
        {"lp": "de-en", "seg": 2, "src": "Haus", "mt": "home"},
        {"lp": "de-en", "seg": 2, "src": "Haus", "mt": "house"},
        {"lp": "de-nl", "seg": 2, "src": "Haus", "mt": "huis"},
        {"lp": "de-en", "seg": 3, "src": "Haus", "mt": "house"},
    ]
    pools = Pools.of(as_table(rows))
    assert pools.rows.tolist() == [[0, 2], [1, -1], [4, -1], [5, -1]]
    assert pools.copies.tolist() == [[2, 1], [1, 0], [1, 0], [1, 0]]
    bare = Pools.of(as_table(pl.DataFrame(rows).drop("seg")))
    assert bare.rows.tolist() == [[0, 2], [1, -1], [4, -1]]
    np.testing.assert_array_equal(pools.matrix(np.arange(6.0))[0], [0, 2])
    assert np.isnan(pools.matrix(np.arange(6.0))[1, 1])


def test_one_segment_has_one_source():
    rows = [{"seg": 1, "src": "Haus", "mt": "house"}, {"seg": 1, "src": "Hund", "mt": "dog"}]
    with pytest.raises(InputError, match="row 2: the source of segment '1' differs from the data, row 1"):
        Pools.of(as_table(rows))


def test_lists_become_rows_with_all_that_is_as_long():
    rows = [
        {"src": "Haus", "mt": ["house", "home"], "system": ["a", "b"], "tags": ["x"]},
        {"src": "Hund", "mt": ["dog"], "system": ["a"], "tags": ["x"]},
    ]
    table = one_row_each(as_table(rows))
    assert table.frame["mt"].to_list() == ["house", "home", "dog"]
    assert table.frame["system"].to_list() == ["a", "b", "a"]
    assert table.frame["tags"].to_list() == [["x"], ["x"], ["x"]]
    assert table.lines.tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"src": "Haus", "mt": []}, "row 2: the source has no candidate"),
        ({"src": "Haus", "mt": None}, "row 2: the source has no candidate"),
        ({"src": "Haus", "mt": ["house", None]}, r"row 2: one of the candidates is missing \(null\)"),
    ],
)
def test_every_candidate_of_a_list_is_there(row, sentence):
    with pytest.raises(InputError, match=sentence):
        one_row_each(as_table([{"src": "Hund", "mt": ["dog"]}, row]))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"mt": ["house", "home"]}, "no column 'src'"),
        (
            {"src": "Haus", "mt": [["house"], ["home"]]},
            r"'mt' holds List\(List.*expected texts or lists of texts",
        ),
        ({"src": "Haus", "mt": {"text": "house"}}, "'mt' holds Struct.*expected texts or lists of texts"),
        ({"src": ["Haus", "Hund"], "mt": ["house", "dog"]}, r"'src' holds List.*expected one value for all"),
        ({"src": ["Haus"], "mt": "house"}, "'src' holds List"),
        ({"src": "Haus", "ref": ["home", "house"], "mt": ["house", "home"]}, "'ref' holds List"),
    ],
)
def test_candidates_are_texts_and_share_a_source(row, sentence):
    with pytest.raises(InputError, match=sentence):
        one_row_each(as_table([row]))
