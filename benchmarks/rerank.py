"""Does choosing early save time? Reranking beside scoring all candidates, turn by turn.

    python benchmarks/rerank.py FILE [--sources 50] [--rounds 3] [--methods ucb halving race] [--budget 0.55]
                                     [--gamma G] [--memory 256]

FILE holds candidates as ``recipes/candidates.py`` writes them. Prints CPU seconds of the full scoring of all
different candidates (``Engine.score``, without exits) and of each method with the finishing of what it chose,
how often both choose the same, and what the choice loses of the range of scores.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from doubtless.decide.candidates import Pools, one_row_each
from doubtless.decide.rerank import Method, rerank
from doubtless.neural.live import MEMORY
from doubtless.neural.runtime import open_engine
from doubtless.neural.texts import texts_of
from doubtless.segments import read


def seconds(work):  # type: ignore[no-untyped-def]
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--sources", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["ucb", "halving", "race"])
    parser.add_argument("--budget", type=float, default=0.55)
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--memory", type=int, default=MEMORY >> 20, help="megabytes")
    given = parser.parse_args()
    table = one_row_each(read(given.file))
    pools = Pools.of(table)
    pools = Pools(pools.rows[: given.sources], pools.copies[: given.sources])
    engine = open_engine(None, threads=1)
    texts = texts_of(table, engine.config)
    rows = pools.rows[pools.present]
    different = {name: [values[row] for row in rows] for name, values in texts.items()}
    methods = {name: Method(name, budget=given.budget, gamma=given.gamma) for name in given.methods}

    def full():  # type: ignore[no-untyped-def]
        return engine.score(different).score

    def choose(method):  # type: ignore[no-untyped-def]
        return rerank(engine, texts, pools, method, memory=given.memory << 20)

    few = Pools(pools.rows[:1], pools.copies[:1])
    rerank(engine, texts, few, Method())  # sessions are made
    times: dict[str, list[float]] = {name: [] for name in ("full", *methods)}
    for _ in range(given.rounds):
        spent, scores = seconds(full)
        times["full"].append(spent)
        for name, method in methods.items():
            spent, found = seconds(lambda method=method: choose(method))
            times[name].append(spent)
    whole = np.full(pools.rows.shape, -np.inf)
    whole[pools.present] = scores
    best, spread = whole.max(axis=1), scores.max() - scores.min()
    print(
        f"{len(pools)} sources, {len(rows)} different candidates; full scoring {median(times['full']):.2f} s"
    )
    for name, method in methods.items():
        found = choose(method)
        score, choices = found.outputs["score"], found.choices
        finishing = choices.finishing.sum() / choices.full.sum()
        faster = median(times["full"]) / median(times[name])
        print(
            f"{method.signature}: {median(times[name]):.2f} s, {faster:.2f} times as fast;"
            f" {choices.cost:.3f} of the layers and {finishing:.3f} to finish;"
            f" best found {np.isclose(score, best, atol=1e-6).mean():.3f},"
            f" lost {(best - score).mean() / spread:.5f} of the range"
        )


if __name__ == "__main__":
    main()
