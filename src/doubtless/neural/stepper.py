"""Steppers: a model that is advanced layer by layer. What makes early exit real.

The engine, the exits and whatever else decides how much of a model to run know only the calls of
:class:`Stepper`, with plain arrays on the outside. Rows that were not kept cost nothing any more. There are
two runtimes: :mod:`doubtless.neural.torch_stepper` and :mod:`doubtless.neural.onnx_stepper`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenBatch:
    """Distinct token sequences, and for each segment the index of the sequence of each of its texts."""

    sequences: Sequence[Sequence[int]]
    rows: Mapping[str, Array]
    score: Array | None = None


class Stepper(Protocol):
    """A model that can be advanced layer by layer."""

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers that can be read."""
        ...

    @property
    def depth(self) -> int:
        """The last layer."""
        ...

    def start(self, batch: TokenBatch) -> Any:
        """Begin with a batch: the state below the first layer."""
        ...

    def advance(self, state: Any, to_layer: int) -> Any:
        """Run the layers up to ``to_layer``."""
        ...

    def read(self, state: Any) -> dict[str, Array]:
        """Outputs of the segments at the current layer."""
        ...

    def read_words(self, state: Any) -> Array:
        """Probabilities of the tags of each token (segments, tokens, tags)."""
        ...

    def keep(self, state: Any, rows: Array) -> Any:
        """Go on with some of the segments only."""
        ...

    def split(self, state: Any) -> list[Any]:
        """Each segment as a state of its own, which holds no memory of the others."""
        ...

    def join(self, states: Sequence[Any]) -> Any:
        """The segments of several states of one layer, one after another, as one state."""
        ...

    def held(self, state: Any) -> int:
        """How many bytes a state holds."""
        ...


class VectorStepper(Stepper, Protocol):
    """A stepper of a model that embeds each text apart: texts that segments share are embedded once."""

    @property
    def size(self) -> int:
        """Size of a vector."""
        ...

    def vectors(self, sequences: Sequence[Sequence[int]]) -> Array:
        """The vector of each sequence at the last exit: what the head combines for separate inputs."""
        ...

    def read_vectors(self, vectors: Mapping[str, Array], score: Array | None = None) -> dict[str, Array]:
        """Outputs from the vectors of each segment's texts."""
        ...
