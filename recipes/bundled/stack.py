"""Two models' lower layers as one: ``python recipes/bundled/stack.py OUT FIRST SECOND --layers 8``.

The tokens go through the first model's layers and then, from their embeddings again, through the second's;
scores at the end are the mean of both. Two encoders of eight layers agree better with people than one of
twelve, and a text can be left after the first. Both must have begun from the same encoder with its
embeddings as they were; these and the tagger are the first model's.

With one model, its lower layers become a model of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from doubtless.neural.checkpoint import Model, filled, load, save
from doubtless.neural.onnx_stepper import head_prefix, layer_prefix

Weights = dict[str, torch.Tensor]


def stacked(models: Sequence[Model], layers: int) -> Model:
    """The model of one or two; of further numbers that heads give, those that all have."""
    first = models[0]
    auxiliary = tuple(
        name for name in first.config.auxiliary if all(name in model.config.auxiliary for model in models)
    )
    parts = [weights_of(model, auxiliary) for model in models]
    layered = ("encoder.model.encoder.", "heads.")
    weights = {name: tensor for name, tensor in parts[0].items() if not name.startswith(layered)}
    for number, part in enumerate(parts):
        for layer in range(1, layers + 1):
            weights |= moved(part, layer_prefix(layer), layer_prefix(layer + number * layers))
            weights |= moved(part, head_prefix(layer - 1), head_prefix(layer - 1 + number * layers))
    encoder: dict[str, Any] = first.estimator.encoder.config.to_dict()
    encoder["num_hidden_layers"] = len(models) * layers
    restart = layers if len(models) > 1 else 0
    config = replace(first.config, restart=restart, auxiliary=auxiliary, word_layer=layers)
    return Model(filled(config, encoder, weights, "the stack"), first.tokens, first.name)


def weights_of(model: Model, auxiliary: tuple[str, ...]) -> Weights:
    """A model's weights, with those further outputs of the heads that are wanted."""
    own = model.config.width - len(model.config.auxiliary)
    kept = [*range(own), *(own + model.config.auxiliary.index(name) for name in auxiliary)]
    last = f"layers.{len(model.estimator.heads[0].layers) - 1}."
    return {
        name: tensor[kept] if name.startswith("heads.") and last in name else tensor
        for name, tensor in model.estimator.state_dict().items()
    }


def moved(weights: Mapping[str, torch.Tensor], old: str, new: str) -> Weights:
    """The weights below a prefix, below another."""
    return {new + name.removeprefix(old): tensor for name, tensor in weights.items() if name.startswith(old)}


def main() -> None:
    """Write the folder of the stack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path, nargs="?")
    parser.add_argument("--layers", type=int, default=8)
    given = parser.parse_args()
    models = [load(folder) for folder in (given.first, given.second) if folder is not None]
    save(stacked(models, given.layers), given.out)


if __name__ == "__main__":
    main()
