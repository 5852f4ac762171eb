"""One branch as a model of its own: ``python recipes/bundled/unstack.py OUT MODEL --branch 2``.

What :mod:`stack` put together can so be trained further. Heads get outputs for the further numbers that are
named and that they do not give yet; these begin at zero. Where a branch kept no head for a layer, the first
one's serves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from stack import Weights, moved

from doubtless.neural.checkpoint import Model, filled, load, save
from doubtless.neural.onnx_stepper import head_prefix, layer_prefix


def unstacked(model: Model, branch: int, auxiliary: Sequence[str]) -> Model:
    """One of the branches of a model (counted from 1), with the trunk."""
    layers, trunk = model.config.restart, model.config.trunk
    before = (branch - 1) * (layers - trunk)
    weights: Weights = model.estimator.state_dict()
    layered = ("encoder.model.encoder.", "heads.")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(layered)}
    for layer in range(1, layers + 1):
        kept |= moved(weights, layer_prefix(layer + before * (layer > trunk)), layer_prefix(layer))
        own = layer - 1 + (branch - 1) * (layer == layers)
        head = moved(weights, head_prefix(own), head_prefix(layer - 1))
        kept |= {name: with_outputs(name, tensor, model, auxiliary) for name, tensor in head.items()}
    encoder = model.estimator.encoder.config.to_dict() | {"num_hidden_layers": layers}
    config = replace(model.config, restart=0, trunk=0, word_layer=layers, auxiliary=tuple(auxiliary))
    return Model(filled(config, encoder, kept, "the branch"), model.tokens, f"branch-{branch}")


def with_outputs(name: str, tensor: torch.Tensor, model: Model, auxiliary: Sequence[str]) -> torch.Tensor:
    """A weight of a head; of its last layer, with a line for each number that the head is to give."""
    if f"layers.{len(model.estimator.heads[0].layers) - 1}." not in name:
        return tensor
    known = model.config.auxiliary
    own = model.config.width - len(known)
    new = torch.zeros_like(tensor[0])
    extra = [tensor[own + known.index(name)] if name in known else new for name in auxiliary]
    return torch.cat([tensor[:own], torch.stack(extra)]) if extra else tensor[:own]


def main() -> None:
    """Write the folder of the branch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--branch", type=int, required=True)
    parser.add_argument("--auxiliary", default="hter", help="further numbers, with commas between them")
    given = parser.parse_args()
    save(unstacked(load(given.model), given.branch, given.auxiliary.split(",")), given.out)


if __name__ == "__main__":
    main()
