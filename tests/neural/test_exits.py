"""Rules of leaving early, on recorded traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.errors import InputError
from doubtless.neural.exits import ChangeScale, ExitRule, predicted_change, replay

EXITS = (1, 2, 3, 4)


def trace(seed=0, rows=4_000, known=1.0) -> dict[str, np.ndarray]:
    """Scores whose moves have a known spread; predictions tell a part of it."""
    random = np.random.default_rng(seed)
    spread = random.uniform(0.5, 1.5, rows)
    moves = random.normal(size=(len(EXITS), rows)) * spread / np.array([1, 2, 4, np.inf])[:, None]
    told = spread if known == 1 else random.permutation(spread)
    change = told * np.sqrt(2 / np.pi) / np.array([1, 2, 4, np.inf])[:, None]
    return {"score": random.normal(size=rows) + moves, "error": np.ones_like(moves), "change": change}


def test_the_scale_tells_the_root_mean_square_of_the_true_change():
    traced, fresh = trace(0), trace(1)
    scale = ChangeScale.fit(EXITS, traced)
    for number, layer in enumerate(EXITS[:-1]):
        expected = scale(layer, fresh["change"][number])
        true = fresh["score"][number] - fresh["score"][-1]
        # Squares of normal moves have a relative standard deviation of sqrt(2), here of a third of the rows.
        for part in np.array_split(np.argsort(expected), 3):
            assert np.mean((true[part] / expected[part]) ** 2) == pytest.approx(1, abs=4 * np.sqrt(2 / 1_333))


def test_predictions_that_say_nothing_let_all_rows_leave_together():
    traced = trace(0, rows=20_000, known=0)
    rule = ExitRule("confidence", 0.3)
    scaled = ExitRule("confidence", 0.38, ChangeScale.fit(EXITS, traced))
    assert len(set(replay(rule, EXITS, traced)[1].tolist())) > 1
    assert set(replay(scaled, EXITS, traced)[1].tolist()) == {3}


@given(seed=st.integers(0, 1_000), bins=st.integers(1, 12))
def test_a_scale_does_not_fall(seed, bins):
    scale = ChangeScale.fit(EXITS, trace(seed, rows=40), bins)
    grid = np.linspace(-1, 3, 50)
    for layer in EXITS:
        assert (np.diff(scale(layer, grid)) >= 0).all()


def test_a_rule_with_a_scale_is_the_rule_of_the_same_threshold():
    assert ExitRule.parse("0.1") == ExitRule("confidence", 0.1, ChangeScale({1: ((0.0,), (1.0,))}))


def test_a_model_that_predicts_no_error_cannot_tell_its_change():
    with pytest.raises(InputError, match="predicts no error"):
        predicted_change({"score": np.zeros(2)})
    np.testing.assert_array_equal(predicted_change({"error": np.ones(2)}), [1, 1])
