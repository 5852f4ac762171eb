"""The mean of models' weights: ``python recipes/bundled/average.py OUT MODEL=SHARE MODEL=SHARE ...``.

Runs that began from the same model end near enough to each other for the mean of their weights to be a model
that agrees better with people than each of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from doubtless.neural.checkpoint import Model, load, save


def averaged(models: Sequence[Model], shares: Sequence[float]) -> Model:
    """The first model with the weighted mean of all weights."""
    parts: list[Mapping[str, torch.Tensor]] = [model.estimator.state_dict() for model in models]
    mean = {}
    for name, weight in parts[0].items():
        own = [part[name] for part in parts]
        # What no run has changed stays as it is to the last bit.
        same = all(torch.equal(weight, other) for other in own[1:])
        mean[name] = weight if same else mixed(own, shares)
    models[0].estimator.load_state_dict(mean)
    return replace(models[0], card="")


def mixed(weights: Sequence[torch.Tensor], shares: Sequence[float]) -> torch.Tensor:
    """The weighted mean of tensors."""
    return torch.tensordot(torch.tensor(shares) / sum(shares), torch.stack(list(weights)), dims=1)


def main() -> None:
    """Write the folder of the mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL=SHARE")
    given = parser.parse_args()
    folders, shares = zip(*(model.rsplit("=", 1) for model in given.models), strict=True)
    save(averaged([load(folder) for folder in folders], [float(share) for share in shares]), given.out)


if __name__ == "__main__":
    main()
