"""What test-time adaptation costs: ours beside K whole passes one after another, K = 30, J = 3.

    python benchmarks/adapt.py [--rows 32] [--batch 16] [--layers 12] [--size 384] [--head 256]
                               [--k 30] [--passes 3]

A random model with a layer mix that reads source and translation apart. ``plain`` is algorithm 1 as it is
written: every pass runs the whole model and its graph is kept until the batch's loss is known. ``frozen`` is
the same with an encoder that is told that it need not learn. Each runs in a process of its own, in turn;
printed are CPU seconds, the memory that the process took beyond what the loaded model takes, and how far the
adapted parameters differ from ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel

from doubtless.neural.adapt import BETAS, EPSILON, adapt
from doubtless.neural.adapt_plan import AdaptPlan
from doubtless.neural.checkpoint import Model
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import LayerwiseEncoder, batch_of
from doubtless.neural.engine import Engine
from doubtless.neural.model import Batch, Estimator
from doubtless.neural.noisy import Segments, seed_of
from doubtless.neural.runtime import torch_engine
from doubtless.neural.tokens import Tokens

WORDS = 1000
KINDS = ("nothing", "ours", "frozen", "plain")


def engine_of(layers: int, size: int, head: list[int]) -> Engine:
    torch.manual_seed(0)
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w3"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"num_hidden_layers": layers, "hidden_size": size, "intermediate_size": 4 * size}
    encoder = BertModel(
        BertConfig(vocab_size=WORDS, num_attention_heads=size // 32, **sizes), add_pooling_layer=False
    )
    config = ModelConfig(
        inputs="separate", pooling="mean", layer_mix="softmax", hidden_sizes=tuple(head), dropout=0.1
    )
    tokens = Tokens(made.to_str(), 0, 2, 1, 1, 512)
    return torch_engine(Model(Estimator(config, LayerwiseEncoder(encoder)), tokens))


def texts_of(rows: int) -> dict[str, list[str]]:
    rng = np.random.default_rng(0)

    def text() -> str:
        return " ".join(f"w{i}" for i in rng.integers(4, WORDS, rng.integers(20, 50)))

    return {"src": [text() for _ in range(rows)], "mt": [text() for _ in range(rows)]}


def one_after_another(
    engine: Engine, texts: dict[str, list[str]], plan: AdaptPlan, frozen: bool
) -> dict[str, torch.Tensor]:
    """Algorithm 1 with whole passes; the encoder's own dropout stays off, as in ours."""
    estimator = engine.stepper.estimator  # type: ignore[attr-defined]
    estimator.train()
    estimator.encoder.eval()
    for weight in estimator.encoder.parameters():
        weight.requires_grad_(not frozen)
    mix = estimator.mixes[-1]
    optimiser = torch.optim.Adam(mix.parameters(), lr=plan.lr, betas=BETAS, eps=EPSILON)
    order = Segments(estimator, [], {}, _ranks(texts), 1, None).batches(plan)
    for epoch in range(1, plan.passes + 1):
        for number, rows in enumerate(order):
            sequences = [
                engine.tokens.encode([texts[name][i]])[0].ids for name in ("mt", "src") for i in rows
            ]
            places = {name: j * len(rows) + torch.arange(len(rows)) for j, name in enumerate(("mt", "src"))}
            batch = Batch(*batch_of(sequences, 1), places)
            torch.manual_seed(seed_of(plan.seed, epoch, number))
            scores = torch.stack([estimator(batch)[0]["score"][-1] for _ in range(plan.k)])
            estimator.zero_grad()
            scores.std(dim=0, correction=0).mean().backward()
            optimiser.step()
    return {f"mixes.0.{name}": weight.detach() for name, weight in mix.named_parameters()}


def _ranks(texts: dict[str, list[str]]) -> np.ndarray:
    lines = list(zip(texts["mt"], texts["src"], strict=True))
    return np.argsort(sorted(range(len(lines)), key=lines.__getitem__))


def peak() -> float:
    """Most memory that this process has had, in MB (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) / 1024


def measure(kind: str, options: argparse.Namespace) -> dict[str, object]:
    torch.set_num_threads(1)
    engine, texts = engine_of(options.layers, options.size, options.head), texts_of(options.rows)
    plan = AdaptPlan(passes=options.passes, k=options.k, batch=options.batch)
    engine.score({name: values[:2] for name, values in texts.items()})
    values: dict[str, torch.Tensor] = {}
    start = time.process_time()
    if kind == "ours":
        values = dict(adapt(engine, texts, plan).values)
    elif kind != "nothing":
        values = one_after_another(engine, texts, plan, frozen=kind == "frozen")
    seconds = time.process_time() - start
    return {"seconds": seconds, "memory": peak(), "values": {n: v.tolist() for n, v in values.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--head", type=int, nargs="+", default=[256])
    parser.add_argument("--k", type=int, default=30)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options)))
        return
    found = {}
    for kind in KINDS:
        done = subprocess.run([sys.executable, *sys.argv, "--only", kind], stdout=subprocess.PIPE, check=True)
        found[kind] = json.loads(done.stdout)
    ours, floor = found["ours"], found["nothing"]["memory"]
    for kind in KINDS[1:]:
        one = found[kind]
        far = max(
            float(np.abs(np.subtract(one["values"][name], ours["values"][name])).max())
            for name in ours["values"]
        )
        print(
            f"{kind:7s} {one['seconds']:8.2f} s ({one['seconds'] / ours['seconds']:6.1f} times ours)"
            f"   {one['memory'] - floor:8.0f} MB above the model   parameters differ by {far:.1e}"
        )


if __name__ == "__main__":
    main()
