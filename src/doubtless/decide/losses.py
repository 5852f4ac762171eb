"""What a wrong number costs when mistakes on one side cost more (Beck et al. 2016, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from doubtless.errors import InputError
from doubtless.forecast import Floats

Costly = Literal["under", "over"]

LOSSES = {
    "al": "asymmetric linear: w times the distance on the costly side",
    "aq": "asymmetric quadratic: w times the squared distance on the costly side",
    "linex": "exponential on the costly side, nearly linear on the other",
}
SCENARIOS = ("pessimistic", "optimistic")
BETTER = ("lower", "higher")


@dataclass(frozen=True)
class Loss:
    """What it costs to act on a number when the truth is another.

    With ``x`` the distance from the truth, positive on the costly side:

    - ``al``: ``w x`` on the costly side, ``-x`` on the other; best is the quantile ``w / (w + 1)``
      (the lower one if overestimates are costly);
    - ``aq``: ``w x^2`` and ``x^2``; best is the expectile ``w / (w + 1)``, for w = 1 the mean;
    - ``linex``: ``exp(w x) - w x - 1``; best is ``log E[exp(c Y)] / c`` with ``c = w`` if underestimates
      are costly and ``c = -w`` otherwise; near the mean for small w.

    Parameters
    ----------
    kind
        ``al``, ``aq`` or ``linex``.
    w
        Weight, above 0. For ``al`` and ``aq`` 1 is symmetric, and below 1 the other side is the costly one.
    costly
        The mistake that costs more: ``under`` (the number was below the truth) or ``over``.

    Examples
    --------
    A quote of 10 minutes for work of 12, and one of 14, if a minute too few costs as much as three too many:

    >>> Loss("al", 3)([10.0, 14.0], 12.0)
    array([6., 2.])
    """

    kind: str
    w: float
    costly: Costly = "under"

    def __post_init__(self) -> None:
        if self.kind not in LOSSES:
            raise InputError(f"there is no loss '{self.kind}', expected one of: {', '.join(LOSSES)}")
        if not (isfinite(self.w) and self.w > 0):
            raise InputError(
                f"a weight is a positive number, found {self.w:g} (the scenario says which side it is on)"
            )
        if self.costly not in ("under", "over"):
            raise InputError(f"the costly mistake is under or over, found '{self.costly}'")

    @classmethod
    def in_scenario(cls, kind: str, w: float, scenario: str = "pessimistic", better: str = "lower") -> Loss:
        """The loss of a pessimist or an optimist, for numbers of which lower (or higher) ones are better.

        A pessimist fears to find the truth worse than the number said. For times and other costs, lower is
        better: underestimates are costly. For quality scores, higher is better: overestimates are.

        >>> Loss.in_scenario("al", 3, "pessimistic", better="higher")
        Loss(kind='al', w=3, costly='over')
        """
        for word, known in ((scenario, SCENARIOS), (better, BETTER)):
            if word not in known:
                raise InputError(f"expected {known[0]} or {known[1]}, found '{word}'")
        fears_underestimates = (scenario == "pessimistic") == (better == "lower")
        return cls(kind, w, "under" if fears_underestimates else "over")

    def __call__(self, prediction: ArrayLike, truth: ArrayLike) -> Floats:
        """The loss of each prediction; infinite where an exponential is too large to be written."""
        error = np.asarray(prediction, dtype=np.float64) - np.asarray(truth, dtype=np.float64)
        x = -error if self.costly == "under" else error
        if self.kind == "linex":
            with np.errstate(over="ignore"):
                return np.expm1(self.w * x) - self.w * x
        size = np.abs(x) if self.kind == "al" else x**2
        return np.where(x > 0, self.w, 1.0) * size

    @property
    def level(self) -> Fraction:
        """The quantile that is best under ``al`` (the expectile under ``aq``), as an exact fraction."""
        w = Fraction(repr(float(self.w)))
        return w / (w + 1) if self.costly == "under" else 1 / (w + 1)

    @property
    def tilt(self) -> float:
        """The factor c in ``E[exp(c Y)]``, on which ``linex`` rests: above 0 if underestimates are costly."""
        return self.w if self.costly == "under" else -self.w
