"""Ways to find the best candidate, by name: which policy each stands for, and which options it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from doubtless.decide import race
from doubtless.decide.race import Array, Policy, Race, budget_of
from doubtless.decide.similarity import Similar
from doubtless.errors import InputError
from doubtless.segments import Floats

_PREFERENCES = ("random", "logprob-sum", "logprob-avg", "similar")
_BANDITS = ("ucb", "ucb-paper")
_BOUNDED = ("race", "halving", *_BANDITS)
_LIMITED = ("halving", *_BANDITS, *_PREFERENCES)
_EXAMPLES = {
    "constant": "the number of a layer: constant:6",
    "confidence": "a positive number: confidence:0.1",
}
KINDS = (*_BOUNDED, *_EXAMPLES, *_PREFERENCES, "full")
_GAMMA = {"ucb": 0.5}
# Which methods have which option.
_HAVE = {"budget": _LIMITED, "gamma": (*_BOUNDED, "similar"), "start": _BOUNDED}


@dataclass(frozen=True)
class Method:
    """How to find the best candidate.

    Parameters
    ----------
    kind, value
        ``race``: drop candidates once the best is ahead by more than the doubt; needs no budget.
        ``halving``: compare all at the same layer, a share goes on. ``ucb-paper``: the bandit of the paper.
        ``ucb``: that bandit, with what layers move all candidates of a source alike taken out.
        ``constant``: all leave at exit ``value``. ``confidence``: each leaves when its predicted change is
        below ``value``. ``random``, ``logprob-sum``, ``logprob-avg``: score a subset in full. ``similar``:
        that too, those that are like the best so far. ``full``: score all.
    budget
        Share of the cost of scoring all candidates in full, for the methods that have one.
    gamma
        Standard deviations in the bounds; None: 0.5 for ``ucb``, whose doubts contain what levelling takes
        out, and 1, the paper's, for all others.
    start
        The exit that all candidates are taken to first.
    lead
        Stop once the best is ahead of all others by more than so many standard deviations.
    """

    kind: str = "race"
    value: float = 0.0
    budget: float = 0.55
    gamma: float | None = None
    start: int = 1
    lead: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a method is one of {', '.join(KINDS)}, found '{self.kind}'")
        if self.kind not in _EXAMPLES and self.value:
            raise InputError(f"'{self.kind}' takes no number, found {self.value:g}")
        fits = 0 < self.value < np.inf and (self.kind == "confidence" or float(self.value).is_integer())
        if self.kind in _EXAMPLES and not fits:
            raise InputError(f"'{self.kind}' needs {_EXAMPLES[self.kind]}")
        for name in ("gamma", "lead"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < np.inf:
                raise InputError(f"{name} is a number of standard deviations from 0 on, found {value}")
        if self.start < 1:
            raise InputError(f"start is a layer from 1 on, found {self.start}")

    @classmethod
    def parse(cls, text: str, **options: Any) -> Method:
        """Read ``ucb``, ``constant:6``, …

        Options that are None keep their defaults; others are refused of a method that does not have them.

        >>> Method.parse("constant:6").value
        6.0
        """
        kind, colon, number = text.partition(":")
        given = {name: value for name, value in options.items() if value is not None}
        try:
            value = float(number or 0)
        except ValueError:
            raise InputError(f"'{number}' in '{text}' is not a number") from None
        method = cls(kind, value, **given)
        if colon and kind not in _EXAMPLES:
            raise InputError(f"'{kind}' takes no number, found '{text}'")
        for name in given:
            if kind not in _HAVE.get(name, KINDS):
                raise InputError(f"'{kind}' has no {name}: only {', '.join(_HAVE[name])} have one")
        return method

    @property
    def signature(self) -> str:
        """What it is, for signatures: ``ucb,budget:0.55,gamma:1,start:1``."""
        parts = [f"{self.kind}:{self.value:g}" if self.value else self.kind]
        parts += [f"budget:{self.budget:g}"] if self.is_limited else []
        numbers = {"gamma": self.deviations, "start": self.start}
        parts += [f"{name}:{value:g}" for name, value in numbers.items() if self.kind in _HAVE[name]]
        parts += [] if self.lead is None else [f"lead:{self.lead:g}"]
        return ",".join(parts)

    @property
    def deviations(self) -> float:
        """Standard deviations in the bounds."""
        return _GAMMA.get(self.kind, 1.0) if self.gamma is None else self.gamma

    @property
    def is_limited(self) -> bool:
        """Whether it has a budget."""
        return self.kind in _LIMITED

    @property
    def needs_preference(self) -> bool:
        """Whether candidates are preferred by something that is known before they are scored."""
        return self.kind in _PREFERENCES

    @property
    def policy(self) -> Policy:
        """The policy that it stands for."""
        if self.kind in _BANDITS:
            return race.Bandit(self.deviations, self.start)
        if self.kind == "halving":
            return race.Halving(self.deviations, self.start)
        if self.kind == "race":
            return race.Elimination(self.deviations, self.start)
        if self.kind == "constant":
            return race.Exit(latest=int(self.value))
        if self.kind == "confidence":
            return race.Exit(tolerance=self.value)
        if self.kind == "similar":
            return Similar(self.deviations)
        return race.Subset() if self.needs_preference else race.FULL

    def start_race(
        self,
        exits: Array,
        present: Array,
        preference: Floats | None = None,
        similarity: Sequence[Floats] | None = None,
    ) -> Race:
        """Line the candidates up."""
        if self.needs_preference and preference is None:
            raise InputError(f"'{self.kind}' needs to be told which candidates are preferred")
        if self.kind == "similar" and similarity is None:
            raise InputError("'similar' needs to be told how alike candidates are")
        start = self.start if self.kind in _BOUNDED else 0
        budget = budget_of(self.budget if self.is_limited else 1.0, present, exits, start)
        return Race(exits, present, budget, preference, self.kind == "ucb", similarity)
