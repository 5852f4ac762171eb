"""Which candidates to look at more closely: policies, apart from what executes them (paper 003, section 4).

Candidates of a source compete; each can be taken from one exit of the model to a later one, which costs
layers and makes its score surer. A policy sees the scores and doubts so far and says how far each candidate
shall go next. Sources are rows of matrices, so that all of them are advanced together; a policy decides for
each row by itself. The same policy runs on a live model and on a recorded trace of one, and must choose the
same there: studies replay hundreds of budgets on one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from doubtless.errors import InputError
from doubtless.segments import Floats

Array = np.ndarray[Any, Any]

TO_SD = float(np.sqrt(np.pi / 2))
"""Standard deviation of a normal variable whose mean absolute value is one."""

_BISECTIONS = 30
_TOGETHER = 10  # a bandit that levels scores pulls one in so many candidates of a source at a time


@dataclass
class Race:
    """Sources in the rows, their candidates in the columns, and how far each of them is.

    Parameters
    ----------
    exits
        The layers that can be read.
    present
        Which places of the matrix hold a candidate: sources have different numbers of them.
    budget
        Most layers that may be run for each source.
    preference
        For policies that choose beforehand: whom they would score first, the highest.
    similarity
        For the policy that uses it: for each source, how alike its candidates are.
    level
        Whether candidates that are at different exits are compared by :attr:`levelled` scores or by those
        that they have.

    Attributes
    ----------
    score, doubt
        What the exit reached last says, and the standard deviation of what the layers above it will change.
    place
        How many exits each candidate has passed.
    moved, moves
        For each exit the sum of the steps by which scores came to it from the exit before, and their number.
    bound
        The lowest upper bound that each candidate has had so far, for the policy that uses bounds.
    """

    exits: Array
    present: Array
    budget: Floats
    preference: Floats | None = None
    level: bool = False
    similarity: Sequence[Floats] | None = None
    score: Floats = field(init=False)
    doubt: Floats = field(init=False)
    place: Array = field(init=False)
    moved: Floats = field(init=False)
    moves: Array = field(init=False)
    bound: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.score = np.full(self.present.shape, -np.inf)
        self.doubt = np.zeros(self.present.shape)
        self.place = np.zeros(self.present.shape, dtype=np.int64)
        self.moved = np.zeros((len(self.present), self.depth))
        self.moves = np.zeros((len(self.present), self.depth), dtype=np.int64)
        self.bound = np.full(self.present.shape, np.inf)

    def record(self, rows: Array, columns: Array, places: Array, score: Floats, doubt: Floats) -> None:
        """Take down what candidates are said to be at the places that they have come to."""
        before = self.place[rows, columns]
        step = (before > 0) & (places == before + 1)
        to = rows[step], places[step] - 1
        np.add.at(self.moved, to, (score - self.score[rows, columns])[step])
        np.add.at(self.moves, to, 1)
        self.score[rows, columns] = score
        self.doubt[rows, columns] = np.where(places == self.depth, 0.0, np.maximum(doubt, 0.0))
        self.place[rows, columns] = places

    @property
    def expected(self) -> Floats:
        """What candidates are compared by."""
        return self.levelled if self.level else self.score

    @property
    def levelled(self) -> Floats:
        """What each candidate would score where the furthest of its source is, if all moved alike.

        Layers move all candidates of a source up or down together, more than they move them against each
        other. The mean step of those that have gone from one exit to the next is expected of the others too.
        """
        common = np.cumsum(self.moved / np.maximum(self.moves, 1), axis=1)
        here = np.take_along_axis(common, np.maximum(self.place - 1, 0), axis=1)
        there = np.take_along_axis(common, np.maximum(self.place.max(axis=1, keepdims=True) - 1, 0), axis=1)
        return self.score + there - here

    @property
    def depth(self) -> int:
        """How many exits there are."""
        return len(self.exits)

    def layers(self, place: Array) -> Array:
        """Layers below a place."""
        return np.concatenate([[0], self.exits])[place]

    @property
    def spent(self) -> Array:
        """Layers that were run for each source."""
        return self.layers(self.place).sum(axis=1)

    @property
    def full(self) -> Array:
        """Layers that scoring all candidates of a source takes."""
        return self.present.sum(axis=1) * int(self.exits[-1])

    @property
    def furthest(self) -> Array:
        """The candidates that passed most exits."""
        return self.present & (self.place == self.place.max(axis=1, keepdims=True))

    def leader(self, among: Array | None = None) -> Array:
        """The candidate of the highest (expected) score in each row."""
        return np.argmax(np.where(self.present if among is None else among, self.expected, -np.inf), axis=1)


class Policy(Protocol):
    """Says how far candidates shall go next, and which of them to choose when none goes on."""

    def places(self, race: Race) -> Array:
        """How many exits each candidate shall have passed after the next step; as now: it waits."""
        ...

    def eligible(self, race: Race) -> Array:
        """The candidates among which the one of the highest score is chosen."""
        ...


Advance = Callable[[Array, Array, Array], tuple[Floats, Floats]]
"""Takes rows, columns and places of candidates to advance; gives their new scores and doubts."""


def run(policy: Policy, race: Race, advance: Advance, lead: float | None = None) -> None:
    """Let candidates compete until the policy is content.

    Parameters
    ----------
    policy
        What to do next.
    race
        Where they stand; changed in place.
    advance
        What executes it: a model, or the trace of one.
    lead
        Stop a source once its best candidate is ahead of every other by more than so many standard
        deviations of their difference (:func:`ahead`), whatever is left of the budget.
    """
    while True:
        places = np.where(race.present, np.maximum(policy.places(race), race.place), 0)
        if lead is not None:
            done = ahead(race, lead)
            places[done] = race.place[done]
        rows, columns = np.nonzero(places > race.place)
        if not len(rows):
            return
        targets = places[rows, columns]
        race.record(rows, columns, targets, *advance(rows, columns, targets))


def ahead(race: Race, lead: float) -> Array:
    """Which sources have a best candidate that leads all others by more than the doubt.

    >>> race = Race(np.array([1, 2]), np.ones((2, 2), bool), np.full(2, 4.0))
    >>> race.place[:], race.score[:], race.doubt[:] = 1, [[1.0, 0.5], [1.0, 0.9]], 0.1
    >>> ahead(race, 2.0)
    array([ True, False])
    """
    best, expected = race.leader()[:, None], race.expected
    score, doubt = (np.take_along_axis(values, best, axis=1) for values in (expected, race.doubt))
    others = race.present & (np.arange(race.present.shape[1]) != best)
    with np.errstate(invalid="ignore"):
        behind = score - expected > lead * np.hypot(doubt, race.doubt)
    return (behind | ~others).all(axis=1) & (race.place > 0).any(axis=1)


@dataclass(frozen=True)
class Bandit:
    """Upper confidence bounds (Algorithm 2): the candidate of the highest bound goes one exit further.

    In a race whose scores are not levelled, these are exactly the pulls of the algorithm, in another order
    and in large batches: the bound of a candidate depends on nothing but its own scores. So the algorithm
    makes its pulls in the order of the lowest bound that each candidate has had up to then, and a candidate
    with better ones before it has its turn after these have run all the layers that are left to them, at the
    latest. If the budget reaches that far it can be advanced at once.

    In one whose scores are, a pull tells something of all candidates. There a tenth of them, at least one,
    is pulled at a time.

    Parameters
    ----------
    gamma
        How many standard deviations are added to the score.
    start
        The exit that all candidates are taken to first.
    """

    gamma: float = 1.0
    start: int = 1

    def places(self, race: Race) -> Array:
        """One further, for those whose turn has come or is certain to come."""
        begun = np.where(race.present, np.maximum(race.place, min(self.start, race.depth)), 0)
        if (begun > race.place).any():
            return begun
        running, here = race.present & (race.place < race.depth), race.layers(race.place)
        step = race.layers(np.minimum(race.place + 1, race.depth)) - here
        left = (race.budget - race.spent)[:, None]
        if race.level:
            rank, before = _queue(race.expected + self.gamma * race.doubt, running, step)
            together = np.maximum(race.present.sum(axis=1, keepdims=True) // _TOGETHER, 1)
            return race.place + (running & (rank < together) & (before + step <= left))
        race.bound = np.minimum(race.bound, race.score + self.gamma * race.doubt)
        _, before = _queue(race.bound, running, int(race.exits[-1]) - here)
        return race.place + (running & (before + step <= left))

    def eligible(self, race: Race) -> Array:
        """All: each is judged by its most advanced score."""
        return race.present


def _queue(bound: Floats, running: Array, cost: Array) -> tuple[Array, Array]:
    """The rank of each candidate by its bound, and what all that come before it cost together."""
    order = np.argsort(-np.where(running, bound, -np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    ordered = np.take_along_axis(np.where(running, cost, 0), order, axis=1)
    return rank, np.take_along_axis(np.cumsum(ordered, axis=1) - ordered, rank, axis=1)


@dataclass(frozen=True)
class Halving:
    """Successive halving: all candidates are compared at the same exit, and a share of them goes on.

    Layers move all scores of a source alike, more than they move candidates against each other. A bandit
    compares candidates at different layers and takes part of that for quality; here it cancels out. After l
    of L exits a share of 1 - (l / L)^k goes on, with k such that the budget suffices: with little to spend
    most are dropped at once, with much to spend late. Those go on whose score plus ``gamma`` standard
    deviations is highest. When only one would go on, it has won.
    """

    gamma: float = 1.0
    start: int = 1

    def places(self, race: Race) -> Array:
        """The best of those that are furthest."""
        place = race.place.max(axis=1)
        if not place.all():
            return np.where(race.present, min(self.start, race.depth), 0)
        running = race.furthest & (race.place < race.depth)
        go_on = self.survivors(race)[np.arange(len(place)), np.minimum(place, race.depth - 1)]
        rank, _ = _queue(race.score + self.gamma * race.doubt, running, race.place)
        return race.place + (running & (rank < go_on[:, None]))

    def survivors(self, race: Race) -> Array:
        """How many candidates of each source are taken to each exit; none where there is no choice left."""
        count, cost = race.present.sum(axis=1), np.diff(race.exits, prepend=0)
        begun = min(self.start, race.depth) - 1
        passed = np.maximum(np.arange(race.depth) - begun, 0) / (race.depth - begun)

        def reaching(share: Floats) -> Array:
            """The survivors if about so large a share of the full cost is spent."""
            power = share / np.maximum(1 - share, 1e-9)
            many = np.floor(count[:, None] * (1 - passed ** power[:, None]) + 1e-9)
            return np.where(passed == 0, count[:, None], np.where(many < 2, 0, many))

        low, high = np.full(len(count), 1e-9), np.ones(len(count))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            fits = reaching(middle) @ cost <= race.budget
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return np.where((race.full <= race.budget)[:, None], count[:, None], reaching(low)).astype(np.int64)

    def eligible(self, race: Race) -> Array:
        """Those that came furthest."""
        return race.furthest


@dataclass(frozen=True)
class Elimination:
    """Racing: a candidate leaves when the best is ahead of it by more than ``gamma`` times their doubt.

    There is no budget: what it costs is what the doubt demands.
    """

    gamma: float = 1.0
    start: int = 1

    def places(self, race: Race) -> Array:
        """All that may still win, one further."""
        if not race.place.any(axis=1).all():
            return np.where(race.present, min(self.start, race.depth), 0)
        running = race.furthest
        best = race.leader(running)[:, None]
        score, doubt = (np.take_along_axis(values, best, axis=1) for values in (race.score, race.doubt))
        may_win = running & (score - race.score <= self.gamma * np.hypot(doubt, race.doubt))
        open_still = may_win.sum(axis=1, keepdims=True) > 1
        return race.place + (may_win & open_still & (race.place < race.depth))

    def eligible(self, race: Race) -> Array:
        """Those that came furthest."""
        return race.furthest


@dataclass(frozen=True)
class Subset:
    """Score as many candidates in full as the budget pays for, in the order of preference."""

    def places(self, race: Race) -> Array:
        """The chosen ones, all the way."""
        assert race.preference is not None
        count = np.maximum(race.budget // int(race.exits[-1]), 1)[:, None]
        order = np.argsort(-np.where(race.present, race.preference, -np.inf), axis=1, kind="stable")
        rank = np.argsort(order, axis=1)
        return np.where(race.present & (rank < count), race.depth, 0)

    def eligible(self, race: Race) -> Array:
        """Those that were scored."""
        return race.place > 0


@dataclass(frozen=True)
class Exit:
    """Every candidate leaves by itself: at exit ``latest`` or where its predicted change is small."""

    latest: int | None = None
    tolerance: float = 0.0

    def places(self, race: Race) -> Array:
        """One further, but for those that have left."""
        latest = race.depth if self.latest is None else min(self.latest, race.depth)
        if not self.tolerance:
            return np.where(race.present, latest, 0)
        sure = (race.place > 0) & (race.doubt < self.tolerance * TO_SD)
        going = race.present & (race.place < latest) & ~sure
        return race.place + going

    def eligible(self, race: Race) -> Array:
        """All."""
        return race.present


FULL = Exit()
"""Score everything."""


@dataclass(frozen=True, eq=False)
class Finish:
    """Take the chosen candidates to the last exit.

    They go one exit at a time: every step tells what the layers above do to all candidates of the source.
    """

    chosen: Array

    def places(self, race: Race) -> Array:
        """The chosen ones, one further."""
        return race.place + (self.eligible(race) & (race.place < race.depth))

    def eligible(self, race: Race) -> Array:
        """The chosen ones."""
        return np.arange(race.present.shape[1]) == self.chosen[:, None]


def budget_of(share: float, present: Array, exits: Array, start: int = 1) -> Floats:
    """Most layers for each source, from a share of the cost of scoring all its candidates.

    >>> budget_of(0.5, np.array([[True, True, False]]), np.array([1, 2, 3, 4]))
    array([4.])
    """
    if not 0 < share <= 1:
        raise InputError(f"a budget is a share of the full cost, above 0 and at most 1, found {share}")
    least = np.concatenate([[0], exits])[min(start, len(exits))] / exits[-1]
    if share < least:
        raise InputError(
            f"a budget of {share:g} does not take all candidates to their first exit, which costs {least:.3g}"
        )
    # Shares are decimals: what they should buy exactly must not fail by the last bit.
    return np.floor(share * present.sum(axis=1) * exits[-1] + 1e-9)
