"""The mean of several trained models' weights: ``python recipes/bundled/average.py OUT MODEL MODEL=2 …``.

Runs that began from the same weights end in places between which the loss is low, and their mean agrees
better with people than each of them (Wortsman et al. 2022, "Model soups"). Embeddings were not trained, and
are the first model's: the vocabularies of the others may have been cut differently.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def part_of(text: str) -> tuple[Path, float]:
    """Read ``FOLDER`` or ``FOLDER=WEIGHT``."""
    folder, _, weight = text.partition("=")
    return Path(folder), float(weight or 1)


def mean_of(parts: list[tuple[dict[str, torch.Tensor], float]]) -> dict[str, torch.Tensor]:
    """The weighted mean of all tensors but the embeddings."""
    first, total = parts[0][0], sum(weight for _, weight in parts)
    mean = dict(first)
    for name, tensor in first.items():
        if "embeddings." not in name:
            combined = sum(weight * tensors[name].double() for tensors, weight in parts) / total
            mean[name] = torch.as_tensor(combined).to(tensor.dtype).contiguous()
    return mean


def main() -> None:
    """Write a folder like the first one, with the mean of the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("models", type=part_of, nargs="+", metavar="MODEL[=WEIGHT]")
    given = parser.parse_args()
    first = given.models[0][0]
    with safe_open(first / WEIGHTS, "pt") as file:
        metadata = file.metadata()
    mean = mean_of([(load_file(folder / WEIGHTS), weight) for folder, weight in given.models])
    given.out.mkdir(parents=True)
    shutil.copy(first / "tokenizer.json", given.out)
    save_file(mean, given.out / WEIGHTS, metadata=metadata)
    config = json.loads((first / "config.json").read_text(encoding="utf-8"))
    # How the first model was trained, and how good it is, is not true of the mean.
    config["trained"] = {"mean_of": {str(folder): weight for folder, weight in given.models}}
    config["name"] = given.out.name
    (given.out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
