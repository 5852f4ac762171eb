"""Steppers: a model that is advanced layer by layer. What makes early exit real.

The engine, the exits and whatever else decides how much of a model to run know only the four calls of
:class:`Stepper`, with plain arrays on the outside. Rows that were not kept cost nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from doubtless.errors import InputError
from doubtless.neural.checkpoint import Model
from doubtless.neural.encoder import batch_of
from doubtless.neural.model import Batch, State

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

    def keep(self, state: Any, rows: Array) -> Any:
        """Go on with some of the segments only."""
        ...


@dataclass(frozen=True)
class _Running:
    state: State
    score: torch.Tensor | None


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchStepper:
    """A PyTorch model as a stepper.

    Parameters
    ----------
    model
        A loaded model; it is put into evaluation mode.
    device, dtype
        Where and in which precision it runs.
    """

    def __init__(self, model: Model, device: str = "cpu", dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise InputError(f"dtype is one of {', '.join(DTYPES)}, found '{dtype}'")
        try:
            self.device = torch.device(device)
            self.estimator = model.estimator.to(self.device, DTYPES[dtype]).eval()
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device '{device}' cannot be used ({str(error).splitlines()[0]})") from None
        self.padding = model.tokens.padding

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers that can be read."""
        return self.estimator.exits

    @property
    def depth(self) -> int:
        """The last layer that is needed."""
        return self.estimator.exits[-1]

    @torch.inference_mode()
    def start(self, batch: TokenBatch) -> _Running:
        """Embed a batch."""
        ids, mask = batch_of(batch.sequences, self.padding)
        rows = {name: torch.as_tensor(index).to(self.device) for name, index in batch.rows.items()}
        score = None if batch.score is None else torch.as_tensor(batch.score).to(self.device)
        return _Running(self.estimator.start(Batch(ids.to(self.device), mask.to(self.device), rows)), score)

    @torch.inference_mode()
    def advance(self, state: _Running, to_layer: int) -> _Running:
        """Run the layers up to ``to_layer``."""
        return _Running(self.estimator.advance(state.state, to_layer), state.score)

    @torch.inference_mode()
    def read(self, state: _Running) -> dict[str, Array]:
        """Outputs of the segments at the current layer."""
        return _arrays(self.estimator.read(state.state, state.score))

    @torch.inference_mode()
    def read_words(self, state: _Running) -> Array:
        """Probabilities of the tags of each token (segments, tokens, tags)."""
        running = state.state
        if running.words is None:
            running = self.estimator.advance(running, self.estimator.word_layer)
        return torch.softmax(self.estimator.read_words(running).float(), dim=-1).cpu().numpy()

    @torch.inference_mode()
    def keep(self, state: _Running, rows: Array) -> _Running:
        """Go on with some of the segments only."""
        index = torch.as_tensor(rows).to(self.device)
        score = None if state.score is None else state.score[index]
        return _Running(self.estimator.keep(state.state, index), score)

    @torch.inference_mode()
    def vectors(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """The vector of each sequence at the last exit: what the head combines for separate inputs."""
        rows = {"text": np.arange(len(sequences))}
        state = self.advance(self.start(TokenBatch(sequences, rows)), self.depth)
        return self.estimator.features(state.state)["text"]

    @torch.inference_mode()
    def read_vectors(
        self, vectors: Mapping[str, torch.Tensor], score: Array | None = None
    ) -> dict[str, Array]:
        """Outputs from the vectors of each segment's texts."""
        given = None if score is None else torch.as_tensor(score).to(self.device)
        return _arrays(self.estimator.head_outputs(vectors, len(self.exits) - 1, given))

    @contextmanager
    def dropout(self, seed: int) -> Any:
        """Run with dropout on, from a seed; evaluation mode and the random state come back afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.estimator.train()
            try:
                yield
            finally:
                self.estimator.eval()


def _arrays(outputs: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {name: tensor.float().cpu().numpy() for name, tensor in outputs.items()}
