"""Does skipping layers save time? Early exit beside a full run of the same model, turn by turn.

    python benchmarks/early_exit.py [--rows 96] [--rounds 5] [--layers 12] [--size 768] [--head 512 256]
                                    [--batch 8 16 32]

A random model with an exit at every layer. Each row is told beforehand at which layer to leave, so that just
half of the layer-rows are skipped; the heads of all passed exits are run, as they must be. Prints CPU seconds
and which share of the arithmetic saving (one half) shows in time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from transformers import BertConfig, BertModel

from doubtless.neural.checkpoint import Model
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import LayerwiseEncoder
from doubtless.neural.exits import ExitRule, run
from doubtless.neural.model import Estimator
from doubtless.neural.stepper import TokenBatch
from doubtless.neural.tokens import Tokens
from doubtless.neural.torch_stepper import TorchStepper


@dataclass(frozen=True)
class Scripted(ExitRule):
    """Leave where a list says: the row's place in the list travels as the first token's id."""

    kind: str = "constant"  # type: ignore[assignment]
    value: float = 0.0
    layers: tuple[int, ...] = ()

    def leaves(self, layer, outputs, history):  # type: ignore[no-untyped-def]
        """Rows whose turn has come; those that stay keep their order."""
        self._left[:] = [at for at in self._left if at > self._done[0]]
        self._done[0] = layer
        return np.array([at <= layer for at in self._left])

    def restart(self) -> Scripted:
        """Forget the previous run."""
        object.__setattr__(self, "_left", list(self.layers))
        object.__setattr__(self, "_done", [0])
        return self


def stepper(layers: int, size: int, head: list[int]) -> TorchStepper:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": layers, "hidden_size": size, "intermediate_size": 4 * size}
    encoder = BertModel(
        BertConfig(vocab_size=1000, num_attention_heads=size // 32, **sizes), add_pooling_layer=False
    )
    config = ModelConfig(exits="every", outputs="score+error", error_target="last", hidden_sizes=tuple(head))
    return TorchStepper(Model(Estimator(config, LayerwiseEncoder(encoder)), Tokens("", 0, 2, 1, 1, 512)))


def batches(rows: int, batch: int, rng: np.random.Generator) -> list[TokenBatch]:
    lengths = np.sort(rng.integers(25, 60, rows))
    found = []
    for start in range(0, rows, batch):
        sequences = [rng.integers(3, 1000, n).tolist() for n in lengths[start : start + batch]]
        found.append(TokenBatch(sequences, {"joint": np.arange(len(sequences))}))
    return found


def seconds(work) -> float:  # type: ignore[no-untyped-def]
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--size", type=int, default=768)
    parser.add_argument("--head", type=int, nargs="+", default=[512, 256])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 16, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, rng = stepper(options.layers, options.size, options.head), np.random.default_rng(0)
    for size in options.batch:
        made = batches(options.rows, size, rng)
        rules = []
        for batch in made:
            # Pairs of rows that leave at layers k and L - k skip just half of their layers.
            half = rng.integers(1, options.layers, (len(batch.sequences) + 1) // 2)
            layers = np.concatenate([half, options.layers - half])[: len(batch.sequences)]
            rules.append(Scripted(layers=tuple(rng.permutation(layers).tolist())))
        skipped = 1 - sum(sum(rule.layers) for rule in rules) / (options.rows * options.layers)

        def full(made: list[TokenBatch] = made) -> None:
            for batch in made:
                run(model, batch)

        def early(made: list[TokenBatch] = made, rules: list[Scripted] = rules) -> None:
            for batch, rule in zip(made, rules, strict=True):
                run(model, batch, rule.restart())

        full(), early()
        times = [(seconds(full), seconds(early)) for _ in range(options.rounds)]
        whole, part = median(t[0] for t in times), median(t[1] for t in times)
        saved = 1 - part / whole
        print(
            f"batch {size:3d}: full {whole:6.2f} s   early {part:6.2f} s   layer-rows skipped {skipped:.3f}"
            f"   time saved {saved:.3f}   share of the saving that shows {saved / skipped:.2f}"
        )


if __name__ == "__main__":
    main()
