from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from doubtless.errors import InputError
from doubtless.segments import as_table
from doubtless.systems import compare, holm, interval_of_mean, matrix, segment_numbers


@pytest.fixture
def scores():
    rng = np.random.default_rng(1)
    easy = rng.normal(size=(400, 1))
    return easy + rng.normal([0.5, 0.45, 0.0], 0.3, size=(400, 3))


def test_the_interval_of_a_mean_has_the_width_of_the_closed_form(scores):
    found = compare(scores, resamples=20_000)
    half = 1.959964 * scores.std(axis=0) / np.sqrt(len(scores))
    assert found.mean == pytest.approx(scores.mean(axis=0))
    assert found.upper - found.mean == pytest.approx(half, rel=0.05)
    assert found.mean - found.lower == pytest.approx(half, rel=0.05)


def test_the_chance_of_being_better_is_that_of_the_closed_form(scores):
    found = compare(scores, resamples=20_000)
    gap = scores[:, 0] - scores[:, 1]
    from scipy.stats import norm

    expected = norm.cdf(gap.mean() / (gap.std() / np.sqrt(len(gap))))
    assert found.chance[0, 1] == pytest.approx(expected, abs=0.02)
    assert found.chance[1, 0] == pytest.approx(1 - found.chance[0, 1])


def brute_force(first, second):
    gap = first - second
    gap = gap[~np.isnan(gap)]
    sums = [abs(np.dot(signs, gap)) for signs in product((1, -1), repeat=len(gap))]
    return np.mean(np.array(sums) >= abs(gap.sum()) - 1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("missing", [False, True])
def test_few_segments_are_tested_exactly(seed, missing):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(9, 3)).round(1)
    if missing:
        scores[rng.integers(9), 0] = np.nan
        scores[rng.integers(9), 2] = np.nan
    p = [brute_force(scores[:, a], scores[:, b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    found = compare(scores).p_value
    assert [found[0, 1], found[0, 2], found[1, 2]] == pytest.approx(holm(p))
    assert found == pytest.approx(found.T)


def test_many_segments_are_tested_by_chance_and_come_close():
    scores = np.random.default_rng(3).normal([0.0, 0.4], 1, size=(12, 2))
    found = compare(scores, resamples=4_000).p_value[0, 1]  # 2^12 combinations are too many
    assert found == pytest.approx(brute_force(scores[:, 0], scores[:, 1]), abs=0.02)


def test_the_test_keeps_its_level():
    rng = np.random.default_rng(0)
    p = [compare(rng.normal(size=(40, 2)), resamples=400, seed=i).p_value[0, 1] for i in range(300)]
    assert np.mean(np.array(p) < 0.1) == pytest.approx(0.1, abs=0.06)


def test_holm_equals_its_definition():
    p = np.random.default_rng(0).uniform(size=7) / 5
    order = np.argsort(p)
    expected = [min(1, max((7 - j) * p[order[j]] for j in range(i + 1))) for i in range(7)]
    assert holm(p)[order] == pytest.approx(expected)


def test_ranks_and_clusters(scores):
    found = compare(scores)
    assert found.order.tolist()[-1] == 2
    assert found.cluster[2] == max(found.cluster)
    assert found.better[0, 2]
    assert found.better[1, 2]
    assert found.worst[2] == 3
    tied = compare(np.repeat(scores[:, :1], 3, axis=1))
    assert tied.cluster.tolist() == [1, 1, 1]
    assert tied.best.tolist() == [1, 1, 1]
    assert tied.worst.tolist() == [3, 3, 3]
    assert np.allclose(tied.chance, 0.5)
    assert np.allclose(tied.p_value, 1)


def test_where_lower_is_better_everything_turns_round(scores):
    up, down = compare(scores), compare(-scores, higher=False)
    assert up.order.tolist() == down.order.tolist()
    assert up.cluster.tolist() == down.cluster.tolist()
    assert up.chance == pytest.approx(down.chance)
    assert up.difference == pytest.approx(-down.difference)


def test_missing_segments_are_counted_and_left_out(scores):
    scores[:100, 1] = np.nan
    found = compare(scores)
    assert found.n.tolist() == [400, 300, 400]
    assert found.missing.tolist() == [0, 100, 0]
    assert found.mean[1] == pytest.approx(scores[100:, 1].mean())
    assert found.difference[0, 1] == pytest.approx((scores[100:, 0] - scores[100:, 1]).mean())


def test_systems_that_share_nothing_are_not_compared():
    found = compare([[1.0, np.nan], [2.0, np.nan], [np.nan, 5.0], [np.nan, 6.0]])
    assert found.p_value[0, 1] == 1
    assert np.isnan(found.chance[0, 1])
    assert found.cluster.tolist() == [1, 1]


def test_many_systems_can_still_be_told_apart():
    scores = np.random.default_rng(0).normal(size=(200, 1)) + np.arange(30)
    assert compare(scores, resamples=100).cluster.tolist() == list(range(30, 0, -1))


def test_the_same_seed_gives_the_same_table(scores):
    one, two, other = compare(scores), compare(scores), compare(scores, seed=1)
    assert (one.lower == two.lower).all()
    assert (one.p_value == two.p_value).all()
    assert (one.lower != other.lower).any()


def test_one_segment_has_no_interval():
    found = compare([[1.0, 2.0]])
    assert np.isnan(found.lower).all()
    assert found.p_value[0, 1] == 1
    assert np.isnan(interval_of_mean([[1.0]])[1])


def test_the_interval_of_all_systems_draws_whole_segments():
    segment = np.random.default_rng(0).normal(size=(300, 1))
    one, four = interval_of_mean(segment), interval_of_mean(np.repeat(segment, 4, axis=1))
    assert one == pytest.approx(four)


@pytest.mark.parametrize("scores", [[1.0, 2.0], np.zeros((0, 2)), [[np.nan, 1.0]]])
def test_what_cannot_be_compared_is_said(scores):
    with pytest.raises(InputError):
        compare(scores)


def test_segments_are_found_by_number_and_source():
    rows = [
        {"lp": lp, "seg": seg, "src": f"{lp} {seg}", "system": system}
        for system in ("b", "a")
        for lp in ("en-de", "en-fr")
        for seg in (1, 2)
    ]
    assert segment_numbers(as_table(rows)).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert segment_numbers(as_table([{"src": "x"}, {"src": "y"}, {"src": "x"}])).tolist() == [0, 1, 2]
    names, values = matrix([row["system"] for row in rows], segment_numbers(as_table(rows)), np.arange(8.0))
    assert names == ["b", "a"]
    assert values.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
