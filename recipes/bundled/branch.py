"""A model to train as a further branch: ``python recipes/bundled/branch.py OUT TRUNK --above FOLDER``.

Its lower layers are those of TRUNK, which training must leave alone (``freeze``); the layers above come from
FOLDER, a trained model or the encoder. From an encoder heads and tagger begin anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from doubtless.neural.checkpoint import Model, load, save
from doubtless.neural.onnx_stepper import layer_prefix


def branched(trunk: Model, above: Path, layers: int, seed: int = 0) -> Model:
    """The model, from the lower ``layers`` of one and what stands above them in another folder."""
    weights = load_file(above / "model.safetensors")
    trained = any(name.startswith("heads.") for name in weights)
    if not trained:
        weights = {f"encoder.model.{name}": weight for name, weight in weights.items()}
    own = trunk.estimator.state_dict()
    kept = ("encoder.model.embeddings.", *(layer_prefix(number) for number in range(1, layers + 1)))
    for name in own:
        if not name.startswith(kept) and name in weights:
            own[name] = weights[name]
    trunk.estimator.load_state_dict(own)
    if not trained:
        torch.manual_seed(seed)
        for module in (*trunk.estimator.heads.modules(), trunk.estimator.tagger):
            if isinstance(module, torch.nn.Linear):
                module.reset_parameters()
    return trunk


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("trunk", type=Path)
    parser.add_argument("--above", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=3, help="of the trunk")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    save(branched(load(given.trunk), given.above, given.layers, given.seed), given.out)


if __name__ == "__main__":
    main()
