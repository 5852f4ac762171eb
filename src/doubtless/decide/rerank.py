"""Find the best of many candidates without scoring them all (paper 003, section 4).

:func:`rerank` runs a policy on a live model, :func:`replay` on a recorded trace of one. In both the chosen
candidate is judged by its last-layer score; the layers that it still lacked are charged apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import ndtr

from doubtless.decide import race
from doubtless.decide.candidates import Pools
from doubtless.decide.methods import Method
from doubtless.decide.race import TO_SD, Array, Policy, Race
from doubtless.decide.similarity import similarities
from doubtless.neural.engine import Engine
from doubtless.neural.exits import predicted_change
from doubtless.neural.live import MEMORY, Live
from doubtless.neural.rows import Texts
from doubtless.segments import Floats

__all__ = ["Choices", "Method", "Reranked", "Trace", "replay", "rerank"]

_AT_ONCE = 4_096


@dataclass(frozen=True, eq=False)
class Choices:
    """What was chosen for each source.

    Parameters
    ----------
    chosen, runner_up
        Columns of the two best candidates; ``runner_up`` is -1 where there is only one.
    spent, finishing
        Layers that choosing took, and those that the chosen one then lacked to its last-layer score.
    full
        Layers that scoring all candidates takes.
    """

    chosen: Array
    runner_up: Array
    spent: Array
    finishing: Array
    full: Array

    @classmethod
    def of(cls, policy: Policy, ended: Race) -> Choices:
        """Choose at the end of a race."""
        eligible, rows = policy.eligible(ended), np.arange(len(ended.present))
        chosen = ended.leader(eligible)
        others = ended.present & (np.arange(ended.present.shape[1]) != chosen[:, None])
        # If nobody else was eligible, somebody who fell behind comes second.
        alone = ~(eligible & others).any(axis=1, keepdims=True)
        second = ended.leader(np.where(alone, others & (ended.place > 0), eligible & others))
        known = (others & (ended.place > 0)).any(axis=1)
        finishing = int(ended.exits[-1]) - ended.layers(ended.place[rows, chosen])
        return cls(chosen, np.where(known, second, -1), ended.spent, finishing, ended.full)

    @property
    def cost(self) -> float:
        """Share of the full cost that choosing took, over all sources."""
        return float(self.spent.sum() / self.full.sum())


@dataclass(frozen=True, eq=False)
class Trace:
    """What every exit says of every candidate: ``score`` and ``change`` (sources, candidates, exits).

    Examples
    --------
    >>> score = np.array([[[0.2, 0.5], [0.4, 0.3]]])
    >>> trace = Trace(np.array([1, 2]), np.ones((1, 2), bool), score, np.full((1, 2, 2), 0.4))
    >>> replay(trace, Method("full")).chosen
    array([0])
    """

    exits: Array
    present: Array
    score: Floats
    change: Floats

    @classmethod
    def of(cls, engine: Engine, texts: Texts, pools: Pools) -> Trace:
        """Run all candidates through all layers."""
        rows = pools.rows[pools.present]
        traced = engine.trace({name: [values[row] for row in rows] for name, values in texts.items()})
        sign = 1.0 if engine.config.direction == "higher" else -1.0

        def matrix(values: Array) -> Floats:
            made = np.zeros((*pools.rows.shape, len(engine.stepper.exits)))
            made[pools.present] = values.T
            return made

        exits = np.array(engine.stepper.exits)
        return cls(exits, pools.present, matrix(sign * traced["score"]), matrix(predicted_change(traced)))

    @property
    def final(self) -> Floats:
        """Scores of the last layer; -inf where there is no candidate."""
        return np.where(self.present, self.score[:, :, -1], -np.inf)

    def advance(self, rows: Array, columns: Array, places: Array) -> tuple[Floats, Floats]:
        """What was recorded at these places."""
        return self.score[rows, columns, places - 1], self.change[rows, columns, places - 1] * TO_SD

    def take(self, sources: Array) -> Trace:
        """Some of the sources."""
        return Trace(self.exits, *(getattr(self, f.name)[sources] for f in fields(self)[1:]))


def replay(
    trace: Trace,
    method: Method,
    preference: Floats | None = None,
    similarity: Sequence[Floats] | None = None,
) -> Choices:
    """Choose as :func:`rerank` would, from a recorded trace."""
    policy = method.policy
    course = method.start_race(trace.exits, trace.present, preference, similarity)
    race.run(policy, course, trace.advance, method.lead)
    return Choices.of(policy, course)


@dataclass(frozen=True, eq=False)
class Reranked:
    """The chosen candidates and what is known of them; every array has one entry a source.

    Parameters
    ----------
    row, runner_up
        Rows of the table; ``runner_up`` is -1 where there is no other candidate.
    outputs
        What the last layer says of the chosen ones: ``score``, ``error``, …
    other
        What is known of the runner-up: ``score`` is what the last layer is expected to say, by what the exit
        that it came to says and what the layers above did to others of its source; ``error`` is what that
        exit says, ``doubt`` the standard deviation of what further layers would change.
    candidates
        How many different ones there were.
    choices
        What it cost.
    truncated
        Whether some of the chosen one's text did not fit.
    again
        Layers that were run a second time for want of memory.
    higher
        Whether higher scores are better.
    """

    row: Array
    runner_up: Array
    outputs: dict[str, Array]
    other: dict[str, Array]
    candidates: Array
    choices: Choices
    truncated: Array
    again: int
    higher: bool = True

    def chance(self, sd: Floats | None = None, other_sd: Floats | None = None) -> Floats:
        """The chance that people, too, would prefer the chosen candidate to the runner-up.

        The errors of the two scores are taken as normal and independent, and what further layers would have
        changed of the runner-up's score is added to its doubt. Errors on the same source tend to be alike,
        so that the chance is rather too near to one half. NaN where there is no runner-up.

        Parameters
        ----------
        sd, other_sd
            Standard deviations of the two scores' errors; by default those that the model predicts.
        """
        mine = self.outputs["error"] * TO_SD if sd is None else sd
        theirs = self.other["error"] * TO_SD if other_sd is None else other_sd
        doubt = np.sqrt(mine**2 + theirs**2 + self.other["doubt"] ** 2)
        gap = (self.outputs["score"] - self.other["score"]) * (1 if self.higher else -1)
        return np.where(self.runner_up >= 0, ndtr(gap / np.maximum(doubt, 1e-12)), np.nan)


def rerank(
    engine: Engine,
    texts: Texts,
    pools: Pools,
    method: Method | None = None,
    *,
    preference: Floats | None = None,
    memory: int = MEMORY,
    progress: Callable[[int], None] | None = None,
) -> Reranked:
    """Choose a candidate for each source.

    Candidates of many sources are advanced together. States of as many sources as fit into ``memory`` bytes
    are kept at a time, and then let go; of a source that needs more by itself, those that were not used for
    longest are given up and run again if need be.

    Parameters
    ----------
    engine
        A model with exits.
    texts
        Lists of ``mt`` and ``src``, one entry a row of the table.
    pools
        Which rows compete.
    method
        How to choose; by default a race, which spends what the doubt demands.
    preference
        For ``random``, ``logprob`` and ``similar``: a matrix like the pools', the highest first.
    memory
        Most bytes of states.
    progress
        Called with the number of sources that are done.

    Examples
    --------
    >>> found = rerank(open_engine(), texts, Pools.of(table))  # doctest: +SKIP
    >>> [texts["mt"][row] for row in found.row]  # doctest: +SKIP
    """
    method = method or Method()
    parts = []
    for sources in _portions(pools.present.sum(axis=1), _AT_ONCE):
        rows, present = pools.rows[sources], pools.present[sources]
        live = Live(
            engine, {name: [values[r] for r in rows[present]] for name, values in texts.items()}, memory
        )
        numbers = np.full(rows.shape, -1)
        numbers[present] = np.arange(len(live))
        taken = np.zeros(rows.shape)
        taken[present] = live.bytes
        for fitting in _portions(taken.sum(axis=1), memory):
            liked = None if preference is None else preference[sources][fitting]
            alike = similarities(texts["mt"], rows[fitting]) if method.kind == "similar" else None
            parts.append(_rerank(live, numbers[fitting], rows[fitting], method, liked, alike))
            if progress is not None:
                progress(len(parts[-1].row))
    return _concatenated(parts)


def _rerank(
    live: Live,
    numbers: Array,
    rows: Array,
    method: Method,
    preference: Floats | None,
    similarity: Sequence[Floats] | None,
) -> Reranked:
    """Choose among candidates whose states fit into memory; ``numbers`` are theirs in ``live``."""
    policy, present = method.policy, numbers >= 0
    course = method.start_race(live.exits, present, preference, similarity)
    higher, before = live.engine.config.direction == "higher", live.again

    def advance(sources: Array, columns: Array, places: Array) -> tuple[Floats, Floats]:
        chosen = numbers[sources, columns]
        live.advance(chosen, places)
        change = predicted_change(live.outputs)[chosen]
        score = live.outputs["score"][chosen]
        return score if higher else -score, change * TO_SD

    race.run(policy, course, advance, method.lead)
    choices = Choices.of(policy, course)
    race.run(race.Finish(choices.chosen), course, advance)
    sources, has_other = np.arange(len(rows)), choices.runner_up >= 0
    first = sources, choices.chosen
    second = sources, np.where(has_other, choices.runner_up, choices.chosen)
    outputs = {name: values[numbers[first]] for name, values in live.outputs.items()}
    other = {
        "score": course.levelled[second] * (1 if higher else -1),
        "error": live.outputs["error"][numbers[second]],
        "doubt": course.doubt[second],
    }
    live.forget()
    chosen, runner_up = rows[first], np.where(has_other, rows[second], -1)
    counts, again = present.sum(axis=1), live.again - before
    truncated = live.truncated[numbers[first]]
    return Reranked(chosen, runner_up, outputs, other, counts, choices, truncated, again, higher)


def _portions(weights: Array, most: float) -> Iterator[slice]:
    """Consecutive items that together do not weigh more than this, or are one.

    >>> list(_portions(np.array([2, 2, 5, 1]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start, total = 0, 0.0
    for number, weight in enumerate(weights.tolist()):
        if number > start and total + weight > most:
            yield slice(start, number)
            start, total = number, 0.0
        total += weight
    yield slice(start, len(weights))


def _concatenated(parts: list[Reranked]) -> Reranked:
    def joined(name: str, of: Any = None) -> Array:
        return np.concatenate([getattr(part if of is None else getattr(part, of), name) for part in parts])

    return Reranked(
        joined("row"),
        joined("runner_up"),
        {name: np.concatenate([part.outputs[name] for part in parts]) for name in parts[0].outputs},
        {name: np.concatenate([part.other[name] for part in parts]) for name in parts[0].other},
        joined("candidates"),
        Choices(*(joined(f.name, "choices") for f in fields(Choices))),
        joined("truncated"),
        sum(part.again for part in parts),
        parts[0].higher,
    )
