"""Split and grouped conformal prediction beside crepes and MAPIE, in one process, turn by turn.

    python benchmarks/conformal.py [--rows 1000000] [--rounds 5]

Prints CPU seconds (median over the rounds) and how many times as fast doubtless is. All calibrate on the
same rows and make intervals for the same new ones, each side from its own kind of input made beforehand
(forecasts, arrays); crepes and doubtless divide by the same spreads, MAPIE by
none (its plain score, its fastest). MAPIE 1 has no groups: it is run once a group, as its users do.
The ends of all intervals are compared before anything is timed; where crepes' rank is one too high (it is
computed in floating point), its intervals are a little wider.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median

import numpy as np

from doubtless import ErrorEstimate, GroupedConformal, SplitConformal, p_values

ALPHA = 0.1
GROUPS = 20


class Recorded:
    """An estimator for MAPIE whose prediction is its input: the recorded score."""

    is_fitted_ = True
    n_features_in_ = 1

    def fit(self, x: np.ndarray, y: np.ndarray) -> Recorded:
        """Nothing to learn."""
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the first column."""
        return x[:, 0]


def problem(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    data = {}
    for part in ("known", "new"):
        spread = rng.gamma(2.0, 0.2, rows) + 0.05
        score = rng.normal(size=rows)
        data |= {
            f"{part}_score": score,
            f"{part}_spread": spread,
            f"{part}_human": score + spread * rng.standard_t(4, rows),
            f"{part}_one": np.ones(rows),
            f"{part}_group": rng.integers(0, GROUPS, rows),
        }
    return data


def forecasts(d: dict[str, np.ndarray], spread: str) -> tuple[ErrorEstimate, ErrorEstimate]:
    known, new = (ErrorEstimate(d[f"{part}_score"], d[f"{part}_{spread}"]) for part in ("known", "new"))
    return known, new


def ours_split(d: dict[str, np.ndarray], known: ErrorEstimate, new: ErrorEstimate) -> np.ndarray:
    return SplitConformal(ALPHA).fit(known, d["known_human"]).intervals(new).lower


def ours_grouped(d: dict[str, np.ndarray], known: ErrorEstimate, new: ErrorEstimate) -> np.ndarray:
    fitted = GroupedConformal(ALPHA).fit(known, d["known_human"], d["known_group"])
    return fitted.intervals(new, d["new_group"]).lower


def crepes_split(d: dict[str, np.ndarray]) -> np.ndarray:
    from crepes import ConformalRegressor

    fitted = ConformalRegressor().fit(d["known_human"] - d["known_score"], sigmas=d["known_spread"])
    return fitted.predict_int(d["new_score"], sigmas=d["new_spread"], confidence=1 - ALPHA)[:, 0]


def crepes_grouped(d: dict[str, np.ndarray]) -> np.ndarray:
    from crepes import ConformalRegressor

    residuals = d["known_human"] - d["known_score"]
    fitted = ConformalRegressor().fit(residuals, sigmas=d["known_spread"], bins=d["known_group"])
    intervals = fitted.predict_int(
        d["new_score"], sigmas=d["new_spread"], bins=d["new_group"], confidence=1 - ALPHA
    )
    return intervals[:, 0]


def mapie_split(d: dict[str, np.ndarray]) -> np.ndarray:
    return _mapie(d["known_score"], d["known_human"], d["new_score"])


def mapie_grouped(d: dict[str, np.ndarray]) -> np.ndarray:
    lower = np.empty(len(d["new_score"]))
    for group in range(GROUPS):
        known, new = d["known_group"] == group, d["new_group"] == group
        lower[new] = _mapie(d["known_score"][known], d["known_human"][known], d["new_score"][new])
    return lower


def _mapie(known: np.ndarray, human: np.ndarray, new: np.ndarray) -> np.ndarray:
    from mapie.regression import SplitConformalRegressor
    from sklearn.base import BaseEstimator, RegressorMixin

    estimator = type("RecordedRegressor", (Recorded, RegressorMixin, BaseEstimator), {})()
    regressor = SplitConformalRegressor(estimator, confidence_level=1 - ALPHA, prefit=True)
    regressor.conformalize(known[:, None], human)
    return regressor.predict_interval(new[:, None])[1][:, 0, 0]


def compare(name: str, ours: Callable[[], np.ndarray], theirs: Callable[[], np.ndarray], rounds: int) -> None:
    gap = float(np.abs(ours() - theirs()).max())
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for who, work in (("ours", ours), ("theirs", theirs)):
            start = time.process_time()
            work()
            seconds[who].append(time.process_time() - start)
    mine, other = median(seconds["ours"]), median(seconds["theirs"])
    figures = f"ours {mine:7.4f} s   theirs {other:7.4f} s   ratio {other / mine:5.1f}"
    print(f"{name:<18} {figures}   largest gap {gap:.1e}")


def time_p_values(rows: int, rounds: int) -> None:
    rng = np.random.default_rng(1)
    known, new = rng.normal(size=rows), rng.normal(size=rows)
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        p_values(known, new)
        seconds.append(time.process_time() - start)
    print(f"{'p-values':<18} ours {median(seconds):7.3f} s")


_EVALUATION = """
import resource, sys, time
import numpy as np
from doubtless import Samples
from doubtless.conformal.evaluate import Evaluation
rows = int(sys.argv[1])
rng = np.random.default_rng(0)
samples = rng.normal(size=(rows, 4))
human = samples.mean(axis=1) + rng.normal(size=rows)
groups = rng.integers(0, 20, rows)
start = time.process_time()
figures = Evaluation(splits=20).run(Samples(samples), human, groups=groups)
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{'evaluate, 20 splits':<18} ours {seconds:6.1f} s   peak memory {peak:.0f} MB"
      f"   coverage {figures['methods']['conformal']['coverage']:.4f}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    d = problem(options.rows)
    print(f"{options.rows:,} calibration and {options.rows:,} new rows, {GROUPS} groups, CPU seconds")
    spread, one = forecasts(d, "spread"), forecasts(d, "one")
    compare("split, crepes", lambda: ours_split(d, *spread), lambda: crepes_split(d), options.rounds)
    compare("split, MAPIE", lambda: ours_split(d, *one), lambda: mapie_split(d), options.rounds)
    compare("grouped, crepes", lambda: ours_grouped(d, *spread), lambda: crepes_grouped(d), options.rounds)
    compare("grouped, MAPIE", lambda: ours_grouped(d, *one), lambda: mapie_grouped(d), options.rounds)
    time_p_values(options.rows, options.rounds)
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", _EVALUATION, str(options.rows)], check=True)


if __name__ == "__main__":
    main()
