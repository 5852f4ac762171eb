"""Model folders as data, whatever runs them: finding one and reading all of it but the weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.tokens import Tokens
from doubtless.surface.model import Surface

FORMAT = "doubtless model"
VERSION = 1
SURFACE = "surface.npz"

_KNOWN = {"format", "version", "made_by", "name", "model", "encoder", "tokens", "steps"}


@dataclass(frozen=True)
class Folder:
    """What a model folder says about its model.

    ``encoder`` is the Hugging Face configuration of the encoder. ``steps`` is there in folders that ONNX
    Runtime can run (:mod:`doubtless.neural.export`): the ``exits``, the ``word_layer``, how ``weights`` are
    stored and their ``fingerprint``. ``extra`` is whatever else was noted.
    """

    path: Path
    name: str
    config: ModelConfig
    tokens: Tokens
    encoder: Mapping[str, Any]
    card: str
    steps: Mapping[str, Any] | None
    extra: Mapping[str, Any]

    @property
    def surface(self) -> Surface | None:
        """What corrects the scores of some language pairs, if the folder has it."""
        path = self.path / SURFACE
        return Surface.load(path) if path.is_file() else None

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        return self.path / "model.safetensors"


def locate(source: str | os.PathLike[str]) -> Path:
    """Find the folder of a model, given itself or by a name on the hub."""
    path, name = Path(source), os.fspath(source)
    if path.is_dir():
        return path
    if name.count("/") != 1 or name.startswith((".", "/")):
        raise InputError(f"{name}: there is no such folder")
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        message = "there is no such folder, and huggingface-hub, which could fetch it, is missing"
        raise InputError(f"{name}: {message}") from None
    try:
        return Path(snapshot_download(name))
    except Exception as error:
        raise InputError(
            f"{name}: neither a folder nor a model that the hub gives ({first_line(error)})"
        ) from error


def read_folder(path: Path) -> Folder:
    """Read a folder of doubtless; whatever is wrong with it is said in one sentence."""
    try:
        data = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: this is not a model folder (config.json: {first_line(error)})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: this is not a model folder of doubtless or COMET")
    if data.get("version") != VERSION:
        raise InputError(f"{path}: version {data.get('version')} of the format, expected {VERSION}")
    card = path / "README.md"
    try:
        return Folder(
            path=path,
            name=str(data.get("name", path.name)),
            config=ModelConfig.from_json(data["model"]),
            tokens=Tokens((path / "tokenizer.json").read_text(encoding="utf-8"), **data["tokens"]),
            encoder=dict(data["encoder"]),
            card=card.read_text(encoding="utf-8") if card.is_file() else "",
            steps=dict(data["steps"]) if "steps" in data else None,
            extra={key: value for key, value in data.items() if key not in _KNOWN},
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: BaseException) -> InputError:
    """The error of a folder in which something is missing or wrong."""
    return InputError(f"{path}: the model folder is damaged ({first_line(error)})")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for one sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0]
