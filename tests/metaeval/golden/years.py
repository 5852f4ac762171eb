"""Record what the tasks of the real mt-metrics-eval make of small test sets in the layout of three years.

    git clone https://github.com/google-research/mt-metrics-eval /tmp/mtme
    PYTHONHASHSEED=0 PYTHONPATH=/tmp/mtme:tests/metaeval python tests/metaeval/golden/years.py

writes ``years.json`` beside this file (commit 68a481a). The test sets are made again by the tests
(``testset.write_year``). The tasks of 2023 and 2024 are those of its ``tasks.py``, those of 2022 those of
its notebook ``wmt22_metrics.ipynb``; all metrics take part, and nothing is tested (k = 0). ``standards`` are
those of its ``meta_info.py``.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from tempfile import TemporaryDirectory

NAMES = {"KendallWithTiesOpt": "acc_eq*", "pce": "spa"}


def tasks_of_2022(tasks, domains):
    """As in the notebook: pooled accuracy, then every pair, domain, level, average and correlation."""
    chosen = tasks.TaskSet()
    common = {"test_set": "wmt22", "primary": False, "k": 0}
    chosen.Append(
        tasks.Task(lang="en-de,en-ru,zh-en", level="sys", corr_fcn="accuracy", human=False, **common)
    )
    for lang, references in (("en-de", 2), ("en-ru", 1), ("zh-en", 2)):
        for domain in (None, *domains):
            for level, average in (("sys", "none"), *(("seg", by) for by in ("none", "sys", "item"))):
                for human in (True, False) if references > 1 else (False,):
                    for figure in ("pearson", "kendall"):
                        chosen.Append(
                            tasks.Task(
                                lang=lang,
                                domain=domain,
                                level=level,
                                human=human,
                                avg_by=average,
                                corr_fcn=figure,
                                **common,
                            )
                        )
    return chosen


def key(attributes):
    """The task as doubtless writes it."""
    domain = "" if attributes["domain"] == "None" else f":{attributes['domain']}"
    level = {"sys": "system", "seg": "segment"}[attributes["level"]]
    by = {"none": "", "sys": "/system", "item": "/item"}[attributes["avg_by"]]
    figure = NAMES.get(attributes["corr_fcn"], attributes["corr_fcn"])
    humans = " with humans" if attributes["human"] == "True" else ""
    return f"{attributes['lang'].replace(',', '+')}{domain} {level}:{figure}{by}{humans}"


def standards(year):
    """Human scores, reference and outliers of every language pair that was rated."""
    from mt_metrics_eval import meta_info

    return {
        pair: [info.std_gold["seg"], info.std_ref, sorted(info.outlier_systems)]
        for pair, info in meta_info.DATA[year].items()
        if info.std_gold
    }


def record(year, root):
    from mt_metrics_eval import data, tasks
    from testset import YEARS, write_year

    write_year(root / year, year)
    sets = {(year, pair): data.EvalSet(year, pair, True, path=str(root)) for pair in YEARS[year]}
    if year == "wmt22":
        results = tasks_of_2022(tasks, ("news", "social")).Run(sets)
        weights = results.AssignWeights(["lang", "domain", "level", "human", "avg_by", "corr_fcn"])
        overall = results.AverageRanks(weights)
    else:
        chosen, weights = {"wmt23": tasks.WMT23, "wmt24": tasks.WMT24}[year](primary=False, k=0)
        results = chosen.Run(sets)
        overall = results.AverageCorrs(weights)
    found = {}
    for result, weight in zip(results, weights, strict=True):
        values = {name.removeprefix("*"): float(result.Corr(name)) for name in result.metrics}
        found[key(result.attr_vals)] = {"weight": weight, "figures": values}
    overall = {name.removeprefix("*"): float(value) for name, value in overall.items()}
    return {"standards": standards(year), "tasks": found, "overall": overall}


if __name__ == "__main__":
    assert os.environ.get("PYTHONHASHSEED") == "0", "the order of their systems depends on it"
    for unused in ("apache_beam", "dacite"):  # needed by what is not used here
        sys.modules[unused] = types.ModuleType(unused)
    with TemporaryDirectory() as folder:
        recorded = {year: record(year, Path(folder)) for year in ("wmt22", "wmt23", "wmt24")}
    Path(__file__).with_name("years.json").write_text(json.dumps(recorded, indent=1) + "\n")
