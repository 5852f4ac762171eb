"""Does the calibration still fit? A conformal test martingale (Vovk et al. 2021).

Under exchangeability the rank of each new value among the calibration values and the new ones before it is
uniform and independent of the past. A gambler who bets against that should not get rich: his capital
exceeds c at any time with probability at most 1/c.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.split import Floats
from doubtless.ranks import earlier_greater

_BETS = (-1.0, 0.0, 1.0)
_JUMP = 0.01


@dataclass(frozen=True)
class Exchangeability:
    """The verdict on a stream of new values.

    ``p_value`` bounds the probability that exchangeable data look this odd at any time; ``row`` is where
    the evidence was strongest (counted from 1), ``log10_capital`` its size.
    """

    p_value: float
    row: int
    log10_capital: float

    def rejected(self, level: float = 0.01) -> bool:
        """Whether exchangeability is rejected."""
        return self.p_value <= level


def online_p_values(calibration: ArrayLike, stream: ArrayLike, seed: int = 0) -> Floats:
    """Smoothed p-value of each new value among the calibration values and all new ones so far."""
    values = np.concatenate([np.asarray(calibration, dtype=np.float64), np.asarray(stream, dtype=np.float64)])
    first = len(values) - len(np.asarray(stream))
    greater = earlier_greater(values)[first:]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(values) else np.empty(0, int)
    equal = np.empty(len(values), dtype=np.int64)
    equal[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values)))) + 1
    u = np.random.default_rng(seed).random(len(values) - first)
    return (greater + u * equal[first:]) / np.arange(first + 1, len(values) + 1)


def exchangeability(
    calibration: ArrayLike,
    stream: ArrayLike,
    seed: int = 0,
    cells: tuple[np.ndarray, np.ndarray] | None = None,
) -> Exchangeability:
    """Test whether new values, in their order, look like more of the calibration values.

    Parameters
    ----------
    calibration, stream
        Any number a row: nonconformity where humans scored the new segments, else predicted quality or
        uncertainty.
    seed
        Breaks ties.
    cells
        Group numbers of the calibration and of the new values: each new value is then compared within its
        own group, so that a mere change of the mix of groups does not count. A negative number is left out.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> exchangeability(rng.normal(size=500), rng.normal(size=500)).rejected()
    False
    >>> exchangeability(rng.normal(size=500), rng.normal(1, 1, size=500)).rejected()
    True
    """
    # The simple jumper: three gamblers who bet on small p, on nothing and on large p, and who exchange a
    # hundredth of their capital at every step, so that the winner can change.
    shares = [1 / len(_BETS)] * len(_BETS)
    capital = best = 0.0
    best_row = 0
    for row, p in enumerate(_p_values(calibration, stream, seed, cells).tolist(), start=1):
        bets = [
            ((1 - _JUMP) * share + _JUMP / len(_BETS)) * (1 + bet * (p - 0.5))
            for bet, share in zip(_BETS, shares, strict=True)
        ]
        total = sum(bets)
        capital += log(total)
        shares = [bet / total for bet in bets]
        if capital > best:
            best, best_row = capital, row
    return Exchangeability(float(np.exp(-best)), best_row, best / log(10) if best else 0.0)


def _p_values(
    calibration: ArrayLike, stream: ArrayLike, seed: int, cells: tuple[np.ndarray, np.ndarray] | None
) -> Floats:
    """P-values in the order of the stream, within cells if given."""
    if cells is None:
        return online_p_values(calibration, stream, seed)
    known, new = np.asarray(calibration, dtype=np.float64), np.asarray(stream, dtype=np.float64)
    found = np.full(len(new), np.nan)
    for cell in np.unique(cells[1][cells[1] >= 0]):
        rows = cells[1] == cell
        found[rows] = online_p_values(known[cells[0] == cell], new[rows], seed + int(cell))
    return found[~np.isnan(found)]
