"""Models in folders: ``config.json``, ``model.safetensors``, ``tokenizer.json`` and a card.

A folder is self-contained: loading one never asks the network for anything. Hub names are fetched with
``huggingface_hub`` and are folders from then on. COMET's folders are read by :mod:`doubtless.neural.comet`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import doubtless
from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import LayerwiseEncoder
from doubtless.neural.folder import FORMAT, SURFACE, VERSION, first_line, locate, read_folder
from doubtless.neural.model import Estimator
from doubtless.neural.stepper import Array
from doubtless.neural.tokens import Tokens, tokens_of
from doubtless.neural.weights import dequantised
from doubtless.surface.model import Surface


@dataclass(frozen=True, eq=False)
class Model:
    """An estimator with its tokenizer, its name, its card, and what corrects its scores of some pairs."""

    estimator: Estimator
    tokens: Tokens
    name: str = "unnamed"
    card: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    surface: Surface | None = None

    @property
    def config(self) -> ModelConfig:
        """What the estimator is made of."""
        return self.estimator.config

    def fingerprint(self) -> str:
        """Eight hex digits of the weights and the configuration, for signatures."""
        state = self.estimator.state_dict()
        return fingerprint(self.config, {k: v.detach().float().cpu().numpy() for k, v in state.items()})


def fingerprint(config: ModelConfig, weights: Mapping[str, Array]) -> str:
    """Eight hex digits of weights, as floats, and a configuration."""
    digest = sha256(json.dumps(config.as_json(), sort_keys=True).encode())
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weights[name]).data)
    return digest.hexdigest()[:8]


def new_model(config: ModelConfig, seed: int = 0, name: str = "unnamed") -> Model:
    """Make an untrained estimator on a pretrained encoder, given by hub name or folder.

    Raises
    ------
    InputError
        If the encoder cannot be loaded; the real cause is in the message.
    """
    from transformers import AutoModel, AutoTokenizer

    local = os.path.isdir(config.encoder)
    try:
        encoder = AutoModel.from_pretrained(
            config.encoder, local_files_only=local, **_poolerless(config.encoder)
        )
        tokenizer = AutoTokenizer.from_pretrained(config.encoder, local_files_only=local, use_fast=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{config.encoder}: the encoder cannot be loaded ({first_line(error)})") from error
    if len(tokenizer) < encoder.config.vocab_size // 2:
        # transformers makes an almost empty tokenizer where a folder holds none, without a word.
        raise InputError(
            f"{config.encoder}: the tokenizer knows {len(tokenizer)} tokens, the encoder"
            f" {encoder.config.vocab_size} (are its tokenizer files missing?)"
        )
    limit = positions(encoder.config)
    most = min(config.max_length or limit, limit)
    tokens = tokens_of(tokenizer, most)
    if config.pooling == "parts":
        config = replace(config, separator=tokens.end)
    torch.manual_seed(seed)
    return Model(Estimator(config, LayerwiseEncoder(encoder)), tokens, name)


def _poolerless(name: str) -> dict[str, bool]:
    from transformers import AutoConfig

    kind = AutoConfig.from_pretrained(name, local_files_only=os.path.isdir(name)).model_type
    return {"add_pooling_layer": False} if kind in _WITH_POOLER else {}


_WITH_POOLER = {"bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "rembert", "camembert"}


def positions(config: Any) -> int:
    """How many tokens an encoder takes: the RoBERTa family counts positions from the padding id on."""
    offset = (
        config.pad_token_id + 1 if "roberta" in config.model_type or "camembert" in config.model_type else 0
    )
    return int(config.max_position_embeddings) - offset


def bare_encoder(config: Mapping[str, Any]) -> nn.Module:
    """An encoder without weights from the content of its Hugging Face ``config.json``."""
    from transformers import AutoConfig, AutoModel

    made = AutoConfig.for_model(
        **{k: v for k, v in config.items() if k not in ("transformers_version", "dtype")}
    )
    extra = {"add_pooling_layer": False} if made.model_type in _WITH_POOLER else {}
    model: nn.Module = AutoModel.from_config(made, **extra)  # type: ignore[no-untyped-call]
    return model


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a model to a folder."""
    # Copies, because the format refuses tensors that share memory, as those of a mapped file may.
    weights = {k: v.detach().cpu().clone().contiguous() for k, v in model.estimator.state_dict().items()}
    write_folder(model, folder, weights)


def write_folder(
    model: Model,
    folder: str | os.PathLike[str],
    weights: Mapping[str, torch.Tensor],
    steps: Mapping[str, Any] | None = None,
) -> None:
    """Write a folder around weights, which need not be those of the model's modules."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"doubtless {doubtless.__version__}",
        "name": model.name,
        "model": model.config.as_json(),
        "encoder": model.estimator.encoder.config.to_dict(),
        "tokens": model.tokens.as_json(),
        **({} if steps is None else {"steps": steps}),
        **model.extra,
    }
    save_file(dict(weights), path / "model.safetensors")
    (path / SURFACE).unlink(missing_ok=True)
    if model.surface is not None:
        model.surface.save(path / SURFACE)
    (path / "tokenizer.json").write_text(model.tokens.definition, encoding="utf-8")
    (path / "README.md").write_text(model.card or f"# {model.name}\n", encoding="utf-8")
    (path / "config.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8"
    )


def load(source: str | os.PathLike[str]) -> Model:
    """Load a model from a folder (ours or COMET's) or by its hub name."""
    path = locate(source)
    if (path / "hparams.yaml").is_file():
        from doubtless.neural.comet import load_comet

        return load_comet(path)
    folder = read_folder(path)
    try:
        weights = load_file(folder.weights)
        if any(tensor.dtype == torch.int8 for tensor in weights.values()):
            floats = dequantised({name: tensor.numpy() for name, tensor in weights.items()})
            weights = {name: torch.from_numpy(values) for name, values in floats.items()}
    except Exception as error:
        raise InputError(f"{path}: model.safetensors cannot be read ({first_line(error)})") from None
    estimator = filled(folder.config, folder.encoder, weights, str(path))
    return Model(estimator, folder.tokens, folder.name, folder.card, folder.extra, folder.surface)


def filled(
    config: ModelConfig, encoder: Mapping[str, Any], weights: Mapping[str, torch.Tensor], name: str
) -> Estimator:
    """Make an estimator around weights: none are drawn at random first, none stand in memory twice."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        estimator = Estimator(config, LayerwiseEncoder(bare_encoder(encoder)))
    assign(estimator, weights, name)
    return estimator.eval()


def assign(estimator: Estimator, weights: Mapping[str, torch.Tensor], name: str) -> None:
    """Put weights into an estimator; whatever is missing, unknown or of another shape is listed."""
    wanted = estimator.state_dict()
    wrong = [f"missing {key}" for key in wanted if key not in weights]
    wrong += [f"unknown {key}" for key in weights if key not in wanted]
    wrong += [
        f"{key} has shape {tuple(weights[key].shape)}, expected {tuple(wanted[key].shape)}"
        for key in wanted
        if key in weights and weights[key].shape != wanted[key].shape
    ]
    if wrong:
        more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise InputError(f"{name}: the weights do not fit the model: {'; '.join(wrong[:8])}{more}")
    # A file may hold half precision; what is run in it is chosen later.
    estimator.load_state_dict({key: tensor.float() for key, tensor in weights.items()}, assign=True)
