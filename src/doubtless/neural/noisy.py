"""Passes with dropout over the same segments, cheaply: the encoder once, the passes all at once.

Dropout after the encoder leaves the encoder's pooled states alone: they are computed once, and serve every
pass and every change of what stands on them. The passes through layer mix and head are one batched
computation that draws the same random numbers, and gives the same scores, as passes one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.neural.adapt_plan import AdaptPlan
from doubtless.neural.encoder import batch_of
from doubtless.neural.engine import Engine
from doubtless.neural.heads import Head, LayerMix, combine, outputs_of
from doubtless.neural.model import Batch, Estimator
from doubtless.neural.pairs import told
from doubtless.neural.rows import Texts, token_batches
from doubtless.neural.stepper import Array
from doubtless.neural.torch_stepper import TorchStepper

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

_MEASURING = 0  # the epoch whose random numbers measure uncertainty; those that adapt count from 1
_ENCODING = 1 << 31  # in place of an epoch: random numbers of the encoder's own dropout
_ROWS_AT_ONCE = 256
_IN_MEMORY = 1 << 30  # bytes of states; more of them go to a file


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments and what the encoder made of their texts; :meth:`of` makes them.

    ``rows`` says which sequences a segment consists of, ``rank`` where it stands when all are sorted by
    their texts. ``states`` are pooled (passes, sequences, layers, size): one pass, or K where the encoder's
    dropout is on; None where the encoder itself is adapted, and run for every batch.
    """

    estimator: Estimator
    sequences: Sequence[Sequence[int]]
    rows: Mapping[str, Ints]
    rank: Ints
    padding: int
    states: Array | None

    @classmethod
    def of(cls, engine: Engine, texts: Texts, plan: AdaptPlan) -> Segments:
        """Run the encoder over the texts of segments, each distinct sequence once."""
        stepper = _adaptable(engine, texts, plan)
        texts = told(engine.config, texts)
        names = [name for name in engine.config.texts if name in texts]
        lines = list(zip(*(texts[name] for name in names), strict=True))
        order = sorted(range(len(lines)), key=lines.__getitem__)
        rank = np.empty(len(lines), dtype=np.int64)
        rank[order] = np.arange(len(lines))
        # In sorted order, so that nothing depends on the order in which segments come.
        sequences, rows = _sequences(engine, {name: [texts[name][i] for i in order] for name in names})
        states = None
        if "layernorm" not in plan.parameters:
            states = _encoded(stepper, sequences, engine.batch_tokens, plan)
        placed = {name: places[rank] for name, places in rows.items()}
        return cls(stepper.estimator, sequences, placed, rank, stepper.padding, states)

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, chosen: Ints) -> Segments:
        """Some of the segments; their states are shared, not copied."""
        rows = {name: places[chosen] for name, places in self.rows.items()}
        return replace(self, rows=rows, rank=self.rank[chosen])

    def batches(self, plan: AdaptPlan) -> list[Ints]:
        """Cut the segments into batches; which are together depends on their texts and the seed alone."""
        order = np.argsort(self.rank, kind="stable")
        order = order[np.random.default_rng(plan.seed).permutation(len(order))]
        return [order[start : start + plan.batch] for start in range(0, len(order), plan.batch)]

    def passes(self, plan: AdaptPlan) -> Floats:
        """Scores of K passes with dropout (passes, segments), always from the same random numbers."""
        found = np.empty((plan.k, len(self)))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for number, index in enumerate(self.batches(plan)):
                found[:, index] = self.drawn(index, plan, _MEASURING, number).double().cpu().numpy()
        return found

    def uncertainty(self, plan: AdaptPlan) -> Floats:
        """The standard deviation of each segment's score over K passes (equations 3 and 4)."""
        return self.passes(plan).std(axis=0)

    def drawn(self, index: Ints, plan: AdaptPlan, epoch: int, number: int) -> Tensor:
        """Scores of K passes over a batch, with the random numbers of an epoch and batch."""
        torch.manual_seed(seed_of(plan.seed, epoch, number))
        return noisy_scores(self.estimator, *self._pooled(index), plan.k)

    @torch.no_grad()
    def outputs(self) -> dict[str, Floats]:
        """What the model gives in the ordinary way, without dropout; for states of ``dropout=head``."""
        if self.states is not None and len(self.states) > 1:
            raise ValueError("the encoder's states were made with dropout")
        estimator = self.estimator
        parts: list[dict[str, Tensor]] = []
        for start in range(0, len(self), _ROWS_AT_ONCE):
            pooled, rows = self._pooled(np.arange(start, min(start + _ROWS_AT_ONCE, len(self))))
            mixed = estimator.mixes[-1](pooled[0]) if estimator.mixes else pooled[0, :, estimator.exits[-1]]
            vectors = {name: mixed[places] for name, places in rows.items()}
            parts.append(estimator.head_outputs(vectors, len(estimator.exits) - 1, None))
        return {name: torch.cat([part[name] for part in parts]).double().cpu().numpy() for name in parts[0]}

    def _pooled(self, index: Ints) -> tuple[Tensor, dict[str, Tensor]]:
        """Pooled states of the sequences of some segments, and which of them each segment consists of."""
        device = next(self.estimator.parameters()).device
        parts = [places[index] for places in self.rows.values()]
        used, place = np.unique(np.concatenate(parts), return_inverse=True)
        split = np.split(place, len(parts))
        rows = {name: torch.from_numpy(part).to(device) for name, part in zip(self.rows, split, strict=True)}
        if self.states is not None:
            return torch.from_numpy(self.states[:, used]).to(device), rows
        return _pooled_states(self.estimator, [self.sequences[i] for i in used], self.padding)[None], rows


def noisy_scores(estimator: Estimator, pooled: Tensor, rows: Mapping[str, Tensor], k: int) -> Tensor:
    """Scores of k passes with dropout after the encoder (passes, segments), all passes at once.

    What is random is drawn in the order in which k passes through the model in training mode, one after
    another, would draw it: from the same random state they give the same scores.
    """
    mix = cast(LayerMix, estimator.mixes[-1]) if len(estimator.mixes) else None
    layers = list(cast(Head, estimator.heads[-1]).layers)
    count = len(next(iter(rows.values())))
    shares: list[Tensor] = []
    masks: list[list[Tensor]] = []
    for _ in range(k):
        if mix is not None and (mix.dropout or not shares):
            shares.append(mix.shares(drop=True))
        masks.append(_masks(layers, count, pooled))
    if mix is None:
        vectors = pooled[:, :, estimator.exits[-1]]
    elif len(pooled) == 1:
        vectors = mix.gamma * torch.einsum("kl,tlh->kth", torch.stack(shares), pooled[0])
    else:
        vectors = mix.gamma * torch.einsum("kl,ktlh->kth", torch.stack(shares).expand(k, -1), pooled)
    values = combine(estimator.config, {name: vectors[:, places] for name, places in rows.items()})
    drops = (torch.stack(passes) for passes in zip(*masks, strict=True))
    for module in layers:
        values = values * next(drops) if isinstance(module, nn.Dropout) else module(values)
    return outputs_of(estimator.config, values)["score"].expand(k, count)


def _masks(layers: Sequence[nn.Module], count: int, like: Tensor) -> list[Tensor]:
    """What a pass multiplies by at each dropout of a head."""
    found: list[Tensor] = []
    width = 0
    for module in layers:
        width = module.out_features if isinstance(module, nn.Linear) else width
        if isinstance(module, nn.Dropout):
            found.append(nn.functional.dropout(like.new_ones(count, width), module.p))
    return found


def seed_of(*numbers: int) -> int:
    """One seed from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _adaptable(engine: Engine, texts: Texts, plan: AdaptPlan) -> TorchStepper:
    """The stepper of a model that can be adapted in this way; else one sentence on why it cannot."""
    config, stepper = engine.config, engine.stepper
    if not isinstance(stepper, TorchStepper):
        raise InputError("adaptation needs gradients, which only the runtime 'torch' has")
    if stepper.dtype in (torch.bfloat16, torch.float16):
        raise InputError("the steps of an adaptation are too small for half precision: use float32")
    if config.outputs in ("error", "distance"):
        raise InputError(f"a model that gives {config.outputs} has no score whose doubt could be lessened")
    if "layer-mix" in plan.parameters and config.layer_mix == "none":
        raise InputError("the model has no layer mix, which is what adaptation changes (layer_mix = softmax)")
    if len(config.passes) > 1 and "ref" in texts:
        raise InputError(
            "a model that reads a segment in three ways is not adapted: leave the references out"
        )
    head = cast(Head, stepper.estimator.heads[-1])
    rates = [module.p for module in head.layers if isinstance(module, nn.Dropout)]
    rates += [config.layer_dropout] if config.layer_mix != "none" else []
    if plan.dropout == "all":
        rates += [m.p for m in stepper.estimator.encoder.modules() if isinstance(m, nn.Dropout)]
    if not any(rates):
        raise InputError("the model has no dropout: its passes do not differ, and nothing can be lessened")
    missing = [name for name in config.texts if name not in texts and len(config.passes) == 1]
    if missing:
        raise InputError(f"the model needs '{missing[0]}'")
    if not len(texts["mt"]):
        raise InputError("there is nothing to adapt to")
    return stepper


def _sequences(engine: Engine, texts: Texts) -> tuple[list[tuple[int, ...]], dict[str, Ints]]:
    """Each distinct token sequence once, and which of them each segment consists of."""
    made: dict[str, list[Any]] = {name: engine.tokens.encode(values) for name, values in texts.items()}
    if engine.config.inputs == "joint":
        made = {"joint": [engine.tokens.join(row) for row in zip(*made.values(), strict=True)]}
    places: dict[tuple[int, ...], int] = {}
    rows = {
        name: np.array([places.setdefault(tuple(part.ids), len(places)) for part in parts], dtype=np.int64)
        for name, parts in made.items()
    }
    return list(places), rows


@torch.no_grad()
def _encoded(
    stepper: TorchStepper, sequences: Sequence[Sequence[int]], budget: int, plan: AdaptPlan
) -> Array:
    """Pooled states (passes, sequences, layers, size): of K passes with the encoder's dropout, or of one."""
    estimator, noisy = stepper.estimator, plan.dropout == "all"
    width = estimator.encoder.size * (2 if estimator.config.pooling == "parts" else 1)
    kind = np.float64 if next(estimator.parameters()).dtype == torch.float64 else np.float32
    shape = (plan.k if noisy else 1, len(sequences), estimator.exits[-1] + 1, width)
    states = _room(shape, np.dtype(kind))
    sizes = np.array([len(sequence) for sequence in sequences])
    try:
        estimator.encoder.train(noisy)
        with torch.random.fork_rng(devices=[]):
            for number, chosen in enumerate(token_batches(sizes, budget)):
                torch.manual_seed(seed_of(plan.seed, _ENCODING, number))
                for layer in states:
                    part = [sequences[i] for i in chosen]
                    layer[chosen] = _pooled_states(estimator, part, stepper.padding).cpu().numpy()
    finally:
        estimator.eval()
    return states


def _room(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """An empty array; a large one lies in a file that nobody sees and that goes with it."""
    if int(np.prod(shape)) * kind.itemsize <= _IN_MEMORY:
        return np.empty(shape, dtype=kind)
    with TemporaryFile() as file:
        return np.memmap(file, dtype=kind, mode="w+", shape=shape)


def _pooled_states(estimator: Estimator, sequences: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Pooled states of some sequences (texts, layers, size)."""
    device = next(estimator.parameters()).device
    ids, mask = batch_of(sequences, padding)
    state = estimator.start(Batch(ids.to(device), mask.to(device), {}))
    return estimator.advance(state, estimator.exits[-1]).pooled
