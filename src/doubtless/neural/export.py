"""From a PyTorch model to a folder that ONNX Runtime scores with, and PyTorch as well.

The folder is that of :mod:`doubtless.neural.checkpoint` with a subfolder ``steps`` of small graphs beside the
weights, which both runtimes read from the one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doubtless.errors import InputError
from doubtless.neural.checkpoint import Model, fingerprint, write_folder
from doubtless.neural.encoder import batch_of
from doubtless.neural.model import Batch
from doubtless.neural.onnx_graphs import embedding_graph, head_graph, layer_graph, tagger_graph
from doubtless.neural.onnx_stepper import EMBEDDING, STEPS, head_prefix, layer_prefix
from doubtless.neural.stepper import Array
from doubtless.neural.weights import dequantised, half_bytes, scaled_columns, scaled_rows

_FAMILY = {"bert", "roberta", "xlm-roberta", "camembert"}
_SMOOTHED = {"attention.self": ("query", "key", "value"), "intermediate": ("dense",)}
_UNSMOOTHED = ("attention.output.dense", "output.dense")
_SMOOTHING = 0.7
_LARGE = 1 << 16


def export(model: Model, folder: str | os.PathLike[str], *, quantise: bool = True) -> None:
    """Write a model for ONNX Runtime.

    Parameters
    ----------
    model
        A joint model without a layer mix, on an encoder of the BERT family.
    folder
        Where to; what :func:`doubtless.neural.checkpoint.load` reads as well.
    quantise
        Store the weights of matrix products and of tokens as bytes, a quarter of the size, and compute with
        them. Without, scores are those of PyTorch to 1e-5.

    Raises
    ------
    InputError
        If the model is of another kind.

    Examples
    --------
    >>> export(load("run/model"), "small")  # doctest: +SKIP
    >>> open_engine("small").score(texts).score  # doctest: +SKIP
    """
    _check(model)
    estimator = model.estimator.float().cpu().eval()
    weights = {name: tensor.numpy(force=True) for name, tensor in estimator.state_dict().items()}
    stored = _quantised(model, weights) if quantise else weights
    floats = dequantised(stored)
    steps = {
        "weights": "int8" if quantise else "float32",
        "exits": estimator.exits,
        "word_layer": estimator.word_layer if model.config.word_tags else None,
        "fingerprint": fingerprint(model.config, floats),
    }
    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in stored.items()}
    write_folder(model, folder, tensors, steps)
    place = Path(folder) / STEPS
    place.mkdir(exist_ok=True)
    for name, graph in _graphs(model, stored, floats).items():
        (place / f"{name}.onnx").write_bytes(graph)


def _check(model: Model) -> None:
    config, encoder = model.config, model.estimator.encoder.config
    if config.inputs != "joint" or config.layer_mix != "none" or config.outputs in ("error", "distance"):
        raise InputError("only joint models of scores without a layer mix can be exported")
    if encoder.model_type not in _FAMILY or not model.estimator.encoder.steps or encoder.hidden_act != "gelu":
        raise InputError(f"encoders of the kind {encoder.model_type} cannot be exported")


def _graphs(model: Model, stored: Mapping[str, Array], floats: Mapping[str, Array]) -> dict[str, bytes]:
    config, size = model.config, model.estimator.encoder.size
    encoder: dict[str, Any] = model.estimator.encoder.config.to_dict()
    head: Any = model.estimator.heads[0]
    modules = [type(module).__name__ for module in head.layers]
    graphs = {
        "embedding": embedding_graph(floats, EMBEDDING, encoder, config.kinds_after),
        "layer": layer_graph(stored, layer_prefix(1), encoder),
        "head": head_graph(floats, head_prefix(0), modules, config, size),
    }
    if config.word_tags:
        graphs["tagger"] = tagger_graph(floats, "tagger.", size)
    return graphs


def _quantised(model: Model, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights as they are stored: bytes where that saves much, and their scales."""
    stored = dict(weights)
    for kind in ("word_embeddings", "position_embeddings"):
        table, floats = EMBEDDING + kind, weights[f"{EMBEDDING}{kind}.weight"]
        # Only the large table may be of half-bytes: the others are part of a graph, which knows none.
        halved = half_bytes(floats) if kind == "word_embeddings" else None
        stored[f"{table}.weight"], stored[f"{table}.scale"] = halved or scaled_rows(floats)

    def put(layer: str, smooth: Array | None = None) -> None:
        data, scale = scaled_columns(weights[f"{layer}.weight"], smooth)
        stored[f"{layer}.weight"], stored[f"{layer}.scale"] = data, scale

    largest = _largest_inputs(model)
    for number in range(1, model.estimator.encoder.depth + 1):
        prefix = layer_prefix(number)
        for module, layers in _SMOOTHED.items():
            smooth = _smoothing(largest[prefix + module])
            stored[f"{prefix}{module}.smooth"] = smooth
            for layer in layers:
                put(f"{prefix}{module}.{layer}", smooth)
        for layer in _UNSMOOTHED:
            put(prefix + layer)
    for name, weight in weights.items():
        # Heads compute with floats: they cost little time, but there may be one for each layer.
        if name.startswith("heads.") and weight.ndim == 2 and weight.size >= _LARGE:
            put(name.removesuffix(".weight"))
    return stored


def _smoothing(largest: Array) -> Array:
    """What inputs are multiplied with, so that a few large channels do not cost the others their digits.

    A part of the outliers' size goes over to the weights (Xiao et al. 2023), which are scaled a column each
    and can bear it.
    """
    excess = np.maximum(largest / np.median(largest), 1.0)
    return (excess**-_SMOOTHING).astype(np.float32)


@torch.inference_mode()
def _largest_inputs(model: Model) -> dict[str, Array]:
    """The largest absolute input of each channel of the layers that are smoothed, over random tokens.

    Which channels are outliers is a matter of the encoder and its special tokens, not of the text. A channel
    that is misjudged costs a digit and no more: each token has its own scale.
    """
    found: dict[str, Array] = {}

    def watch(name: str) -> Any:
        def note(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            found[name] = inputs[0].flatten(0, -2).abs().amax(dim=0).numpy()

        return note

    modules = dict(model.estimator.named_modules())
    hooks = []
    for number in range(1, model.estimator.encoder.depth + 1):
        for module, layers in _SMOOTHED.items():
            name = layer_prefix(number) + module
            hooks.append(modules[f"{name}.{layers[0]}"].register_forward_pre_hook(watch(name)))
    ids, mask = batch_of(_random_sequences(model), model.tokens.padding)
    try:
        state = model.estimator.start(Batch(ids, mask, {"joint": torch.arange(len(ids))}))
        model.estimator.advance(state, model.estimator.encoder.depth)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _random_sequences(model: Model, count: int = 64) -> list[list[int]]:
    """Sequences of two texts of random tokens."""
    random, tokens = np.random.default_rng(0), model.tokens
    most = (tokens.most - 4) // 2
    words = int(model.estimator.encoder.config.vocab_size)

    def text() -> list[int]:
        return random.integers(words, size=random.integers(1, min(most, 40) + 1)).tolist()

    between = [tokens.end] * tokens.separators
    return [[tokens.begin, *text(), *between, *text(), tokens.end] for _ in range(count)]
