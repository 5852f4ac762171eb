"""Average precision and best F1 beside scikit-learn, in one process, turn by turn.

    python benchmarks/detection.py [--words 1000000] [--rounds 7]

Prints CPU seconds (median over the rounds) and how many times as fast doubtless is; scikit-learn is in the
extra ``dev``. Figures are compared before any timing. Best F1 is not a function there: it is made from the
precision-recall curve, as its users do. Two kinds of scores: all different, and rounded to two digits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve

from doubtless.metaeval.detection import detection_curve

GOAL = 2.5
TOLERANCE = 1e-9


def problem(words: int, share: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Suspicions of words, a fifth of which is wrong, and which these are."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(words) < share
    return rng.normal(size=words) + wrong, wrong


def ours(suspicion: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    curve = detection_curve(suspicion, wrong)
    return curve.average_precision, curve.best(curve.f1)[0]


def theirs(suspicion: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    precision, recall, _ = precision_recall_curve(wrong, suspicion)
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    return float(average_precision_score(wrong, suspicion)), float(f1.max())


def clocked(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    suspicion, wrong = problem(options.words)
    for name, values in {"all different": suspicion, "two digits": suspicion.round(2)}.items():
        mine, other = ours(values, wrong), theirs(values, wrong)
        gap = max(abs(a - b) for a, b in zip(mine, other, strict=True))
        assert gap <= TOLERANCE, f"{name}: the figures differ by {gap}"
        seconds: dict[str, list[float]] = {"both, ours": [], "both, theirs": [], "AP alone, theirs": []}
        for _ in range(options.rounds):
            seconds["both, ours"].append(clocked(lambda v=values: ours(v, wrong)))  # type: ignore[misc]
            seconds["both, theirs"].append(clocked(lambda v=values: theirs(v, wrong)))  # type: ignore[misc]
            alone = clocked(lambda v=values: average_precision_score(wrong, v))  # type: ignore[misc]
            seconds["AP alone, theirs"].append(alone)
        times = {kind: median(measured) for kind, measured in seconds.items()}
        shown = "   ".join(f"{kind} {1e3 * value:.1f} ms" for kind, value in times.items())
        ratio, least = (times[kind] / times["both, ours"] for kind in ("both, theirs", "AP alone, theirs"))
        print(f"{options.words:,} words, {name}: {shown}")
        print(f"   ratio {ratio:.1f} (goal {GOAL}), against their AP alone {least:.1f}   gap {gap:.0e}")


if __name__ == "__main__":
    main()
