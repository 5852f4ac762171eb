"""Models as branches of one: ``python recipes/bundled/stack.py OUT FIRST OTHER ... --layers 8 --trunk 3``.

The tokens go through the first model's layers and then, from what the trunk has made of them, through those
of each other; scores at the end are the mean of all. Several shallow encoders agree better with people than a
deep one, and a text can be left after the first. All must have the layers of the trunk in common; embeddings
and tagger are the first model's, and of the heads of the others only the last one is kept.

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


def stacked(models: Sequence[Model], layers: int, trunk: int = 0) -> Model:
    """The model of one or more; of further numbers that heads give, those that all have."""
    first = models[0]
    auxiliary = tuple(
        name for name in first.config.auxiliary if all(name in model.config.auxiliary for model in models)
    )
    parts = [weights_of(model, auxiliary) for model in models]
    layered = ("encoder.model.encoder.", "heads.")
    weights = {name: tensor for name, tensor in parts[0].items() if not name.startswith(layered)}
    for layer in range(1, layers + 1):
        weights |= moved(parts[0], layer_prefix(layer), layer_prefix(layer))
        weights |= moved(parts[0], head_prefix(layer - 1), head_prefix(layer - 1))
    for number, part in enumerate(parts[1:], start=1):
        for layer in range(1, trunk + 1):
            below = moved(part, layer_prefix(layer), layer_prefix(layer))
            if not all(torch.equal(tensor, weights[name]) for name, tensor in below.items()):
                raise SystemExit(f"model {number + 1} has another layer {layer} than the first")
        for layer in range(trunk + 1, layers + 1):
            place = layer + number * (layers - trunk)
            weights |= moved(part, layer_prefix(layer), layer_prefix(place))
        weights |= moved(part, head_prefix(layers - 1), head_prefix(layers - 1 + number))
    encoder: dict[str, Any] = first.estimator.encoder.config.to_dict()
    encoder["num_hidden_layers"] = trunk + len(models) * (layers - trunk)
    branches = {"restart": layers, "trunk": trunk} if len(models) > 1 else {"restart": 0, "trunk": 0}
    config = replace(first.config, auxiliary=auxiliary, word_layer=layers, **branches)
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
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--trunk", type=int, default=0)
    given = parser.parse_args()
    save(stacked([load(folder) for folder in given.models], given.layers, given.trunk), given.out)


if __name__ == "__main__":
    main()
