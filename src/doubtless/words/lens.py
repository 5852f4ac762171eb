"""What the vocabulary says: surprisal, entropy and the logit lens, reduced in chunks of rows.

A row of logits has tens of thousands of numbers, of which one or two are wanted. Logits are therefore made
for a few dozen rows at a time and reduced at once, so that memory does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_BYTES = 8 << 20
_FEW = 8  # rows
_LOWEST = -1e4  # stands for tokens that a model forbids: minus infinity times nothing is not a number


def predicted(
    states: Tensor, tokens: Tensor, logits: Callable[[Tensor], Tensor], *, entropy: bool = True
) -> dict[str, Tensor]:
    """Surprisal of the tokens and entropy of the predictions, in nats.

    Parameters
    ----------
    states
        Last states, one a token, behind the final norm.
    tokens
        The ids of the tokens.
    logits
        The way from states to logits.
    entropy
        Whether the entropy is wanted.
    """
    made: list[list[Tensor]] = []
    for rows in _chunks(len(states), logits, states):
        # The product is best made for many rows, and what needs a second array of their size for few.
        parts = zip(
            torch.split(logits(states[rows]).float(), _FEW), torch.split(tokens[rows], _FEW), strict=True
        )
        made += [_read_off(scores, wanted, entropy) for scores, wanted in parts]
        del parts  # and with it the logits, before there are others
    return dict(zip(("surprisal", "entropy"), _joined(made, states), strict=False))


def _read_off(scores: Tensor, tokens: Tensor, entropy: bool) -> list[Tensor]:
    """Surprisal and, if it is wanted, entropy of a few rows of logits, which are overwritten."""
    own = scores.gather(1, tokens[:, None])[:, 0]
    top = scores.amax(1)
    scores = scores.sub_(top[:, None]).clamp_(min=_LOWEST)
    shares = scores.exp()
    total = shares.sum(1)
    found = [top + total.log() - own]
    if entropy:
        found.append(total.log() - torch.einsum("rv,rv->r", shares, scores) / total)
    return found


def seen_through(
    inner: Sequence[Tensor], states: Tensor, tokens: Tensor, logits: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """The logit lens: what inner layers would predict, and how far that is from the last layer.

    Parameters
    ----------
    inner
        States of each layer before the last, from the embeddings on, put through the final norm.
    states, tokens, logits
        As in :func:`predicted`.

    Returns
    -------
    dict
        ``ll-surprisal`` (rows, layers) of the tokens and ``ll-kl`` (rows, layers), the divergence
        KL(P_layer || P_last), both in nats; ``depth``, the first layer whose best token is the given one, N
        for the last layer and N + 1 if none is.
    """
    layers = len(inner)
    made: list[list[Tensor]] = []
    for rows in _chunks(len(states), logits, states):
        wanted = tokens[rows, None]
        last = logits(states[rows]).float().log_softmax(1).clamp_(min=_LOWEST)
        depth = torch.where(last.argmax(1) == wanted[:, 0], layers, layers + 1)
        surprisal, divergence = [], []
        for layer in range(layers - 1, -1, -1):
            here = logits(inner[layer][rows]).float().log_softmax(1).clamp_(min=_LOWEST)
            surprisal.append(-here.gather(1, wanted)[:, 0])
            depth = torch.where(here.argmax(1) == wanted[:, 0], layer, depth)
            divergence.append(torch.einsum("rv,rv->r", here.exp(), here - last))
        made.append([torch.stack(surprisal[::-1], 1), torch.stack(divergence[::-1], 1), depth.double()])
    return dict(zip(("ll-surprisal", "ll-kl", "depth"), _joined(made, states, layers), strict=True))


def _chunks(rows: int, logits: Callable[[Tensor], Tensor], states: Tensor) -> list[slice]:
    width = logits(states[:1]).shape[1] if rows else 1
    size = max(1, _BYTES // (4 * width))
    return [slice(start, start + size) for start in range(0, rows, size)]


def _joined(made: list[list[Tensor]], states: Tensor, layers: int = 0) -> list[Tensor]:
    if not made:
        empty = [states.new_zeros(0, layers), states.new_zeros(0, layers), states.new_zeros(0)]
        return empty if layers else [states.new_zeros(0), states.new_zeros(0)]
    return [torch.cat(parts) for parts in zip(*made, strict=True)]
