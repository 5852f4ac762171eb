"""When to stop: rules that let a row leave before the last layer (paper 003, section 3 and appendix D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from doubtless.errors import InputError
from doubtless.neural.stepper import Array, Stepper, TokenBatch

_VARIANCE_WINDOW = 3


@dataclass(frozen=True)
class ExitRule:
    """A row leaves at the first layer at which the rule holds.

    ``confidence``: the predicted change to the last layer's score, of models that have none the predicted
    error, is below ``value``. ``constant``: layer ``value`` is reached.
    ``variance``: the scores of the last three layers have a variance below ``value``.

    >>> ExitRule.parse("0.1")
    ExitRule(kind='confidence', value=0.1)
    >>> ExitRule.parse("constant:6").value
    6.0
    """

    kind: Literal["confidence", "constant", "variance"]
    value: float

    @classmethod
    def parse(cls, text: str) -> ExitRule:
        """Read ``TOLERANCE``, ``constant:LAYER`` or ``variance:THRESHOLD``."""
        kind, _, number = text.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if kind not in ("", "confidence", "constant", "variance") or not np.isfinite(value):
            raise InputError(f"an exit is TOLERANCE, constant:LAYER or variance:THRESHOLD, found '{text}'")
        return cls(kind or "confidence", value)  # type: ignore[arg-type]

    def leaves(self, layer: int, outputs: Mapping[str, Array], history: Sequence[Array]) -> Array:
        """Which rows leave at this layer, given their outputs here and their scores at each exit so far."""
        n = len(history[-1])
        if self.kind == "constant":
            return np.full(n, layer >= self.value)
        if self.kind == "variance":
            if len(history) < _VARIANCE_WINDOW:
                return np.zeros(n, dtype=bool)
            return np.var(np.stack(history[-_VARIANCE_WINDOW:]), axis=0) < self.value
        return predicted_change(outputs) < self.value


def predicted_change(outputs: Mapping[str, Array]) -> Array:
    """How far the last layer's score is expected to be; of models that do not say, their predicted error.

    >>> predicted_change({"error": np.array([0.4]), "change": np.array([0.1])})
    array([0.1])
    """
    if "error" not in outputs:
        raise InputError("the model predicts no error: nothing says what its last layers would change")
    return outputs.get("change", outputs["error"])


def run(stepper: Stepper, batch: TokenBatch, rule: ExitRule | None = None) -> tuple[dict[str, Array], Array]:
    """Score one batch; return the outputs of its rows and the layer at which each was read.

    With a rule, rows that leave are taken out of the batch: the layers above cost nothing for them.
    """
    state = stepper.start(batch)
    n = len(next(iter(batch.rows.values())))
    if rule is None:
        outputs = stepper.read(stepper.advance(state, stepper.depth))
        return outputs, np.full(n, stepper.depth)
    return _run_with_exits(stepper, state, n, rule)


def _run_with_exits(stepper: Stepper, state: Any, n: int, rule: ExitRule) -> tuple[dict[str, Array], Array]:
    rows, layers = np.arange(n), np.zeros(n, dtype=np.int64)
    found: dict[str, Array] = {}
    history: list[Array] = []
    for layer in stepper.exits:
        state = stepper.advance(state, layer)
        outputs = stepper.read(state)
        history.append(outputs["score"])
        leave = rule.leaves(layer, outputs, history) | (layer == stepper.exits[-1])
        if not leave.any():
            continue
        for name, values in outputs.items():
            found.setdefault(name, np.zeros((n, *values.shape[1:]), dtype=values.dtype))
            found[name][rows[leave]] = values[leave]
        layers[rows[leave]] = layer
        stay = ~leave
        if not stay.any():
            break
        state = stepper.keep(state, stay)
        rows, history = rows[stay], [scores[stay] for scores in history]
    return found, layers


def replay(
    rule: ExitRule, exits: Sequence[int], traced: Mapping[str, Array]
) -> tuple[dict[str, Array], Array]:
    """What a rule would give, from the outputs of every exit (:meth:`~doubtless.neural.engine.Engine.trace`).

    Examples
    --------
    >>> traced = {"score": np.array([[0.0, 1.0], [2.0, 3.0]]), "error": np.array([[0.1, 0.9], [0.5, 0.5]])}
    >>> found, layers = replay(ExitRule("confidence", 0.2), [1, 2], traced)
    >>> found["score"].tolist(), layers.tolist()
    ([0.0, 3.0], [1, 2])
    """
    scores = list(traced["score"])
    place = np.full(len(scores[-1]), len(exits) - 1)
    for number in reversed(range(len(exits) - 1)):
        outputs = {name: values[number] for name, values in traced.items()}
        place[rule.leaves(exits[number], outputs, scores[: number + 1])] = number
    rows = np.arange(len(place))
    return {name: values[place, rows] for name, values in traced.items()}, np.asarray(exits)[place]
