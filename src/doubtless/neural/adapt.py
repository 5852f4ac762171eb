"""Test-time adaptation: a model fits itself to a system's translations by becoming surer of them.

Algorithm 1 of Zhan et al. 2023 (TaU): the standard deviation of each segment's score over K passes with
dropout, averaged over a batch, is the loss; a few parameters follow its gradient, J times over the system's
segments; the segments are then scored in the ordinary way, and the parameters are put back.

What is adapted by default, the layer mix, acts on pooled states. The encoder is therefore run once and needs
no gradient, its pooled states serve all passes and all epochs, and the K passes through mix and head are one
batched computation. The outcome is that of K passes one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.neural.adapt_plan import AdaptPlan
from doubtless.neural.engine import Engine, Scored
from doubtless.neural.model import Estimator
from doubtless.neural.noisy import Floats, Ints, Segments
from doubtless.neural.rows import Texts
from doubtless.neural.stepper import Array
from doubtless.neural.torch_stepper import TorchStepper

BETAS, EPSILON = (0.9, 0.99), 1e-8  # of Adam, as in the paper


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What adaptation came to.

    ``values`` are the adapted parameters by name; ``before`` and ``after`` each segment's uncertainty: the
    standard deviation of its score over K passes, which draw the same random numbers both times.
    """

    values: Mapping[str, Tensor]
    before: Floats
    after: Floats


def adapt(engine: Engine, texts: Texts, plan: AdaptPlan | None = None) -> Adaptation:
    """Adapt a model to the segments of one system; the model itself is left as it was.

    Parameters
    ----------
    engine
        A model on PyTorch, in single precision, with a layer mix (for ``layer-mix``) and dropout.
    texts
        Lists of ``mt``, ``src`` and ``ref``, as the model uses them, and of ``lp``.
    plan
        How to adapt.

    Raises
    ------
    InputError
        If the model cannot be adapted; why, in one sentence.

    Examples
    --------
    >>> found = adapt(engine, texts, AdaptPlan(passes=3))  # doctest: +SKIP
    >>> with using(engine, found):  # doctest: +SKIP
    ...     scored = engine.score(texts)
    """
    plan = plan or AdaptPlan()
    return adapt_segments(Segments.of(engine, texts, plan), plan)


def adapt_segments(segments: Segments, plan: AdaptPlan) -> Adaptation:
    """Adapt to segments whose states are known (algorithm 1, lines 1 to 8 and 12)."""
    estimator = segments.estimator
    before = segments.uncertainty(plan)
    with _restored(estimator, _names(estimator, plan.parameters)) as weights:
        optimiser = torch.optim.Adam(list(weights.values()), lr=plan.lr, betas=BETAS, eps=EPSILON)
        for epoch in range(1, plan.passes + 1):
            for number, index in enumerate(segments.batches(plan)):
                scores = segments.drawn(index, plan, epoch, number)
                loss = scores.std(dim=0, correction=0).mean()
                if not bool(torch.isfinite(loss)):
                    raise InputError("the uncertainty of a batch is not a finite number: no adaptation")
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        after = segments.uncertainty(plan)
        values = {name: weight.detach().clone() for name, weight in weights.items()}
    return Adaptation(values, before, after)


@contextmanager
def using(engine: Engine, adaptation: Adaptation) -> Iterator[None]:
    """Run a model with adapted parameters; afterwards it has its own again, whatever happened."""
    with applied(cast(TorchStepper, engine.stepper).estimator, adaptation):
        yield


@contextmanager
def applied(estimator: Estimator, adaptation: Adaptation) -> Iterator[None]:
    """Put adapted parameters into an estimator for a while."""
    with _restored(estimator, set(adaptation.values)) as weights:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(adaptation.values[name])
        yield


@contextmanager
def _restored(estimator: Estimator, names: set[str]) -> Iterator[dict[str, nn.Parameter]]:
    """Let some parameters learn; then parameters, gradients and the random state are as they were."""
    weights = dict(estimator.named_parameters())
    learnt = {name: weight.requires_grad for name, weight in weights.items()}
    chosen = {name: weight for name, weight in weights.items() if name in names}
    kept = {name: weight.detach().clone() for name, weight in chosen.items()}
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            for name, weight in weights.items():
                weight.requires_grad_(name in names)
            yield chosen
    finally:
        for name, weight in weights.items():
            weight.requires_grad_(learnt[name])
        with torch.no_grad():
            for name, weight in chosen.items():
                weight.grad = None
                weight.copy_(kept[name])


@dataclass(frozen=True)
class AdaptedEngine(Engine):
    """An engine that scores the rows of each system with parameters of their own.

    ``parts`` are the rows of each system and its adaptation (None: the model as it is). Tables that are
    scored must have the rows that these numbers speak of.
    """

    parts: Sequence[tuple[Ints, Adaptation | None]] = ()

    def score(self, texts: Texts, *, score: Array | None = None, **options: Any) -> Scored:
        """Score segments, system by system; the order is that of the texts."""
        found = []
        for rows, adaptation in self.parts:
            own = {name: [values[i] for i in rows] for name, values in texts.items()}
            given = None if score is None else score[rows]
            if adaptation is None:
                found.append(super().score(own, score=given, **options))
            else:
                with using(self, adaptation):
                    found.append(super().score(own, score=given, **options))
        return _in_order([rows for rows, _ in self.parts], found)


def with_systems(engine: Engine, parts: Sequence[tuple[Ints, Adaptation | None]]) -> AdaptedEngine:
    """An engine around the same model that uses the adaptation of each system for its rows."""
    return AdaptedEngine(**{f.name: getattr(engine, f.name) for f in fields(Engine)}, parts=parts)


def _in_order(rows: Sequence[Ints], found: Sequence[Scored]) -> Scored:
    """Put what was scored in parts back into the order of the table."""
    place = np.argsort(np.concatenate(rows))

    def joined(values: Sequence[Array]) -> Array:
        return np.concatenate(values)[place]

    def listed(values: Sequence[list[Any] | None]) -> list[Any] | None:
        if any(part is None for part in values):
            return None
        flat = [row for part in values for row in part or []]
        return [flat[i] for i in place]

    return Scored(
        {name: joined([part.outputs[name] for part in found]) for name in found[0].outputs},
        joined([part.layer for part in found]),
        joined([part.truncated for part in found]),
        listed([part.spans for part in found]),
        listed([part.words for part in found]),
    )


def _names(estimator: Estimator, parameters: Sequence[str]) -> set[str]:
    """Names of the parameters that are adapted: those that the last exit uses."""
    found: set[str] = set()
    last = {
        "layer-mix": f"mixes.{len(estimator.mixes) - 1}.",
        "estimator": f"heads.{len(estimator.heads) - 1}.",
    }
    for kind in set(parameters) & set(last):
        found |= {name for name, _ in estimator.named_parameters() if name.startswith(last[kind])}
    if "layernorm" in parameters:
        for name, module in estimator.encoder.named_modules():
            if isinstance(module, nn.LayerNorm):
                found |= {f"encoder.{name}.{inner}" for inner, _ in module.named_parameters()}
    return found
