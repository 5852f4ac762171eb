"""BLOOD: how sharply a layer bends around each token (Jelenić et al. 2024).

The figure of a token and a layer is the squared Frobenius norm of the Jacobian J of the token's new state
with respect to its old one, all other tokens held fixed. It is estimated by random probes v with independent
standard normal entries, for which |J v|^2 has that norm as its mean. The authors also project J v on a second
random vector, which has the same mean and more noise.

One forward-mode pass serves all tokens of a batch. For that the derivative must not pass from one token to
another, which it does in one place only, self-attention: the layers are run again with an attention in which
the keys and values of other tokens are constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.words.forced import Batch, Trace, TranslationModel, first_of

_NAME = "doubtless_own_position"


def sharpness(
    model: TranslationModel, batch: Batch, trace: Trace, probes: int, generator: torch.Generator
) -> Tensor:
    """Estimate BLOOD for the tokens of a batch that was just read.

    Parameters
    ----------
    model, batch
        The model, in evaluation mode, and what it read.
    trace
        What its layers read and wrote.
    probes
        How many random directions; the relative error of an estimate falls with its root.
    generator
        The source of the directions.

    Returns
    -------
    Tensor
        Of shape (tokens, layers): from the embeddings to the first layer, and so on.
    """
    columns = []
    with _own_position(model):
        for layer, call, output in zip(model.layers, trace.calls, trace.outputs, strict=True):
            columns.append(batch.chosen(_bend(layer, call, output, probes, generator)))
    return torch.stack(columns, dim=1)


def _bend(
    layer: nn.Module,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    output: Tensor,
    probes: int,
    generator: torch.Generator,
) -> Tensor:
    (states, *others), kwargs = call

    def run(hidden: Tensor) -> Tensor:
        return first_of(layer(hidden, *others, **kwargs))

    total = torch.zeros(states.shape[:2], device=states.device)
    for _ in range(probes):
        probe = torch.randn(states.shape, generator=generator).to(states)
        pair: Any = torch.func.jvp(run, (states,), (probe,))
        again, change = pair
        if not torch.allclose(again, output, rtol=1e-3, atol=1e-3):
            raise InputError(
                f"blood cannot be computed for a {type(layer).__name__}: its attention is special"
            )
        total += change.float().square().sum(-1)
    return total / probes


@contextmanager
def _own_position(model: TranslationModel) -> Iterator[None]:
    """Let the layers use the attention below while the context lasts."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
    configs = {id(m.config): m.config for m in model.decoder.modules() if hasattr(m, "config")}
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = _NAME
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attention through which derivatives pass from a token to itself only."""
    shared = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(shared, dim=1) for states in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    fixed_key, fixed_value = key.detach(), value.detach()
    scores = query @ fixed_key.mT * scale
    to_itself = query.shape[2] == key.shape[2]
    if to_itself:  # adds zero, and the derivative of a token's own key
        scores = scores + torch.diag_embed((query * (key - fixed_key)).sum(-1) * scale)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[2]]
    weights = scores.softmax(-1)
    mixed = weights @ fixed_value
    if to_itself:
        mixed = mixed + weights.diagonal(dim1=-2, dim2=-1)[..., None] * (value - fixed_value)
    return mixed.transpose(1, 2).contiguous(), weights
