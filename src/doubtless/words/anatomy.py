"""How the last layer of a decoder leads to its predictions: found by trying, and right because it was tried.

Architectures end with a norm or without one, and multiply, shift or cap their logits. Candidates are run on
states of the model itself, and the first that gives what the model gives is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Way = Callable[[Tensor], Tensor]


def final_norm(decoder: nn.Module, states: Tensor, last: Tensor) -> Way | None:
    """The norm that turns states of the last layer into those the decoder returns; None if none does."""
    return _first_that(_norms(decoder), states, last)


def way_to_logits(model: Any, last: Tensor, logits: Tensor) -> Way | None:
    """The way from what the decoder returns to the logits of the model; None if none is known."""
    return _first_that(_heads(model), last, logits)


def _first_that(ways: Iterable[Way], states: Tensor, expected: Tensor) -> Way | None:
    for way in ways:
        found = way(states)
        if found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-3):
            return way
    return None


def _norms(decoder: nn.Module) -> Iterator[Way]:
    """No norm, or a module with one weight a dimension."""
    yield lambda states: states
    for child in decoder.children():
        weight = getattr(child, "weight", None)
        if weight is not None and weight.dim() == 1:
            yield child


def _heads(model: Any) -> Iterator[Way]:
    """A matrix, and what else architectures have: a bias, a factor, a cap."""
    matrix, config = model.get_output_embeddings(), model.config
    bias = getattr(model, "final_logits_bias", None)
    cap = getattr(config, "final_logit_softcapping", None)
    scale, divisor, size = (
        getattr(config, name, None) for name in ("logit_scale", "logits_scaling", "d_model")
    )
    for factor in (1.0, scale, 1 / divisor if divisor else None, size**-0.5 if size else None):
        if factor is not None:

            def head(states: Tensor, factor: float = factor) -> Tensor:
                logits = matrix(states if factor == 1.0 else states * factor)
                logits = logits if bias is None else logits.add_(bias)
                return logits if cap is None else torch.tanh(logits / cap) * cap

            yield head
