"""Tokens generated against the quality of the final choice, when candidates are dropped on the way.

    python benchmarks/prune.py NMT DATA [--sources 20] [--candidates 16] [--batch 4] [--model FOLDER] [--seed
    0]

NMT is a folder with a Chinese-English Marian model, DATA the directory of wmt23_candidates.parquet. First all
candidates are sampled to their end and recorded. On them every combination of shares to keep (all, 3/4, 1/2,
1/4 at 25, 50 and 75 % of the expected length) is played through, with candidates ranked by the score of their
beginning marked as unfinished, by its score as if it were whole, and at random. Then the generator itself is
pruned, sampling and beam search, and timed. Quality is the estimator's score of the final choice (which it
chose itself, hence also) chrF with the reference.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import sacrebleu
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from doubtless.decide.generate import Pruner
from doubtless.decide.prune import Plan, Recorded, Scorer, engine_scorer, fertility, pieces, record, replay
from doubtless.neural.runtime import open_engine

_KEEP = (1.0, 0.75, 0.5, 0.25)
_MOST_TOKENS = 200


def chrf(texts: list[str], references: list[str]) -> float:
    return float(sacrebleu.corpus_chrf(texts, [references]).score)


class Generator:
    """The translation model, with the time that it takes."""

    def __init__(self, folder: str, scorer: Scorer, batch: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
        self.scorer, self.batch = scorer, batch

    def ratio(self, sources: list[str], references: list[str]) -> float:
        """Fertility in the model's own tokens."""
        given = self.tokenizer(sources)["input_ids"]
        wanted = self.tokenizer(text_target=references)["input_ids"]
        return fertility([len(ids) - 1 for ids in given], [len(ids) - 1 for ids in wanted])

    def run(self, sources: list[str], plan: Plan, **options: Any) -> dict[str, Any]:
        """Generate for all sources, batch by batch."""
        torch.manual_seed(0)
        found: dict[str, Any] = {"candidates": [], "chosen": [], "score": [], "tokens": 0, "scored": 0}
        looking = 0.0

        def timed(*arguments: Any) -> Any:
            nonlocal looking
            start = time.process_time()
            scores = self.scorer(*arguments)
            looking += time.process_time() - start
            return scores

        start = time.process_time()
        for first in range(0, len(sources), self.batch):
            part = sources[first : first + self.batch]
            pruner = Pruner(timed, self.tokenizer, part, plan)
            batch = self.tokenizer(part, return_tensors="pt", padding=True)
            self.model.generate(**batch, max_new_tokens=_MOST_TOKENS, custom_generate=pruner, **options)
            report = pruner.report
            assert report is not None
            found["candidates"] += report.candidates
            found["chosen"] += report.chosen
            found["score"] += [float(scores.max()) for scores in report.scores]
            found["tokens"] += report.tokens
            found["scored"] += report.scored
        return found | {"seconds": time.process_time() - start, "looking": looking}


def played(
    recorded: Recorded, by: np.ndarray | None, texts: list[str], references: list[str]
) -> list[tuple[Any, ...]]:
    """Tokens, score, chrF and share of best candidates found, for every combination of shares to keep."""
    whole = replay(recorded, _KEEP[:1] * 3)
    rows = []
    for keep in product(_KEEP, repeat=3):
        found = replay(recorded, keep, by)
        chosen = [texts[row] for row in found.chosen]
        right = recorded.final[found.chosen] >= recorded.final[whole.chosen]
        rows.append(
            (
                found.tokens / whole.tokens,
                keep,
                float(recorded.final[found.chosen].mean()),
                chrf(chosen, references),
                float(right.mean()),
            )
        )
    return sorted(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nmt")
    parser.add_argument("data")
    parser.add_argument("--sources", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--model", help="folder of the estimator, by default the bundled one")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    frame = pl.read_parquet(Path(args.data) / "wmt23_candidates.parquet").filter(pl.col("lp") == "zh-en")
    frame = frame.filter(pl.col("src").str.len_chars().is_between(15, 60))
    order = np.random.default_rng(args.seed).permutation(len(frame))
    test, other = frame[order[: args.sources]], frame[order[args.sources :]]
    sources, references = test["src"].to_list(), test["ref"].to_list()
    scorer = engine_scorer(open_engine(args.model), "zh-en")
    generator = Generator(args.nmt, scorer, args.batch)
    rest = other["src"].to_list(), other["ref"].to_list()
    plan = Plan(fertility=generator.ratio(*rest))
    print(f"{len(sources)} sources, {args.candidates} candidates, {plan.fertility:.2f} tokens for one")

    sampling = {"do_sample": True, "num_return_sequences": args.candidates, "top_k": 0, "num_beams": 1}
    beams = {"do_sample": False, "num_beams": args.candidates, "num_return_sequences": 1}
    whole = generator.run(sources, replace(plan, keep=(1.0,) * 3), **sampling)
    candidates: list[list[str]] = whole["candidates"]
    words = [[len(pieces(text)) for text in texts] for texts in rest]
    recorded = record(sources, candidates, scorer, Plan(fertility=fertility(*words)))
    texts = [text for group in candidates for text in group]
    unmarked = record(
        sources, candidates, lambda src, mt, _: scorer(src, mt, False), Plan(fertility=fertility(*words))
    )
    luck = np.random.default_rng(args.seed).random(recorded.partial.shape)
    rankings = {"marked": None, "as if whole": unmarked.partial, "random": luck}
    print("\nplayed through on recorded candidates (words), tokens as a share of all")
    print(f"{'ranked by':<12} {'keep':<18} tokens  score   chrF   best found")
    for name, by in rankings.items():
        rows = played(recorded, by, texts, references)
        for limit in (0.4, 0.5, 0.6, 0.7, 0.8, 1.0):
            # The best of what may be spent, by the score that is known without a reference.
            share, keep, score, quality, right = max(
                (row for row in rows if row[0] <= limit + 1e-9), key=lambda row: row[2]
            )
            print(f"{name:<12} {keep!s:<18} {share:6.2f} {score:6.3f} {quality:6.2f} {right:8.2f}")
        means = np.array([[row[0], row[2], row[4]] for row in rows]).mean(axis=0)
        print(f"{name:<12} {'mean of all 64':<18} {means[0]:6.2f} {means[1]:6.3f} {'':>6} {means[2]:8.2f}")

    print("\nthe generator itself, CPU seconds (of which scoring)")
    print(f"{'search':<12} {'keep':<6} tokens   score   chrF  seconds  scoring")
    for name, options in (("sampling", sampling), ("beams", beams)):
        for keep in (1.0, 0.75, 0.5, 0.25):
            found = whole if (name, keep) == ("sampling", 1.0) else None
            found = found or generator.run(sources, replace(plan, keep=(keep,) * 3), **options)
            quality = chrf(found["chosen"], references)
            score = float(np.mean(found["score"]))
            times = f"{found['seconds']:8.1f} {found['looking']:8.1f}"
            print(f"{name:<12} {keep:<6} {found['tokens']:>6} {score:7.3f} {quality:6.2f} {times}")


if __name__ == "__main__":
    main()
