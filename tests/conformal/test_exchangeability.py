from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.conformal.exchangeability import exchangeability, online_p_values


@given(
    st.lists(st.integers(0, 4), max_size=15),
    st.lists(st.integers(0, 4), min_size=1, max_size=15),
    st.integers(0, 9),
)
def test_online_p_values_equal_the_definition(known, stream, seed):
    u = np.random.default_rng(seed).random(len(stream))
    expected = []
    for t, value in enumerate(stream):
        bag = [*known, *stream[: t + 1]]
        greater, equal = sum(x > value for x in bag), sum(x == value for x in bag)
        expected.append((greater + u[t] * equal) / len(bag))
    np.testing.assert_allclose(online_p_values(known, stream, seed), expected)


@pytest.mark.parametrize("level", [0.01, 0.1])
def test_exchangeable_rows_are_rejected_no_more_often_than_promised(level):
    rng = np.random.default_rng(0)
    rejected = [
        exchangeability(rng.integers(0, 20, 50), rng.integers(0, 20, 150), seed).rejected(level)
        for seed in range(600)
    ]
    share = np.mean(rejected)
    assert share <= level + 3 * np.sqrt(level * (1 - level) / 600)


def test_a_shift_is_found_soon_and_a_widening_too():
    rng = np.random.default_rng(1)
    shifted = exchangeability(rng.normal(size=1_000), rng.normal(1, 1, 500))
    assert shifted.rejected(1e-4)
    assert shifted.log10_capital > 4
    assert exchangeability(rng.normal(size=1_000), rng.normal(-1, 1, 500)).rejected(1e-4)


def test_a_change_in_the_middle_of_the_stream_is_found_after_it():
    rng = np.random.default_rng(2)
    stream = np.concatenate([rng.normal(size=300), rng.normal(1.5, 1, 300)])
    verdict = exchangeability(rng.normal(size=1_000), stream)
    assert verdict.rejected()
    assert verdict.row > 300


def test_nothing_new_is_no_evidence():
    assert exchangeability([1.0, 2.0], []).p_value == 1.0
