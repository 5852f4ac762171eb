"""Meta-evaluation beside the real mt-metrics-eval, in one process, turn by turn.

    git clone https://github.com/google-research/mt-metrics-eval DIR
    python benchmarks/metaeval.py --mtme DIR [--systems 15] [--segments 1000] [--rounds 5] [--permutations 20]

Prints CPU seconds (median over the rounds) and how many times as fast doubtless is. Both sides are given what
they take, made beforehand: arrays here, lists in a ``Correlation`` there. Figures are compared before any
timing. The pairwise permutation test of the peer is run with few permutations and scaled to 1,000, its tie
thresholds given to both sides; ours is exact. Peak memory is measured by tracemalloc in a run of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from doubtless.metaeval.pair_swaps import agreement_swap
from doubtless.metaeval.pairs import count_pairs
from doubtless.metaeval.soft import soft_pairwise_accuracy
from doubtless.metaeval.swaps import score_swap, verdict
from doubtless.metaeval.ties import calibrate_ties

PERMUTATIONS = 1000


def problem(
    systems: int, segments: int, ties: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Human scores of which a share of the pairs of systems is tied, and two metrics."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, segments)) + 0.03 * np.arange(systems)[:, None]
    low, high = 0.01, 100.0
    for _ in range(40):  # the coarser the scale, the more ties
        step = (low * high) ** 0.5
        share = tied_share(np.round(quality / step))
        low, high = (step, high) if share < ties else (low, step)
    human = np.round(quality / step)
    first, second = (quality + noise * rng.normal(size=quality.shape) for noise in (1.0, 1.0))
    return human, first, second


def tied_share(human: np.ndarray) -> float:
    counts = count_pairs(human, human)
    return float(counts.ties_both.sum() / counts.pairs.sum())


def clocked(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def compare(
    name: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    rounds: int,
    goal: float,
    scale: float = 1.0,
    tolerance: float = 1e-9,
) -> None:
    """Time both, turn by turn; ``scale`` times their work is what ours does."""
    gap = abs(ours() - theirs())
    assert gap <= tolerance, f"{name}: the figures differ by {gap}"
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        # One call of ours is too short to be timed alone.
        seconds["ours"].append(clocked(lambda: [ours() for _ in range(5)])[0] / 5)
        seconds["theirs"].append(clocked(theirs)[0] * scale)
    mine, other = median(seconds["ours"]), median(seconds["theirs"])
    ratio = other / mine
    print(
        f"{name:<34} ours {mine * 1e3:9.2f} ms   theirs {other * 1e3:11.1f} ms   ratio {ratio:8.0f}"
        f"   goal {goal:5.0f}   gap {gap:.0e}"
    )


def peak(work: Callable[[], Any]) -> float:
    tracemalloc.start()
    work()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mtme", required=True, help="checkout of google-research/mt-metrics-eval")
    parser.add_argument("--systems", type=int, default=15)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--ties", type=float, default=0.38)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--permutations", type=int, default=10)
    options = parser.parse_args()
    sys.path.insert(0, options.mtme)
    import scipy.stats
    from mt_metrics_eval import stats

    human, first, second = problem(options.systems, options.segments, options.ties)
    flat = [x.ravel().tolist() for x in (human, first, second)]
    one, other = (stats.Correlation(options.systems, flat[0], scores) for scores in flat[1:])
    print(f"{options.systems} systems x {options.segments} segments, {tied_share(human):.0%} ties, CPU time")
    rounds = options.rounds

    def tau() -> float:
        return float(np.nanmean(count_pairs(human, first).tau_b()))

    compare("item tau-b, their KendallVariants", tau, lambda: one.KendallVariants("item")[0], rounds, 15)
    compare("item tau-b, their scipy", tau, lambda: one.Kendall("item")[0], rounds, 15)
    compare(
        "acc_eq with tie calibration",
        lambda: calibrate_ties(human, first).accuracy,
        lambda: one.KendallWithTiesOpt("item", sample_rate=1.0)[0],
        rounds,
        40,
    )
    epsilons = calibrate_ties(human, first).epsilon, calibrate_ties(human, second).epsilon
    everything = stats.PermutationSigDiffParams(block_size=10**9)

    def pairs(draws: int) -> tuple[float, float]:
        found = stats.PairwisePermutationSigDiff(
            other, one, "acc23", "item", draws, everything, epsilons[1], epsilons[0]
        )
        return float(found[0]), float(found[1])

    def pairs_ours() -> float:
        return verdict(agreement_swap(human, first, second, epsilons)).delta

    scale = PERMUTATIONS / options.permutations
    compare(
        f"pairwise test, {PERMUTATIONS} permutations",
        pairs_ours,
        lambda: pairs(options.permutations)[1],
        max(1, rounds // 2),
        1000,
        scale,
    )
    for unit in ("pairs", "items"):
        swap = agreement_swap(human, first, second, epsilons, unit=unit)
        drawn = swap.draw(np.random.default_rng(0), 10_000) >= swap.delta - 1e-12
        print(f"  swapping {unit}: exact p-value {verdict(swap).p:.4f}, of 10,000 draws {drawn.mean():.4f}")
    compare(
        f"PERM-BOTH of Pearson, {PERMUTATIONS}",
        lambda: (
            verdict(
                score_swap("pearson", *(x.reshape(-1, 1) for x in (human, first, second))), stop=10**9
            ).delta
        ),
        lambda: stats.PermutationSigDiff(
            other, one, scipy.stats.pearsonr, "none", options.permutations * 10, everything
        )[1],
        max(1, rounds // 2),
        1,
        scale / 10,
    )
    compare(
        "soft pairwise accuracy",
        lambda: soft_pairwise_accuracy(human, first),
        lambda: one.PairwiseConfidenceError()[0],
        max(1, rounds // 2),
        1,
        tolerance=1e-3,  # theirs adds up in single precision
    )
    figures = [
        f"{name} {peak(work):.1f} MB"
        for name, work in (
            ("calibration, ours", lambda: calibrate_ties(human, first)),
            ("theirs", lambda: one.KendallWithTiesOpt("item", sample_rate=1.0)),
            ("pairwise test, ours", pairs_ours),
            ("theirs", lambda: pairs(1)),
        )
    ]
    print("peak memory: " + ", ".join(figures))


if __name__ == "__main__":
    main()
