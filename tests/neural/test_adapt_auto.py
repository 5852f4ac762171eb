"""The rule that decides whether to adapt: its false alarms, and each of its conditions."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.conformal.exchangeability import exchangeability  # noqa: E402
from doubtless.neural import adapt_auto  # noqa: E402
from doubtless.neural.adapt_auto import HeldOut, decide, drifted, held_out  # noqa: E402
from doubtless.neural.adapt_plan import AdaptPlan  # noqa: E402
from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.noisy import Segments  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402

PLAN = AdaptPlan(passes=2, k=5, lr=0.02, batch=8)
DRIFT = {"scores": 1e-6, "uncertainties": 0.4}


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    encoder = write_encoder(tmp_path_factory.mktemp("encoder"))
    options = {"inputs": "separate", "pooling": "mean", "layer_mix": "softmax", "hidden_sizes": (12, 8)}
    engine = torch_engine(new_model(ModelConfig(encoder=str(encoder), **options)))
    rng = np.random.default_rng(0)
    words = " ".join(TEXTS).split()
    src, mt = ([" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(48)] for _ in "ab")
    return Segments.of(engine, {"src": src, "mt": mt}, PLAN)


def noise(scale_of_noise, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return scale * (rng.normal(size=40) + scale_of_noise * rng.normal(size=(30, 40)))


def test_less_noise_around_the_same_scores_is_a_gain():
    found = HeldOut(noise(0.3), noise(0.2))
    assert found.falls
    assert found.falls_relatively


def test_scores_that_shrink_with_their_noise_are_none():
    found = HeldOut(noise(0.3), noise(0.3, scale=0.8))
    assert found.falls
    assert not found.falls_relatively


def test_the_same_noise_drawn_anew_does_not_fall():
    found = HeldOut(noise(0.3), noise(0.3, seed=1))
    assert not found.falls
    assert not HeldOut(noise(0.3), noise(0.4)).falls


def test_data_like_the_calibration_rows_rarely_look_drifted():
    """At most one system in a hundred, by Ville's inequality; here within three deviations of that."""
    rng, alarms, runs = np.random.default_rng(0), 0, 400
    for seed in range(runs):
        tests = {name: exchangeability(*rng.normal(size=(2, 100)), seed) for name in ("scores", "errors")}
        alarms += drifted({name: test.p_value for name, test in tests.items()}) is not None
    assert alarms <= 0.01 * runs + 3 * np.sqrt(0.01 * 0.99 * runs)


def test_a_shift_is_seen():
    rng = np.random.default_rng(1)
    test = exchangeability(rng.normal(size=300), rng.normal(1.0, size=100))
    assert drifted({"scores": test.p_value, "errors": 1.0}) == "scores"


def test_few_segments_and_no_drift_are_left_alone(segments):
    assert "too few" in decide(segments.take(np.arange(31)), PLAN, DRIFT).reason
    for usual in ({}, {"scores": 0.3}):
        verdict = decide(segments, PLAN, usual)
        assert not verdict.adapt
        assert "look like those of the calibration rows" in verdict.reason


@pytest.mark.parametrize(
    ("found", "adapts", "reason"),
    [
        (HeldOut(noise(0.3), noise(0.2)), True, "the scores drift"),
        (HeldOut(noise(0.3), noise(0.3, 0.8)), False, "only move closer together"),
        (HeldOut(noise(0.3), noise(0.4)), False, "does not fall"),
    ],
)
def test_held_out_segments_decide_where_there_is_drift(segments, monkeypatch, found, adapts, reason):
    monkeypatch.setattr(adapt_auto, "held_out", lambda segments, plan: found)
    verdict = decide(segments, PLAN, DRIFT)
    assert verdict.adapt == adapts
    assert reason in verdict.reason


def test_held_out_segments_are_half_of_them_and_the_model_comes_back(segments):
    weights = {name: value.clone() for name, value in segments.estimator.state_dict().items()}
    found = held_out(segments, PLAN)
    assert found.before.shape == found.after.shape == (5, 24)
    assert not np.array_equal(found.before, found.after)
    assert all(torch.equal(value, weights[name]) for name, value in segments.estimator.state_dict().items())
    assert held_out(segments, PLAN).after.tobytes() == found.after.tobytes()
