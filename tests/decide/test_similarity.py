from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.decide.rerank import Method, Trace, replay
from doubtless.decide.similarity import forecast, similarities, similarity
from doubtless.errors import InputError

TEXTS = ["the house", "a house", "The house.", "", "mouse", "das Haus 房子", "the house"]


def test_likeness_is_the_cosine_of_weighted_ngrams():
    def bag(text):
        padded = f"  {text.lower()}  "
        return Counter([padded[i : i + 3] for i in range(len(padded) - 2)]) + Counter(
            [padded[i : i + 4] for i in range(len(padded) - 3)]
        )

    bags = [bag(text) for text in TEXTS]
    weight = {
        gram: np.log((1 + len(TEXTS)) / (1 + sum(gram in one for one in bags))) + 1e-3
        for gram in set().union(*bags)
    }

    def product(one, other):
        return sum(one[gram] * other[gram] * weight[gram] ** 2 for gram in one)

    expected = [[product(a, b) / np.sqrt(product(a, a) * product(b, b)) for b in bags] for a in bags]
    found = similarity(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found[0, 6] == pytest.approx(1)
    parts = similarities(TEXTS, np.array([[0, 6], [4, -1]]))
    assert [part.shape for part in parts] == [(2, 2), (1, 1)]


@given(seed=st.integers(0, 10_000), seen=st.integers(2, 6))
def test_what_is_expected_is_ordinary_kriging(seed, seen):
    random = np.random.default_rng(seed)
    score, alike = random.normal(size=7), similarity([*TEXTS[:6], "two mice"])
    mask = np.arange(7) < seen
    mean, sd = forecast(score, mask, alike)
    kernel = 0.9 * alike + 0.1 * np.eye(7)
    # Weights of the known scores that sum to one, with a Lagrange multiplier.
    system = np.block([[kernel[:seen, :seen], np.ones((seen, 1))], [np.ones((1, seen)), np.zeros((1, 1))]])
    weights = np.linalg.solve(system, np.vstack([kernel[:seen], np.ones((1, 7))]))[:seen]
    np.testing.assert_allclose(mean, weights.T @ score[mask], atol=1e-3)
    np.testing.assert_allclose(mean[mask], score[mask], atol=1e-3)
    assert (sd[mask] < 1e-2).all()
    assert (sd[~mask] > sd[mask].max()).all()


def smooth(seed: int, sources: int = 4, count: int = 60) -> tuple[Trace, list[np.ndarray]]:
    """Candidates on a line whose scores change slowly along it; near ones are alike."""
    random = np.random.default_rng(seed)
    at = random.uniform(0, 6, size=(sources, count))
    alike = [np.exp(-((one[:, None] - one) ** 2)) for one in at]
    final = np.array(
        [random.multivariate_normal(np.zeros(count), part + 0.01 * np.eye(count)) for part in alike]
    )
    score = np.repeat(final[:, :, None], 3, axis=2)
    return Trace(np.arange(1, 4), np.ones(final.shape, bool), score, np.zeros(score.shape)), alike


@given(seed=st.integers(0, 1_000), share=st.floats(0.05, 1))
def test_no_more_is_scored_than_the_budget_pays_for(seed, share):
    recorded, alike = smooth(seed)
    found = replay(recorded, Method("similar", budget=share), np.zeros(recorded.present.shape), alike)
    assert (found.spent == 3 * max(int(60 * share + 1e-9), 1)).all()
    assert not found.finishing.any()
    if share == 1:
        np.testing.assert_array_equal(found.chosen, recorded.final.argmax(axis=1))


def test_likeness_to_good_ones_finds_better_ones_than_chance():
    lost: dict[str, list[float]] = {"similar": [], "random": []}
    for seed in range(20):
        recorded, alike = smooth(seed)
        preference = np.random.default_rng(seed).random(recorded.present.shape)
        for kind, losses in lost.items():
            chosen = replay(recorded, Method(kind, budget=0.25), preference, alike).chosen
            losses.append(float((recorded.final.max(axis=1) - recorded.final[np.arange(4), chosen]).mean()))
    assert np.mean(lost["similar"]) < np.mean(lost["random"]) / 2


def test_likeness_must_be_told():
    recorded, _ = smooth(0)
    with pytest.raises(InputError, match="how alike candidates are"):
        replay(recorded, Method("similar"), np.zeros(recorded.present.shape))
