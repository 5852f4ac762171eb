"""How much of the factor of all pairs the factor of each should have, by documents that are left out."""

from __future__ import annotations

import numpy as np
import polars as pl

from doubtless import ErrorEstimate, GroupedConformal

SHARES = (0.0, 0.25, 0.5, 0.75)  # not all: a pair that differs much should keep something of its own
PARTS, REPEATS = 5, 40


def best_share(frame: pl.DataFrame, documents: np.ndarray, alpha: float) -> float:
    """The share with which coverage of new documents, pair by pair, comes nearest to what was asked.

    Parameters
    ----------
    frame
        Rows with ``lp``, ``score``, ``error`` and ``human``.
    documents
        The document of each row. All rows of one are left out together, for they are alike.
    alpha
        Share of human scores that may lie outside of their intervals.
    """
    human, pairs = frame["human"].to_numpy(), frame["lp"].to_numpy()
    forecast = ErrorEstimate(frame["score"].to_numpy(), frame["error"].to_numpy())
    names, place = np.unique(documents, return_inverse=True)
    rng, missed = np.random.default_rng(0), dict.fromkeys(SHARES, 0.0)
    for _ in range(REPEATS):
        part = (rng.permutation(len(names)) % PARTS)[place]
        for number in range(PARTS):
            new, known = np.flatnonzero(part == number), np.flatnonzero(part != number)
            for share in SHARES:
                fitted = GroupedConformal(alpha, borrow=share).fit(
                    forecast[known], human[known], pairs[known]
                )
                found = fitted.intervals(forecast[new], pairs[new])
                inside = (found.lower <= human[new]) & (human[new] <= found.upper)
                for lp in np.unique(pairs):
                    missed[share] += (inside[pairs[new] == lp].mean() - (1 - alpha)) ** 2
    count = REPEATS * PARTS * len(np.unique(pairs))
    for share, total in missed.items():
        print(f"borrow {share}: coverage of a pair errs by {np.sqrt(total / count):.4f}", flush=True)
    return min(missed, key=lambda share: missed[share])
