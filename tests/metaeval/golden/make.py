"""Record the figures of the real mt-metrics-eval on seeded random grids.

    git clone https://github.com/google-research/mt-metrics-eval /tmp/mtme
    PYTHONPATH=/tmp/mtme:tests/metaeval python tests/metaeval/golden/make.py

writes ``mtme.json`` beside this file (commit 68a481a, numpy 2.4.6, scipy 1.17.1). The tests make the
same grids again from the seeds (``grids.random_grid``) and compare. ``theirs`` holds every statistic of
``stats.py`` for every grouping; ``permuted`` holds p-values of its permutation tests with all draws done;
``dependent`` holds Williams' p-value and both correlations.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.stats

GROUPINGS = {"none": "none", "item": "item", "system": "sys"}


def correlation(stats, human, metric):
    gold = [None if np.isnan(value) else float(value) for value in human.ravel()]
    return stats.Correlation(len(human), gold, metric.ravel().tolist())


def figures(stats, human, metric):
    found = correlation(stats, human, metric)
    rows = {}
    for by, theirs in GROUPINGS.items():
        rows |= {
            f"pearson/{by}": found.Pearson(theirs)[0],
            f"spearman/{by}": found.Spearman(theirs)[0],
            f"kendall/{by}": found.Kendall(theirs)[0],
            f"tau_c/{by}": found.KendallVariants(theirs, "c")[0],
            f"tau_23/{by}": found.KendallVariants(theirs, "23")[0],
            f"acc_eq/{by}": found.KendallVariants(theirs, "acc23")[0],
            f"acc_eq(0.3)/{by}": found.KendallVariants(theirs, "acc23", epsilon=0.3)[0],
            f"acc_eq*/{by}": found.KendallWithTiesOpt(theirs, "acc23", 1.0)[0],
            f"tau_23*/{by}": found.KendallWithTiesOpt(theirs, "23", 1.0)[0],
            f"darr/{by}": found.KendallLike(theirs)[0],
            f"pdp/{by}": found.Pearson(theirs, pdp=True)[0],
        }
        zeros = found.AverageCorrelation(scipy.stats.pearsonr, theirs, replace_nans_with_zeros=True)
        rows[f"pearson0/{by}"] = zeros(found.gold_scores, found.metric_scores)[0]
    gaps = np.isnan(human)
    if (gaps.all(axis=0) | ~gaps.any(axis=0)).all():  # they cut ragged scores into wrong systems
        rows["spa"] = found.PairwiseConfidenceError()[0]
    return {name: float(value) for name, value in rows.items()}


def p_values(stats, human, first, second):
    one, other = correlation(stats, human, first), correlation(stats, human, second)
    all_draws = stats.PermutationSigDiffParams(block_size=10**9)
    np.random.seed(0)  # noqa: NPY002 - the generator that the peer uses
    rows = {}
    for by, theirs in GROUPINGS.items():
        draws = 1000 if by == "item" else 300
        pairs = stats.PairwisePermutationSigDiff
        rows[f"pairs:acc_eq/{by}"] = pairs(other, one, "acc23", theirs, draws, all_draws, 0.2, 0.1)[:2]
        rows[f"pairs:kendall/{by}"] = pairs(other, one, "b", theirs, draws, all_draws, 0.0, 0.0)[:2]
        for name, function, options in (
            ("pearson", scipy.stats.pearsonr, {}),
            ("spearman", scipy.stats.spearmanr, {}),
            ("kendall", scipy.stats.kendalltau, {}),
            ("tau_c", stats.KendallVariants, {"variant": "c"}),
        ):
            test = stats.PermutationSigDiff(other, one, function, theirs, 300, all_draws, **options)
            rows[f"scores:{name}/{by}"] = test[:2]
    return {name: [float(p), float(delta)] for name, (p, delta) in rows.items()}


def williams(stats, human, first, second):
    one, other = correlation(stats, human, first), correlation(stats, human, second)
    return [float(value) for value in stats.WilliamsSigDiff(one, other, scipy.stats.pearsonr)]


if __name__ == "__main__":
    # Not above: pytest looks for examples in every module, and the peer is not installed there.
    from grids import CASES, DEPENDENT, PERMUTED, pair_of_metrics, random_grid
    from mt_metrics_eval import stats

    recorded = {
        "theirs": [{"case": case, "figures": figures(stats, *random_grid(**case))} for case in CASES],
        "permuted": [{"case": case, "tests": p_values(stats, *pair_of_metrics(**case))} for case in PERMUTED],
        "dependent": [{"case": c, "williams": williams(stats, *pair_of_metrics(**c))} for c in DEPENDENT],
    }
    Path(__file__).with_name("mtme.json").write_text(json.dumps(recorded, indent=1) + "\n")
