"""Candidates that are alike score alike: Bayesian optimisation over the texts of a source's candidates.

From a few candidates that were scored in full, a Gaussian process expects what the others would score, the
surer the more they are like those. It spends nothing on the rest, not even one layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from doubtless.decide.race import Array, Race
from doubtless.segments import Floats

_LENGTHS = (3, 4)  # of n-grams of characters
_SHARED = 0.9  # part of the variance of scores that is alike in candidates of the same n-grams
_FIRST = 20  # one in so many candidates is scored before there is a forecast
_NEXT = 40  # and so many between two forecasts
_JITTER = 1e-8


def similarity(texts: Sequence[str]) -> Floats:
    """Cosines between texts as bags of character n-grams, of which rare ones weigh more.

    >>> similarity(["a house", "the house", "zwei"]).round(1)
    array([[1. , 0.2, 0. ],
           [0.2, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    bags = [_ngrams(text) for text in texts]
    numbers = {gram: number for number, gram in enumerate(sorted(set().union(*bags)))}
    entries = [(row, numbers[gram], count) for row, bag in enumerate(bags) for gram, count in bag.items()]
    rows, columns, counts = (np.array(values) for values in zip(*entries, strict=True))
    frequency = np.bincount(columns)
    weights = counts * (np.log((1 + len(texts)) / (1 + frequency)) + 1e-3)[columns]
    norms = np.sqrt(np.bincount(rows, weights**2))
    bag = csr_array((weights / norms[rows], (rows, columns)), shape=(len(texts), len(numbers)))
    return np.asarray((bag @ bag.T).toarray())


def similarities(texts: Sequence[str], rows: Array) -> list[Floats]:
    """How alike the candidates of each source are; ``rows`` as in :class:`~.candidates.Pools`."""
    return [similarity([texts[row] for row in one[one >= 0]]) for one in rows]


def _ngrams(text: str) -> Counter[str]:
    padded = f"  {text.lower()}  "
    return Counter(padded[i : i + n] for n in _LENGTHS for i in range(len(padded) - n + 1))


def forecast(score: Floats, seen: Array, alike: Floats) -> tuple[Floats, Floats]:
    """What each candidate is expected to score, and the standard deviation, from those that were seen.

    A Gaussian process whose mean and variance are estimated from the scores seen.
    """
    known, kernel = score[seen], _SHARED * alike + (1 - _SHARED) * np.eye(len(score))
    inverse = np.linalg.inv(kernel[np.ix_(seen, seen)] + _JITTER * np.eye(len(known)))
    mean = (inverse.sum(axis=0) @ known) / inverse.sum()
    rest = known - mean
    # Scores that are alike because their texts are must not make it look sure of all others.
    scale = rest @ inverse @ rest / max(len(known) - 1, 1)
    across = kernel[:, seen]
    variance = np.diag(kernel) - ((across @ inverse) * across).sum(axis=1)
    return mean + across @ (inverse @ rest), np.sqrt(np.maximum(scale * variance, 0.0))


@dataclass(frozen=True)
class Similar:
    """Score in full whatever is expected to be best, by its likeness to what was scored.

    The first are taken by preference; then those of the highest expected score plus ``gamma`` standard
    deviations, a few at a time.
    """

    gamma: float = 1.0

    def places(self, race: Race) -> Array:
        """The next ones, all the way."""
        places = race.place.copy()
        # The matrices are small: threads that wait for each other cost more than they bring.
        with threadpool_limits(1, user_api="blas"):
            for source in range(len(places)):
                places[source, self._next(race, source)] = race.depth
        return places

    def _next(self, race: Race, source: int) -> Array:
        """Columns of the candidates to be scored next."""
        assert race.preference is not None
        assert race.similarity is not None
        columns = np.flatnonzero(race.present[source])
        seen = race.place[source, columns] > 0
        left = max(int(race.budget[source] // race.exits[-1]), 1) - int(seen.sum())
        if seen.any() and left > 0 and not seen.all():
            mean, sd = forecast(race.score[source, columns], seen, race.similarity[source])
            wish, many = mean + self.gamma * sd, max(len(columns) // _NEXT, 1)
        else:
            wish, many = race.preference[source, columns], max(len(columns) // _FIRST, 2)
        order = np.argsort(-np.where(seen, -np.inf, wish), kind="stable")
        return columns[order[: min(many, max(left, 0), int((~seen).sum()))]]

    def eligible(self, race: Race) -> Array:
        """Those that were scored."""
        return race.place > 0
