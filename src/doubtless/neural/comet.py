"""COMET's model folders, read without COMET.

A folder holds ``hparams.yaml`` and ``checkpoints/model.ckpt``, a Lightning checkpoint whose weights and
hyper-parameters are read as data: code in a checkpoint is never run. As in COMET, the hyper-parameters in the
checkpoint come first; ``hparams.yaml`` names the class of the model and fills what they leave open.

The encoder's weights are in the checkpoint, its configuration and tokenizer are not. They are taken from a
folder ``encoder`` (``config.json``, ``tokenizer.json``) beside ``hparams.yaml`` if there is one, so that a
COMET folder can be made to need no network, else from ``pretrained_model``, a folder or a hub name.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import Tokenizer
from torch import Tensor

from doubtless.errors import InputError
from doubtless.neural.checkpoint import Model, filled
from doubtless.neural.config import ModelConfig
from doubtless.neural.folder import first_line
from doubtless.neural.tokens import Tokens, tokens_of


@dataclass(frozen=True)
class _Kind:
    """A class of COMET: what is fixed about its models, and its defaults of hyper-parameters."""

    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Family:
    """An encoder of COMET: its Hugging Face model, its special tokens and how it joins texts.

    ``kinds``: whether the texts of a joint sequence differ in token kind. ``tokenizer``: the hub name of the
    tokenizer if it is not the encoder's own.
    """

    model_type: str
    begin: str
    end: str
    padding: str
    separators: int
    kinds: bool = False
    tokenizer: str | None = None


_APART = {"inputs": "separate", "uses": "src+mt"}
_EXITS = {**_APART, "pooling": "cls", "exits": "every", "first_exit": 0}
_ERROR = {"outputs": "score+error"}
_JOINT = {"inputs": "joint", "pooling": "cls"}
_SMALL = {"hidden_sizes": [2048, 1024]}

_KINDS = {
    "regression_metric": _Kind({**_APART, "uses": "src+mt+ref"}),
    "referenceless_regression_metric": _Kind(_APART, _SMALL),
    "ranking_metric": _Kind({**_APART, "uses": "src+mt+ref", "outputs": "distance"}),
    "unified_metric": _Kind(_JOINT, {"layer_transformation": "sparsemax"}),
    "xcomet_metric": _Kind(
        {**_JOINT, "uses": "src+mt+ref", "combination": "xcomet"},
        {
            "encoder_model": "XLM-RoBERTa-XL",
            "layer_transformation": "sparsemax",
            "layer_norm": False,
            "hidden_sizes": [2560, 1280],
            "word_level_training": True,
            "word_layer": 36,
            "error_labels": ["minor", "major", "critical"],
        },
    ),
    # The classes of the early-exit fork; they read the first token whatever ``pool`` says.
    "instantconf_metric": _Kind({**_APART, "pooling": "cls", **_ERROR}, _SMALL),
    "earlyexit_metric": _Kind(_EXITS, _SMALL),
    "earlyexitconf_metric": _Kind({**_EXITS, **_ERROR}, _SMALL),
    "earlyexitmulti": _Kind({**_EXITS, "heads": "each"}, _SMALL),
    "earlyexitconfmulti": _Kind({**_EXITS, **_ERROR, "heads": "each"}, _SMALL),
}

# Hyper-parameters that old checkpoints leave out, with the values that COMET gives them.
_DEFAULTS = {
    "encoder_model": "XLM-RoBERTa",
    "pool": "avg",
    "layer": "mix",
    "sent_layer": "mix",
    "layer_transformation": "softmax",
    "layer_norm": True,
    "dropout": 0.1,
    "hidden_sizes": [3072, 1024],
    "activations": "Tanh",
    "final_activation": None,
    "input_segments": ["mt", "src", "ref"],
    "word_level_training": False,
    "word_layer": 24,
    "error_labels": ["minor", "major"],
    "confidence_target": "human",
}

_FAMILIES = {
    "XLM-RoBERTa": _Family("xlm-roberta", "<s>", "</s>", "<pad>", 2),
    "XLM-RoBERTa-XL": _Family("xlm-roberta-xl", "<s>", "</s>", "<pad>", 2),
    "MiniLM": _Family("bert", "<s>", "</s>", "<pad>", 2, tokenizer="xlm-roberta-base"),
    "BERT": _Family("bert", "[CLS]", "[SEP]", "[PAD]", 1, kinds=True),
    "RemBERT": _Family("rembert", "[CLS]", "[SEP]", "<pad>", 1),
}

_POOLINGS = {"avg": "mean", "cls": "cls"}
# Older versions of COMET ran softmax for "sparsemax"; models that were trained so say "sparsemax_patch".
_MIXES = {"softmax": "softmax", "sparsemax_patch": "softmax", "sparsemax": "sparsemax"}


def load_comet(path: str | os.PathLike[str]) -> Model:
    """Load a model from a folder of COMET or of its early-exit fork.

    Parameters
    ----------
    path
        The folder with ``hparams.yaml`` and ``checkpoints/model.ckpt``.

    Returns
    -------
    Model
        The model, ready to score. How the passes of joint models become one score and where spans are found
        is in :mod:`doubtless.neural.spans`.

    Raises
    ------
    InputError
        If files are missing, the class or an option is not known, the checkpoint holds more than data, or
        its weights do not fit; keys that are missing or unknown are then listed.
    """
    root = Path(path)
    given = _hparams(root / "hparams.yaml")
    identifier = str(given.get("class_identifier"))
    kind = _one_of(_KINDS, identifier, f"{root}: model class")
    checkpoint = _checkpoint(root / "checkpoints" / "model.ckpt")
    stored = checkpoint.get("hyper_parameters")
    hparams = {**_DEFAULTS, **kind.defaults, **given, **(stored if isinstance(stored, dict) else {})}
    if given.get("layer_transformation") == "sparsemax_patch":
        hparams["layer_transformation"] = "sparsemax_patch"

    family = _one_of(_FAMILIES, str(hparams["encoder_model"]), f"{root}: encoder")
    encoder = _encoder_config(root, hparams, family)
    tokens = _tokens(root, hparams, family, encoder)
    config = _config(root, kind, hparams, depth=int(encoder["num_hidden_layers"]))
    if family.kinds and config.inputs == "joint":
        config = replace(config, kinds_after=tokens.end)

    estimator = filled(config, encoder, renamed(checkpoint["state_dict"]), str(root))
    card = root / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    origin = {"comet": {"class_identifier": identifier, "encoder_model": hparams["encoder_model"]}}
    return Model(estimator, tokens, _name(root), text, origin)


def _one_of(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise InputError(f"{what} '{name}' is not supported (supported: {', '.join(known)})")
    return known[name]


def _hparams(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: this is not a list of hyper-parameters")
    return data


def _checkpoint(path: Path) -> dict[str, Any]:
    """The content of a Lightning checkpoint, as far as it is data."""
    try:
        # Mapping the file keeps its tensors out of memory until they are copied into the model.
        data = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"'{found[1]}'" if found else "something else"
        raise InputError(
            f"{path}: besides tensors and plain data the checkpoint holds {what}, which might run code: it is"
            " not loaded (whoever trusts it can save its 'state_dict' and 'hyper_parameters' anew)"
        ) from None
    except Exception as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not (isinstance(data, dict) and isinstance(data.get("state_dict"), dict)):
        raise InputError(f"{path}: this is not a Lightning checkpoint (there is no 'state_dict')")
    return data


def _config(root: Path, kind: _Kind, hparams: Mapping[str, Any], depth: int) -> ModelConfig:
    fixed = dict(kind.fixed)
    joint = fixed["inputs"] == "joint"
    if "uses" not in fixed:
        fixed["uses"] = "+".join(name for name in ("src", "mt", "ref") if name in hparams["input_segments"])
    if joint and hparams["word_level_training"]:
        fixed["word_tags"] = ("O", *hparams["error_labels"])
        fixed["word_layer"] = _layer(root, hparams["word_layer"], depth)
    if "pooling" not in fixed:
        fixed["pooling"] = _one_of(_POOLINGS, str(hparams["pool"]), f"{root}: pooling")
    if fixed.get("exits") == "every" and fixed.get("outputs") == "score+error":
        fixed["error_target"] = hparams["confidence_target"]

    layer = hparams["sent_layer" if joint else "layer"]
    if layer == "mix":
        transformation = str(hparams["layer_transformation"])
        fixed["layer_mix"] = _one_of(_MIXES, transformation, f"{root}: layer_transformation")
        fixed["mix_norm"] = bool(hparams["layer_norm"])
    elif fixed.get("exits") != "every":
        fixed["layer"] = _layer(root, layer, depth)
    return ModelConfig(
        encoder=str(hparams.get("pretrained_model", "")),
        hidden_sizes=tuple(hparams["hidden_sizes"]),
        activation=hparams["activations"],
        final_activation=hparams["final_activation"],
        dropout=hparams["dropout"],
        layer_dropout=hparams["dropout"],
        scale="comet",
        direction="higher",
        **fixed,
    )


def _layer(root: Path, layer: Any, depth: int) -> int:
    if not isinstance(layer, int) or not 0 <= layer <= depth:
        raise InputError(f"{root}: there is no layer '{layer}' (the encoder has layers 0 to {depth})")
    return layer


def _encoder_config(root: Path, hparams: Mapping[str, Any], family: _Family) -> dict[str, Any]:
    source = _source(root, hparams.get("pretrained_model"))
    path = _fetched(source, "config.json")
    if path is None:
        raise InputError(f"{source}: the encoder's config.json is missing")
    try:
        data = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from None
    # COMET decides itself what kind of model it is; the precision is that of the checkpoint.
    return {**{k: v for k, v in data.items() if k != "torch_dtype"}, "model_type": family.model_type}


def _tokens(root: Path, hparams: Mapping[str, Any], family: _Family, encoder: Mapping[str, Any]) -> Tokens:
    # Two fewer than there are positions, whatever the encoder: where RoBERTa counts from, and COMET's limit.
    most = int(encoder["max_position_embeddings"]) - 2
    source = _source(root, family.tokenizer or hparams.get("pretrained_model"))
    path = _fetched(source, "tokenizer.json")
    if path is None:
        return _converted_tokens(source, most, int(encoder["vocab_size"]))
    # Not through transformers, whose newer versions put XLM-R's tokenizer together anew from its vocabulary.
    definition = path.read_text(encoding="utf-8")
    try:
        tokenizer = Tokenizer.from_str(definition)
    except Exception as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from None
    ids = []
    for token in (family.begin, family.end, family.padding):
        number = tokenizer.token_to_id(token)
        if number is None:
            raise InputError(f"{path}: the tokenizer has no token '{token}'")
        ids.append(number)
    begin, end, padding = ids
    return Tokens(definition, begin, end, padding, family.separators, most)


def _converted_tokens(source: str, most: int, vocabulary: int) -> Tokens:
    """A tokenizer that has no ``tokenizer.json``, converted by transformers."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=os.path.isdir(source))
    except Exception as error:
        raise InputError(f"{source}: the tokenizer cannot be loaded ({first_line(error)})") from error
    # Where there is no file at all, transformers makes a tokenizer of a few special tokens without a word.
    if len(tokenizer) < vocabulary // 2:
        raise InputError(f"{source}: the tokenizer is missing (put its tokenizer.json there)")
    return tokens_of(tokenizer, most)


def _source(root: Path, name: Any) -> str:
    """Where an encoder's files are: beside the checkpoint, in a folder or on the hub."""
    beside = root / "encoder"
    if beside.is_dir():
        return str(beside)
    if not name:
        raise InputError(f"{root}: there is neither a folder 'encoder' nor a 'pretrained_model'")
    return str(name)


def _fetched(source: str, name: str) -> Path | None:
    """A file of an encoder's folder or hub repository; None if it has no such file."""
    if os.path.isdir(source):
        found = Path(source, name)
        return found if found.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(source, name))
    except Exception as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        raise InputError(
            f"{source}: {name} is neither in a folder of this name nor given by the hub"
            f" ({first_line(error)}); put it into a folder 'encoder' beside hparams.yaml"
        ) from error


# What COMET's checkpoints hold besides weights: poolers that nothing reads, buffers, the loss and metrics.
_DROPPED = re.compile(
    r"encoder\.model\.pooler\."
    r"|encoder\.model\.embeddings\.(position_ids|token_type_ids)$"
    r"|layerwise_attention\.(\d+\.)?dropout_(mask|fill)$"
    r"|wordloss\.weight$"
    r"|(train|val)_(metrics|corr|mcc)\."
)
_MIX_WEIGHT = re.compile(r"layerwise_attention\.(?:(\d+)\.)?scalar_parameters\.(\d+)$")
# A model of one head or one mix does not number it.
_RENAMED = (
    (re.compile(r"^layerwise_attention\.gamma$"), "mixes.0.gamma"),
    (re.compile(r"^layerwise_attention\.(\d+)\.gamma$"), r"mixes.\1.gamma"),
    (re.compile(r"^estimator\.ff\."), "heads.0.layers."),
    (re.compile(r"^estimator\.(\d+)\.ff\."), r"heads.\1.layers."),
    (re.compile(r"^hidden2tag\."), "tagger."),
)


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give COMET's weights the names they have in an :class:`~doubtless.neural.model.Estimator`.

    What is known and not needed is left out; keys that are not known stay as they are.

    >>> weights = {"estimator.ff.0.bias": torch.zeros(2), "wordloss.weight": torch.ones(3)}
    >>> list(renamed(weights))
    ['heads.0.layers.0.bias']
    """
    found: dict[str, Tensor] = {}
    mixes: dict[str, dict[int, Tensor]] = {}
    for key, tensor in state.items():
        if _DROPPED.match(key):
            continue
        part = _MIX_WEIGHT.match(key)
        if part:
            mixes.setdefault(f"mixes.{part[1] or 0}.weights", {})[int(part[2])] = tensor
            continue
        name = key
        for pattern, ours in _RENAMED:
            name = pattern.sub(ours, name)
        found[name] = tensor
    for name, parts in mixes.items():
        found[name] = torch.cat([parts[place].reshape(1) for place in sorted(parts)])
    return found


def _name(root: Path) -> str:
    """The folder's name; in the hub's cache, whose folders are named by commits, the repository's."""
    folder = root.resolve()
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name
