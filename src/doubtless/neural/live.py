"""Segments that are each at a layer of their own, and go on together: what a bandit pulls.

The state of a segment is kept between two calls, so that going on costs the new layers only. What is kept is
bounded: beyond the bound the states that were not used for longest are given up, and their segments are run
again from the start should they be needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from doubtless.errors import InputError
from doubtless.neural.engine import Engine
from doubtless.neural.pairs import corrected, correction_of
from doubtless.neural.rows import Texts, token_batches
from doubtless.neural.stepper import Array

MEMORY = 256 << 20
"""Most bytes of states that are kept."""


class Live:
    """Segments on their way through a model.

    Parameters
    ----------
    engine
        A model with exits.
    texts
        Lists of ``mt``, ``src`` and ``ref``, as the model uses them, and of ``lp``.
    memory
        Most bytes of states that are kept between two calls; a batch on its way comes on top.

    Attributes
    ----------
    place
        How many exits each segment has passed; 0: it has not begun.
    outputs
        What each said at the last exit that it was read at; zeros before.
    again
        Layers that were run a second time because a state had been given up.

    Examples
    --------
    >>> live = Live(open_engine(), {"src": ["Haus", "Haus"], "mt": ["house", "horse"]})  # doctest: +SKIP
    >>> live.advance(np.array([0, 1]), np.array([3, 12]))  # doctest: +SKIP
    >>> live.outputs["score"]  # doctest: +SKIP
    """

    def __init__(self, engine: Engine, texts: Texts, memory: int = MEMORY) -> None:
        if engine.config.exits != "every":
            raise InputError("the model has no exits before its last layer")
        self.engine, self.memory = engine, memory
        self.exits = np.array(engine.stepper.exits)
        self._rows = engine.rows(texts)
        self._correction = correction_of(engine.surface, texts)
        self.truncated = self._rows.truncated
        self.sizes = self._rows.sizes[self._rows.origin]
        self.place = np.zeros(len(self.sizes), dtype=np.int64)
        self.outputs: dict[str, Array] = {}
        self.again = 0
        self._states: dict[int, Any] = {}  # in the order in which they were used
        self._held = 0

    def __len__(self) -> int:
        return len(self.place)

    @property
    def bytes(self) -> Array:
        """What the state of each segment takes, before any of them is run."""
        shortest = np.argmin(self.sizes)
        state = self.engine.stepper.start(self._rows.batch(self._rows.origin[[shortest]]))
        return self.sizes * (self.engine.stepper.held(state) / self.sizes[shortest])

    def advance(self, rows: Array, places: Array) -> None:
        """Take segments to their next places and read them there; the exits between are not read.

        Parameters
        ----------
        rows
            Numbers of segments, none of them twice.
        places
            How many exits each shall have passed.
        """
        steps = np.stack([self.place[rows], places], axis=1)
        for came, goes in np.unique(steps[steps[:, 0] < steps[:, 1]], axis=0):
            together = rows[(steps == (came, goes)).all(axis=1)]
            for batch in token_batches(self.sizes[together], self.engine.batch_tokens):
                self._advance(together[batch], int(goes))

    def _advance(self, rows: Array, place: int) -> None:
        """Take segments that are at one place to another."""
        stepper = self.engine.stepper
        rows, state = self._resumed(rows)
        state = stepper.advance(state, int(self.exits[place - 1]))
        correction = None if self._correction is None else self._correction[rows]
        for name, values in corrected(stepper.read(state), correction).items():
            self.outputs.setdefault(name, np.zeros((len(self), *values.shape[1:])))[rows] = values
        self.place[rows] = place
        if place < len(self.exits):
            for row, alone in zip(rows.tolist(), stepper.split(state), strict=True):
                self._states[row] = alone
                self._held += stepper.held(alone)
            self._give_up()

    def _resumed(self, rows: Array) -> tuple[Array, Any]:
        """The state of segments at one place, in the order in which they are returned."""
        stepper = self.engine.stepper
        kept = np.array([row in self._states for row in rows.tolist()], dtype=bool)
        parts = [self._states.pop(row) for row in rows[kept].tolist()]
        self._held -= sum(map(stepper.held, parts))
        if not kept.all():
            anew = stepper.start(self._rows.batch(self._rows.origin[rows[~kept]]))
            place = self.place[rows[0]]
            if place:
                layer = int(self.exits[place - 1])
                anew = stepper.advance(anew, layer)
                self.again += layer * int((~kept).sum())
            parts.append(anew)
        return np.concatenate([rows[kept], rows[~kept]]), stepper.join(parts) if len(parts) > 1 else parts[0]

    def _give_up(self) -> None:
        while self._held > self.memory:
            self._held -= self.engine.stepper.held(self._states.pop(next(iter(self._states))))

    def forget(self) -> None:
        """Let go of all states: these segments are done with."""
        self._states.clear()
        self._held = 0
