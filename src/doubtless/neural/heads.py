"""What stands on the encoder: layer mix, feature combination and the regression head."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig


def sparsemax(logits: Tensor) -> Tensor:
    """Project a vector onto the simplex (Martins & Astudillo 2016): weights that can be exactly zero.

    >>> sparsemax(torch.tensor([2.0, 0.0, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    logits = logits - logits.max()  # the result is the same, and large numbers keep their digits
    ordered, _ = torch.sort(logits, descending=True)
    ranks = torch.arange(1, len(logits) + 1, device=logits.device, dtype=logits.dtype)
    total = ordered.cumsum(0)
    support = int((1 + ranks * ordered > total).sum())
    threshold = (total[support - 1] - 1) / support
    return torch.clamp(logits - threshold, min=0)


class LayerMix(nn.Module):
    """A weighted sum over layers: gamma times the sum of s_i h_i, with s on the simplex.

    It acts on pooled states: pooling is linear, so that mixing before or after it is the same.
    """

    def __init__(self, layers: int, transformation: str, dropout: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self.sparse = transformation == "sparsemax"
        self.dropout = dropout

    def forward(self, states: Tensor) -> Tensor:
        """Mix pooled states (texts, layers, size) into (texts, size)."""
        return self.gamma * torch.einsum("l,tlh->th", self.shares(self.training), states)

    def shares(self, drop: bool) -> Tensor:
        """The weights on the simplex; ``drop`` leaves out each layer with the chance of dropout."""
        logits: Tensor = self.weights
        if drop and self.dropout:
            keep = torch.rand_like(logits) > self.dropout
            keep = keep | ~keep.any()  # a mix of no layers is none: then all stay
            logits = logits.masked_fill(~keep, torch.finfo(logits.dtype).min / 4)
        return sparsemax(logits) if self.sparse else torch.softmax(logits, dim=0)


def feature_size(config: ModelConfig, size: int) -> int:
    """How many features a head sees."""
    if config.inputs == "joint":
        return 4 * size if config.pooling == "parts" else size
    return 6 * size if config.uses == "src+mt+ref" else 4 * size


def combine(config: ModelConfig, vectors: Mapping[str, Tensor]) -> Tensor:
    """Features of a segment from the vectors of its texts (COMET's order)."""
    if config.inputs == "joint" and config.pooling != "parts":
        return vectors["joint"]
    if config.inputs == "joint":
        mt, other = vectors["joint"].chunk(2, dim=-1)
        return torch.cat([mt, other, mt * other, (mt - other).abs()], dim=-1)
    mt = vectors["mt"]
    if config.uses == "src+mt+ref":
        ref, src = vectors["ref"], vectors["src"]
        return torch.cat([mt, ref, mt * ref, (mt - ref).abs(), mt * src, (mt - src).abs()], dim=-1)
    other = vectors["src"] if config.uses == "src+mt" else vectors["ref"]
    return torch.cat([mt, other, mt * other, (mt - other).abs()], dim=-1)


def _activation(name: str) -> nn.Module:
    found = getattr(nn, name, None) or getattr(nn, name.title(), None)
    try:
        made = found() if isinstance(found, type) and issubclass(found, nn.Module) else None
    except TypeError:  # a module that needs arguments is none
        made = None
    if made is None:
        raise InputError(f"there is no activation '{name}'")
    return made


def feed_forward(sizes: list[int], activation: str, dropout: float, final: str | None) -> nn.Sequential:
    """Linear layers with an activation and dropout between them."""
    modules: list[nn.Module] = []
    for before, after in pairwise(sizes[:-1]):
        modules += [nn.Linear(before, after), _activation(activation), nn.Dropout(dropout)]
    modules.append(nn.Linear(sizes[-2], sizes[-1]))
    if final:
        modules.append(_activation(final))
    return nn.Sequential(*modules)


class Head(nn.Module):
    """From features to the raw numbers of an output; of ``error`` models, the other score joins in."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        features = feature_size(config, size)
        self.score_mean, self.score_sd = config.score_mean, config.score_sd
        self.bottleneck: nn.Linear | None = None
        if config.outputs == "error":
            self.bottleneck = nn.Linear(features, config.bottleneck)
            features = config.bottleneck + 1
        sizes = [features, *config.hidden_sizes, config.width]
        self.layers = feed_forward(sizes, config.activation, config.dropout, config.final_activation)

    def forward(self, features: Tensor, score: Tensor | None = None) -> Tensor:
        """Return raw outputs (rows, width)."""
        if self.bottleneck is not None:
            if score is None:
                raise InputError("a model of errors needs the scores of the model whose errors it predicts")
            known = ((score - self.score_mean) / self.score_sd)[:, None].to(features)
            features = torch.cat([self.bottleneck(features), known], dim=-1)
        return self.layers(features)


def outputs_of(config: ModelConfig, raw: Tensor) -> dict[str, Tensor]:
    """Name the numbers of a head: ``score`` and what else the output has.

    Variances and errors of error models are positive and quantiles increase, by construction. The error of
    ``score+error`` is left as it is, as in the papers; the forecast floors it.
    """
    return rescaled(_outputs_of(config, raw), config.score_mean, config.score_sd)


def rescaled(outputs: dict[str, Any], mean: float, sd: float) -> dict[str, Any]:
    """Outputs for standardised scores, brought to the scale of a mean and a deviation."""
    if (mean, sd) == (0.0, 1.0):
        return outputs
    scales = {"score": sd, "quantiles": sd, "error": sd, "change": sd, "variance": sd**2}
    moves = {"score": mean, "quantiles": mean}
    return {name: value * scales.get(name, 1.0) + moves.get(name, 0.0) for name, value in outputs.items()}


def _outputs_of(config: ModelConfig, raw: Tensor) -> dict[str, Tensor]:
    own = raw.shape[-1] - len(config.auxiliary)
    extra = {name: raw[..., own + i] for i, name in enumerate(config.auxiliary)}
    return {**_named(config, raw[..., :own]), **extra}


def _named(config: ModelConfig, raw: Tensor) -> dict[str, Tensor]:
    softplus = nn.functional.softplus
    if config.outputs == "score":
        return {"score": raw[..., 0]}
    if config.outputs == "score+error":
        return {"score": raw[..., 0], "error": raw[..., 1]}
    if config.outputs == "score+error+change":
        return {"score": raw[..., 0], "error": raw[..., 1], "change": raw[..., 2]}
    if config.outputs == "mean+variance":
        return {"score": raw[..., 0], "variance": softplus(raw[..., 1]) + 1e-6}
    if config.outputs == "error":
        return {"error": softplus(raw[..., 0]) + 1e-6}
    steps = torch.cat([raw[..., :1], softplus(raw[..., 1:])], dim=-1)
    quantiles = torch.cumsum(steps, dim=-1)
    middle = min(range(raw.shape[-1]), key=lambda i: abs(config.quantile_levels[i] - 0.5))
    return {"score": quantiles[..., middle], "quantiles": quantiles}
