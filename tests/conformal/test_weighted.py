from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import Coverage, Rows

from doubtless import ErrorEstimate, InputError, SplitConformal, WeightedConformal
from doubtless.conformal.split import nonconformity


@pytest.mark.parametrize("n", [50, 199])
def test_coverage_holds_under_a_known_shift_where_split_fails(n):
    rng = np.random.default_rng(n)
    weighted, plain = [], []
    for _ in range(1_000):
        known, new = Rows.draw(rng, n), Rows.draw(rng, 50, shift=2.0)
        ratio = lambda x: 3 * x**2  # noqa: E731 - density of beta(3, 1) over that of beta(1, 1)
        fitted = WeightedConformal(0.1).fit(known.forecast, known.human, ratio(known.x))
        weighted.append(fitted.intervals(new.forecast, ratio(new.x)).covers(new.human).mean())
        split = SplitConformal(0.1).fit(known.forecast, known.human)
        plain.append(split.intervals(new.forecast).covers(new.human).mean())
    found, careless = Coverage.of(weighted), Coverage.of(plain)
    assert found.mean + 3 * found.stderr >= 0.9
    assert careless.mean + 3 * careless.stderr < 0.89


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), min_size=1, max_size=30).filter(
        lambda rows: any(w for _, w in rows)
    ),
    st.integers(0, 5),
    st.sampled_from([0.1, 0.25, 0.5]),
)
def test_the_factor_equals_the_definition(rows, own, alpha):
    scores, weights = zip(*rows, strict=True)
    fitted = WeightedConformal(alpha).fit(
        ErrorEstimate(np.zeros(len(rows)), np.ones(len(rows))), np.array(scores, dtype=float), weights
    )
    total = sum(weights) + own
    enough = [s for s in sorted(scores) if sum(w for t, w in rows if t <= s) >= (1 - alpha) * total - 1e-9]
    expected = enough[0] if enough else inf
    upper = fitted.intervals(ErrorEstimate([0.0], [1.0]), [own]).upper[0]
    assert upper == pytest.approx(expected)


def test_equal_weights_are_split_conformal():
    rng = np.random.default_rng(1)
    for n in (8, 9, 10, 99, 100):
        known, new = Rows.draw(rng, n), Rows.draw(rng, 20)
        split = SplitConformal(0.1).fit(known.forecast, known.human).intervals(new.forecast)
        fitted = WeightedConformal(0.1).fit(known.forecast, known.human, np.full(n, 0.7))
        weighted = fitted.intervals(new.forecast, np.full(20, 0.7))
        np.testing.assert_array_equal(split.upper, weighted.upper)
        np.testing.assert_array_equal(split.unbounded, weighted.unbounded)
        assert nonconformity(known.forecast, known.human, 0.1).max() >= fitted.scores[-1]


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1.0], "1 weights for 2 forecasts"),
        ([1.0, -1.0], "a weight is negative or not finite"),
        ([1.0, inf], "a weight is negative or not finite"),
        ([0.0, 0.0], "the weights of the calibration rows are all zero"),
    ],
)
def test_wrong_weights_are_refused(weights, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        WeightedConformal().fit(ErrorEstimate([0.0, 0], [1, 1]), [0.0, 0], weights)
