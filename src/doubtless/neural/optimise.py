"""What is optimised and how well: the loss, the weights that learn, their rates, figures, checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from doubtless.errors import InputError
from doubtless.formats.words import reason
from doubtless.metaeval.correlation import kendall, pearson, spearman
from doubtless.neural.config import ModelConfig
from doubtless.neural.data import Examples, Rows
from doubtless.neural.heads import rescaled
from doubtless.neural.losses import auxiliary, loss_of, tags
from doubtless.neural.model import Batch, Estimator
from doubtless.neural.schedule import Plan, TrainingConfig, free_to_change

KEPT = 2  # checkpoints


class Objective(nn.Module):
    """An estimator with its loss: what is wrapped for several devices and half precision."""

    def __init__(self, estimator: Estimator, training: TrainingConfig) -> None:
        super().__init__()
        self.estimator, self.training_config = estimator, training
        self.weights: Tensor | None
        weights = training.tag_class_weights
        self.register_buffer("weights", torch.tensor(weights) if weights else None, persistent=False)

    def forward(self, examples: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and the outputs of every exit, stacked (exits, segments)."""
        estimator, training = self.estimator, self.training_config
        start = estimator.start(examples.start) if isinstance(examples.start, Batch) else examples.start
        found, state = estimator.read_exits(start, examples.score, training.early_gradient)
        outputs = {name: value.float() for name, value in found.items()}
        loss = loss_of(estimator.config, outputs, examples.human, training.beta)
        for number, name in enumerate(estimator.config.auxiliary):
            assert examples.auxiliary is not None
            loss = loss + training.auxiliary_weight * auxiliary(outputs[name], examples.auxiliary[number])
        if examples.labels is not None:
            logits, known = estimator.read_words(state).float(), examples.labels >= 0
            if bool(known.any()):
                loss = loss + training.tag_weight * tags(logits, examples.labels, self.weights)
            wrong = examples.labels[known] > 0
            flagged = logits.argmax(dim=-1)[known] > 0
            outputs["confusion"] = torch.bincount(2 * wrong.long() + flagged.long(), minlength=4)
        return loss, outputs


def layer_of(name: str, depth: int) -> int:
    """The layer that a weight or module of the encoder belongs to, by its name: 0 for the embeddings.

    What has no number stands above the layers (a last normalisation).

    >>> [layer_of(n, 12) for n in ("embeddings.LayerNorm.bias", "encoder.layer.3.output", "norm.weight")]
    [0, 4, 12]
    """
    numbered = re.search(r"\blayers?\.(\d+)", name)
    if numbered:
        return int(numbered[1]) + 1
    return 0 if "embed" in name else depth


def last_fixed_layer(training: TrainingConfig) -> int:
    """The last layer that never learns: 0 means the embeddings, -1 that all learn."""
    return training.freeze or (0 if training.freeze_embeddings else -1)


def _encoder_weights(estimator: Estimator) -> Iterator[tuple[int, nn.Parameter]]:
    for name, weight in estimator.encoder.named_parameters():
        yield layer_of(name, estimator.encoder.depth), weight


def parameter_groups(estimator: Estimator, training: TrainingConfig) -> list[dict[str, Any]]:
    """Groups for the optimiser: the heads, and each layer with its own learning rate.

    Layer ``i`` of ``depth`` learns at ``encoder_learning_rate * layerwise_decay ** (depth - i)``. Layers
    that never learn are left out.
    """
    depth = estimator.encoder.depth
    inside = {id(weight) for _, weight in _encoder_weights(estimator)}
    heads = [weight for weight in estimator.parameters() if id(weight) not in inside]
    groups = [{"params": heads, "rate": training.learning_rate, "layer": depth + 1}]
    for layer in range(depth, last_fixed_layer(training), -1):
        weights = [weight for at, weight in _encoder_weights(estimator) if at == layer]
        rate = training.encoder_learning_rate * training.layerwise_decay ** (depth - layer)
        groups.append({"params": weights, "rate": rate, "layer": layer})
    return [{**group, "lr": group["rate"]} for group in groups]


def set_rates(groups: list[dict[str, Any]], factor: float) -> None:
    """Set the learning rates to a factor of their values."""
    for group in groups:
        group["lr"] = group["rate"] * factor


def set_learning(estimator: Estimator, training: TrainingConfig, encoder_rests: bool) -> None:
    """Put the model in training mode and say which weights get gradients.

    Layers frozen for good also lose their dropout: what they compute is then the same in every epoch,
    whether it is cached or not.
    """
    estimator.train()
    depth, fixed = estimator.encoder.depth, last_fixed_layer(training)
    for layer, weight in _encoder_weights(estimator):
        weight.requires_grad_(layer > fixed and not encoder_rests)
    for name, module in estimator.encoder.named_modules():
        if training.freeze and layer_of(name, depth) <= training.freeze:
            module.eval()
        if training.encoder_dropout is not None and isinstance(module, nn.Dropout):
            module.p = training.encoder_dropout


def learnt_weights(estimator: Estimator, training: TrainingConfig) -> dict[str, Tensor]:
    """The weights that training changes, by name: all a checkpoint needs beside the encoder it began with."""
    fixed = {id(w) for layer, w in _encoder_weights(estimator) if layer <= last_fixed_layer(training)}
    weights = dict(estimator.named_parameters())
    return {
        name: value.detach()
        for name, value in estimator.state_dict().items()
        if name not in weights or id(weights[name]) not in fixed
    }


def start_from(estimator: Estimator, folder: Path, training: TrainingConfig) -> None:
    """Take over the weights of a trained model; frozen embeddings stay the encoder's own."""
    try:
        weights = load_file(folder / "model.safetensors")
    except Exception as error:
        raise InputError(f"{folder}: this is not a model to start from ({reason(error)})") from None
    own = estimator.state_dict()
    if training.freeze_embeddings or training.freeze:
        kept = {name for name in own if "embeddings." in name}
        weights = {name: value for name, value in weights.items() if name not in kept}
        own = {name: value for name, value in own.items() if name not in kept}
    wrong = sorted(set(own) ^ set(weights)) or [
        name for name in own if own[name].shape != weights[name].shape
    ]
    if wrong:
        raise InputError(f"{folder}: the model to start from is another one ({wrong[0]})")
    estimator.load_state_dict(weights, strict=False)


def fixed_digest(estimator: Estimator, training: TrainingConfig) -> str:
    """Sixteen hex digits of the weights that training does not change."""
    learnt = learnt_weights(estimator, training)
    digest = sha256()
    for name, value in sorted(estimator.state_dict().items()):
        if name not in learnt:
            digest.update(name.encode())
            digest.update(value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass
class Progress:
    """How far a run is. Together with weights and optimiser this is all there is to resume from.

    The order of batches, prefixes and dropout are functions of the seed and of these numbers, so that no
    state of a random generator needs to be kept.
    """

    epoch: int = 0
    done: int = 0
    step: int = 0
    waited: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    losses: int = 0
    best: float | None = None
    best_step: int = 0
    figures: dict[str, Any] = field(default_factory=dict)


def finished(training: TrainingConfig, progress: Progress) -> bool:
    """Whether the epochs, the steps or the patience are used up."""
    return (
        progress.epoch >= training.epochs
        or 0 < training.max_steps <= progress.step
        or 0 < training.patience <= progress.waited
    )


def share_done(training: TrainingConfig, progress: Progress, steps: int) -> float:
    """How much of a run is done."""
    share = (progress.epoch + progress.done / steps) / training.epochs
    return max(share, progress.step / training.max_steps) if training.max_steps else share


def settings_of(plan: Plan, parts: list[Rows], fixed: str, processes: int) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    free = free_to_change(plan.training)
    training = {name: value for name, value in asdict(plan.training).items() if name not in free}
    data = {"training rows": parts[0].digest(), "validation rows": parts[1].digest()}
    described = {
        "model": plan.model.as_json(),
        "training": training,
        **data,
        "encoder weights": fixed,
        "number of processes": processes,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described))
    return plain


def save_point(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimiser: Mapping[str, Any],
    progress: Progress,
    settings: Mapping[str, Any],
) -> None:
    """Write a checkpoint beside its place and rename it there; remove all but the last two."""
    part = folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    save_file({name: value.cpu().contiguous() for name, value in weights.items()}, part / "model.safetensors")
    torch.save(dict(optimiser), part / "optimizer.pt")
    state = {"progress": asdict(progress), "settings": settings}
    (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    place = folder / f"step-{progress.step}"
    shutil.rmtree(place, ignore_errors=True)
    part.rename(place)
    for old in _points(folder)[:-KEPT]:
        shutil.rmtree(old)


def _points(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def last_point(folder: Path) -> Path | None:
    """The newest checkpoint, if there is one."""
    found = _points(folder)
    return found[-1] if found else None


def load_point(point: Path) -> tuple[dict[str, Tensor], dict[str, Any], Progress, dict[str, Any]]:
    """Read a checkpoint: weights, optimiser, progress and settings."""
    try:
        state = json.loads((point / "state.json").read_text(encoding="utf-8"))
        optimiser = torch.load(point / "optimizer.pt", map_location="cpu", weights_only=True)
        weights = load_file(point / "model.safetensors")
        return weights, optimiser, Progress(**state["progress"]), state["settings"]
    except Exception as error:
        raise InputError(f"{point}: the checkpoint cannot be read ({reason(error)})") from error


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights to a file, whole or not at all."""
    part = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.cpu().contiguous() for name, value in weights.items()}, part)
    os.replace(part, path)


def agreement(
    config: ModelConfig, outputs: Mapping[str, Any], rows: Rows, mean: float = 0.0, sd: float = 1.0
) -> dict[str, Any]:
    """Figures of outputs (exits, rows) against humans; ``error_pearson`` is that of errors with true ones.

    Correlations are means over the groups of the rows, if they have any.
    """
    found = rescaled(dict(outputs), mean, sd)
    target = rows.target * sd + (0 if config.outputs == "error" else mean)
    predictions = found["error" if config.outputs == "error" else "score"]
    last = predictions[-1]

    def averaged(figure: Callable[[Any, Any], float], prediction: Any, truth: Any) -> float:
        if rows.groups is None:
            return figure(prediction, truth)
        parts = [rows.groups == group for group in np.unique(rows.groups)]
        return float(np.mean([figure(prediction[part], truth[part]) for part in parts]))

    figures: dict[str, Any] = {
        "pearson": averaged(pearson, last, target),
        "spearman": averaged(spearman, last, target),
        "kendall": averaged(kendall, last, target),
        "mae": float(np.abs(last - target).mean()),
    }
    if len(predictions) > 1:
        figures["pearson_by_exit"] = [averaged(pearson, prediction, target) for prediction in predictions]
    if config.outputs == "score+error" and config.error_target == "last":
        missed = np.abs(predictions[:-1] - last)
        figures["error_pearson"] = pearson(found["error"][:-1].ravel(), missed.ravel())
    elif config.outputs in ("score+error", "score+error+change", "mean+variance"):
        claimed = found["error"][-1] if "error" in found else np.sqrt(found["variance"][-1])
        figures["error_pearson"] = averaged(pearson, claimed, np.abs(last - target))
    elif config.outputs == "quantiles":
        ends = found["quantiles"][-1]
        figures["coverage"] = float(((ends[:, 0] <= target) & (target <= ends[:, -1])).mean())
    return figures


def matthews(right: float, false_alarms: float, missed: float, found: float) -> float:
    """Correlation of flagged and wrong tokens."""
    product = (found + false_alarms) * (found + missed) * (right + false_alarms) * (right + missed)
    return float((right * found - false_alarms * missed) / product**0.5) if product else float("nan")


def plain(value: Any) -> Any:
    """Numbers that JSON does not know become None."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if np.isfinite(value) else None


@contextmanager
def deterministic(threads: int = 0) -> Iterator[None]:
    """Use algorithms that give the same result every time, where there are such, and so many threads."""
    strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    before = torch.get_num_threads()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # nothing here reads what it did not write
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        memory.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(strict, warn_only=warns)
        torch.set_num_threads(before)
