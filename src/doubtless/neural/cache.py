"""What frozen layers make of each sequence, computed once and kept in a memory-mapped file.

Lower layers that never change give the same states in every epoch: with half of the layers frozen and their
outputs on disk, a step costs half as much, and nothing is computed for texts that several rows share.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doubtless.errors import InputError
from doubtless.formats.words import counted
from doubtless.neural.encoder import attention_mask, batch_of
from doubtless.neural.model import Batch, Estimator, State

Halves = np.ndarray[Any, np.dtype[np.float16]]

_TOKENS = 8192  # of a batch, padding included


@dataclass(frozen=True, eq=False)
class States:
    """States of sequences after a layer, in half precision.

    ``pooled`` has the vectors of each sequence from the embeddings to the layer; ``hidden`` the tokens of
    all sequences one after the other, sequence ``i`` from ``offsets[i]`` to ``offsets[i + 1]``. It is None
    where nothing is read above the layer.
    """

    layer: int
    pooled: Halves
    offsets: np.ndarray
    hidden: Halves | None = None
    tagged: bool = False
    first: np.ndarray | None = None

    def start(self, sequences: np.ndarray, rows: Mapping[str, Tensor]) -> State:
        """The state of some sequences, to go on from as if the encoder had been run up to here."""
        bounds = [(int(self.offsets[i]), int(self.offsets[i + 1])) for i in sequences]
        lengths = torch.tensor([end - begin for begin, end in bounds])
        longest = int(lengths.max())
        mask = torch.arange(longest)[None, :] < lengths[:, None]
        size = 0 if self.hidden is None else self.hidden.shape[1]
        hidden = torch.zeros(len(bounds), longest, size)
        if self.hidden is not None:
            for row, (begin, end) in enumerate(bounds):
                hidden[row, : end - begin] = torch.from_numpy(np.asarray(self.hidden[begin:end], np.float32))
        pooled = torch.from_numpy(np.asarray(self.pooled[sequences], dtype=np.float32))
        words = hidden if self.tagged else None
        first = None if self.first is None else torch.from_numpy(self.first[sequences])
        return State(self.layer, hidden, mask, attention_mask(mask), pooled, rows, words, first=first)


def cached_states(
    estimator: Estimator,
    sequences: Sequence[Sequence[int]],
    padding: int,
    layer: int,
    folder: Path,
    weights: str,
    say: Callable[[str], None] = lambda sentence: None,
    watch: Callable[[str, float], None] = lambda stage, share: None,
) -> States:
    """Run the layers up to ``layer`` over sequences, or read what an earlier run kept.

    Parameters
    ----------
    estimator
        The model; its encoder must be one that can be run layer by layer.
    sequences, padding
        Token ids and the id that fills up a batch.
    layer
        The last of the layers that stay as they are.
    folder
        Where the states are kept, under a name that depends on weights, sequences and layer.
    weights
        Digest of the encoder's frozen weights.
    say, watch
        Told in a sentence how much room is taken, and the share that is done.
    """
    if not estimator.encoder.steps:
        kind = estimator.encoder.config.model_type
        raise InputError(f"an encoder of the kind {kind} is not run layer by layer: no cache_states")
    top = estimator.exits[-1] if estimator.tagger is None else max(estimator.exits[-1], estimator.word_layer)
    tagged = estimator.tagger is not None and estimator.word_layer == layer
    config = estimator.config
    facts = [layer, top > layer or tagged, config.pooling, config.mix_norm and config.layer_mix != "none"]
    key = sha256(json.dumps([weights, facts]).encode() + repr([list(s) for s in sequences]).encode())
    place = folder / key.hexdigest()[:16]
    offsets = np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])])
    size, first = estimator.encoder.size, None
    if config.pooling == "parts":
        first = np.array([list(sequence).index(config.separator) for sequence in sequences])
    vectors = size if first is None else 2 * size
    shapes: dict[str, tuple[int, ...]] = {"pooled": (len(sequences), layer + 1, vectors)}
    if top > layer or tagged:
        shapes["hidden"] = (int(offsets[-1]), size)
    if not place.is_dir():
        needed = sum(2 * int(np.prod(shape)) for shape in shapes.values())
        say(f"the states of {counted(len(sequences), 'sequence')} take {needed / 1e6:,.1f} MB in {folder}")
        _check_room(folder, needed)
        part = place.with_name(place.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        files = {n: np.memmap(part / n, np.float16, "w+", shape=shape) for n, shape in shapes.items()}
        _fill(estimator, sequences, padding, layer, offsets, files, watch)
        for file in files.values():
            file.flush()
        part.rename(place)  # only what is whole gets its name
    found = {n: np.memmap(place / n, np.float16, "r", shape=shape) for n, shape in shapes.items()}
    return States(layer, found["pooled"], offsets, found.get("hidden"), tagged, first)


def _check_room(folder: Path, needed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(f"{folder}: cached states need {needed / 1e6:,.0f} MB, free are {free / 1e6:,.0f}")


@torch.no_grad()
def _fill(
    estimator: Estimator,
    sequences: Sequence[Sequence[int]],
    padding: int,
    layer: int,
    offsets: np.ndarray,
    files: Mapping[str, Halves],
    watch: Callable[[str, float], None],
) -> None:
    device = next(estimator.parameters()).device
    training = estimator.training
    estimator.eval()
    order = np.argsort(np.diff(offsets), kind="stable")
    done = 0
    while done < len(order):
        # Sorted by length, so that the first one that still fits is the longest of its batch.
        longest = len(sequences[order[done]])
        count = 1
        while done + count < len(order):
            longest = len(sequences[order[done + count]])
            if longest * (count + 1) > _TOKENS:
                break
            count += 1
        chosen = order[done : done + count]
        ids, mask = batch_of([sequences[i] for i in chosen], padding)
        state = estimator.advance(estimator.start(Batch(ids.to(device), mask.to(device), {})), layer)
        files["pooled"][chosen] = _halves(state.pooled)
        if "hidden" in files:
            hidden = _halves(state.hidden)
            for row, i in enumerate(chosen):
                files["hidden"][offsets[i] : offsets[i + 1]] = hidden[row, : len(sequences[i])]
        done += count
        watch("states", done / len(order))
    estimator.train(training)


def _halves(values: Tensor) -> Halves:
    halves = values.half()
    if not bool(torch.isfinite(halves).all()):
        raise InputError("the encoder's states are too large for half precision: no cache_states")
    return halves.cpu().numpy()
