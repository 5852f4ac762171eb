"""Models in folders: ``config.json``, ``model.safetensors``, ``tokenizer.json`` and a card.

A folder is self-contained: loading one never asks the network for anything. Hub names are fetched with
``huggingface_hub`` and are folders from then on. COMET's folders are read by :mod:`doubtless.neural.comet`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import doubtless
from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import LayerwiseEncoder
from doubtless.neural.model import Estimator
from doubtless.neural.tokens import Tokens, tokens_of

FORMAT = "doubtless model"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Model:
    """An estimator with its tokenizer, its name and its card."""

    estimator: Estimator
    tokens: Tokens
    name: str = "unnamed"
    card: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> ModelConfig:
        """What the estimator is made of."""
        return self.estimator.config

    def fingerprint(self) -> str:
        """Eight hex digits of the weights and the configuration, for signatures."""
        digest = sha256(json.dumps(self.config.as_json(), sort_keys=True).encode())
        for name, tensor in sorted(self.estimator.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().numpy().tobytes())
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
        raise InputError(f"{config.encoder}: the encoder cannot be loaded ({_first_line(error)})") from error
    if len(tokenizer) < encoder.config.vocab_size // 2:
        # transformers makes an almost empty tokenizer where a folder holds none, without a word.
        raise InputError(
            f"{config.encoder}: the tokenizer knows {len(tokenizer)} tokens, the encoder"
            f" {encoder.config.vocab_size} (are its tokenizer files missing?)"
        )
    limit = positions(encoder.config)
    most = min(config.max_length or limit, limit)
    torch.manual_seed(seed)
    return Model(Estimator(config, LayerwiseEncoder(encoder)), tokens_of(tokenizer, most), name)


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
        **model.extra,
    }
    # Copies, because the format refuses tensors that share memory, as those of a mapped file may.
    weights = {k: v.detach().cpu().clone().contiguous() for k, v in model.estimator.state_dict().items()}
    save_file(weights, path / "model.safetensors")
    (path / "tokenizer.json").write_text(model.tokens.definition, encoding="utf-8")
    (path / "README.md").write_text(model.card or f"# {model.name}\n", encoding="utf-8")
    (path / "config.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8"
    )


def load(source: str | os.PathLike[str]) -> Model:
    """Load a model from a folder (ours or COMET's) or by its hub name."""
    path = Path(source)
    if not path.is_dir():
        path = _from_hub(os.fspath(source))
    if (path / "hparams.yaml").is_file():
        from doubtless.neural.comet import load_comet

        return load_comet(path)
    return _load_own(path)


def _from_hub(name: str) -> Path:
    if name.count("/") != 1 or name.startswith((".", "/")):
        raise InputError(f"{name}: there is no such folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name))
    except Exception as error:
        raise InputError(
            f"{name}: neither a folder nor a model that the hub gives ({_first_line(error)})"
        ) from error


def _load_own(path: Path) -> Model:
    try:
        data = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: this is not a model folder (config.json: {_first_line(error)})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: this is not a model folder of doubtless or COMET")
    if data.get("version") != VERSION:
        raise InputError(f"{path}: version {data.get('version')} of the format, expected {VERSION}")
    try:
        config = ModelConfig.from_json(data["model"])
        tokens = Tokens((path / "tokenizer.json").read_text(encoding="utf-8"), **data["tokens"])
        encoder = dict(data["encoder"])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the model folder is damaged ({_first_line(error)})") from None
    try:
        weights = load_file(path / "model.safetensors")
    except Exception as error:
        raise InputError(f"{path}: model.safetensors cannot be read ({_first_line(error)})") from None
    estimator = filled(config, encoder, weights, str(path))
    card = path / "README.md"
    known = {"format", "version", "made_by", "name", "model", "encoder", "tokens"}
    extra = {k: v for k, v in data.items() if k not in known}
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    return Model(estimator, tokens, str(data.get("name", path.name)), text, extra)


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


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
