"""The PyTorch runtime: any model, any device, dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from doubtless.errors import InputError
from doubtless.neural.checkpoint import Model
from doubtless.neural.encoder import batch_of
from doubtless.neural.model import Batch, State
from doubtless.neural.stepper import Array, TokenBatch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class _Running:
    state: State
    score: torch.Tensor | None


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
            self.device, self.dtype = torch.device(device), DTYPES[dtype]
            self.estimator = model.estimator.to(self.device, self.dtype).eval()
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

    @property
    def size(self) -> int:
        """Size of a text's vector."""
        return self.estimator.encoder.size

    @torch.inference_mode()
    def start(self, batch: TokenBatch) -> _Running:
        """Embed a batch."""
        ids, mask = batch_of(batch.sequences, self.padding)
        rows = {name: torch.as_tensor(index).to(self.device) for name, index in batch.rows.items()}
        state = self.estimator.start(Batch(ids.to(self.device), mask.to(self.device), rows))
        return _Running(state, self._given(batch.score))

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

    def split(self, state: _Running) -> list[_Running]:
        """Each segment as a state of its own, which holds no memory of the others."""
        return [self.keep(state, np.array([row])) for row in range(len(state.state))]

    @torch.inference_mode()
    def join(self, states: Sequence[_Running]) -> _Running:
        """The segments of several states of one layer, one after another, as one state."""
        given = [state.score for state in states if state.score is not None]
        joined = self.estimator.join([state.state for state in states])
        return _Running(joined, torch.cat(given) if given else None)

    def held(self, state: _Running) -> int:
        """How many bytes a state holds."""
        return sum(value.nbytes for value in vars(state.state).values() if isinstance(value, torch.Tensor))

    @torch.inference_mode()
    def vectors(self, sequences: Sequence[Sequence[int]]) -> Array:
        """The vector of each sequence at the last exit: what the head combines for separate inputs."""
        rows = {"text": np.arange(len(sequences))}
        state = self.advance(self.start(TokenBatch(sequences, rows)), self.depth)
        return self.estimator.features(state.state)["text"].float().cpu().numpy()

    @torch.inference_mode()
    def read_vectors(self, vectors: Mapping[str, Array], score: Array | None = None) -> dict[str, Array]:
        """Outputs from the vectors of each segment's texts."""
        found = {name: torch.as_tensor(rows).to(self.device, self.dtype) for name, rows in vectors.items()}
        return _arrays(self.estimator.head_outputs(found, len(self.exits) - 1, self._given(score)))

    @contextmanager
    def dropout(self, seed: int) -> Iterator[None]:
        """Run with dropout on, from a seed; evaluation mode and the random state come back afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.estimator.train()
            try:
                yield
            finally:
                self.estimator.eval()

    def _given(self, score: Array | None) -> torch.Tensor | None:
        return None if score is None else torch.as_tensor(score).to(self.device)


def _arrays(outputs: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {name: tensor.float().cpu().numpy() for name, tensor in outputs.items()}
