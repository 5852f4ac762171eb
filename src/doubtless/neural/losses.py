"""Losses, to the letter of the papers.

Outputs come as a dictionary of tensors of shape (exits, rows) (quantiles: (exits, rows, levels)); targets
have one number a row. The loss is the sum over exits of the mean over rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from doubtless.neural.config import ModelConfig


def squared(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over rows, summed over exits."""
    return ((prediction - target) ** 2).mean(dim=-1).sum()


def instant_confidence(score: Tensor, error: Tensor, human: Tensor, beta: float) -> Tensor:
    """L2(y, score) + beta L2(|y - score|, error), without gradient through the score in the second term."""
    return squared(score, human) + beta * squared(error, (human - score).abs().detach())


def self_confidence(score: Tensor, error: Tensor, human: Tensor, beta: float) -> Tensor:
    """The same, with the error against the last exit's score instead of the human one."""
    return squared(score, human) + beta * squared(error, (score - score[-1:]).abs().detach())


def both_confidences(score: Tensor, error: Tensor, change: Tensor, human: Tensor, beta: float) -> Tensor:
    """Instant confidence with a further output for the distance to the last exit's score."""
    known = instant_confidence(score, error, human, beta)
    return known + beta * squared(change, (score - score[-1:]).abs().detach())


def auxiliary(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over the rows that have a target (the others are NaN), summed over exits."""
    known = ~torch.isnan(target)
    if not bool(known.any()):
        return torch.zeros((), device=prediction.device)
    return squared(prediction[:, known], target[known])


def heteroscedastic(mean: Tensor, variance: Tensor, human: Tensor) -> Tensor:
    """Equation 7 of Zerva & Martins: (y - mu)^2 / (2 s^2) + log(s^2) / 2."""
    return ((human - mean) ** 2 / (2 * variance) + variance.log() / 2).mean(dim=-1).sum()


def direct_uncertainty(error: Tensor, residual: Tensor) -> Tensor:
    """Equation 8: e^2 / (2 e'^2) + log(e'^2) / 2 for a predicted error e' and the true one e."""
    return heteroscedastic(torch.zeros_like(error), error**2, residual)


def pinball(quantiles: Tensor, levels: Tensor, human: Tensor) -> Tensor:
    """Equation 9, summed over the levels: (q - y)(1[y <= q] - tau)."""
    gap = quantiles - human[:, None]
    return (gap * ((gap >= 0).to(gap) - levels)).sum(dim=-1).mean(dim=-1).sum()


def tags(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Weighted cross-entropy of token labels; label -100 marks tokens without one."""
    return functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), weight=weights, ignore_index=-100
    )


def loss_of(config: ModelConfig, outputs: Mapping[str, Tensor], human: Tensor, beta: float = 0.75) -> Tensor:
    """The sentence-level loss of a configuration (for error models ``human`` is the residual)."""
    if config.outputs == "score":
        return squared(outputs["score"], human)
    if config.outputs == "score+error":
        confidence = self_confidence if config.error_target == "last" else instant_confidence
        return confidence(outputs["score"], outputs["error"], human, beta)
    if config.outputs == "score+error+change":
        return both_confidences(outputs["score"], outputs["error"], outputs["change"], human, beta)
    if config.outputs == "mean+variance":
        return heteroscedastic(outputs["score"], outputs["variance"], human)
    if config.outputs == "error":
        return direct_uncertainty(outputs["error"], human)
    levels = torch.tensor(config.quantile_levels, dtype=human.dtype, device=human.device)
    return pinball(outputs["quantiles"], levels, human)
