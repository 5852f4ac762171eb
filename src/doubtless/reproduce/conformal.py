"""Zerva & Martins 2024, "Conformalizing Machine Translation Evaluation", from recorded COMET outputs.

WMT20 direct assessments: a deep ensemble of four members on seven language pairs out of English, and 100
MC-dropout passes on two of them (the paper has five members and sixteen pairs). QT21: both methods for
HTER. Other quantifiers need models of their own. Language pairs are sampled equally in every split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from doubtless.columns import ForecastColumns, attribute
from doubtless.conformal.evaluate import AtAlpha, Evaluation
from doubtless.datasets import locate
from doubtless.forecast import Forecast
from doubtless.reproduce import Options, Rows, Study
from doubtless.segments import Floats, Table, read

ALPHA = 0.1
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


@dataclass(frozen=True)
class Recording:
    """Recorded forecasts of one quantifier on one data set."""

    quantifier: str
    set: str
    table: Table
    columns: ForecastColumns
    human: str

    @cached_property
    def forecast(self) -> Forecast:
        """The forecasts."""
        return self.columns.read(self.table)

    @cached_property
    def y(self) -> Floats:
        """The human scores."""
        return self.table.numbers(self.human)

    def evaluate(self, plan: Evaluation, numbers: Floats | None = None) -> dict[str, Any]:
        """Evaluate by language pair, and by bins of a number if one is given."""
        return plan.run(self.forecast, self.y, groups=self.table.labels(["lp"]), numbers=numbers)


def _recordings(data: str | None) -> list[Recording]:
    wmt20 = read(locate(data, "wmt20_comet.parquet")).where("not mt_is_ref")
    qt21 = read(locate(data, "qt21_comet_hter.parquet"))
    ensemble = ForecastColumns(samples=("ens3", "ens7", "ens89", "ens891"))
    with_dropout = wmt20.where("mcd is not null")
    return [
        Recording("MCD", "wmt20", with_dropout, ForecastColumns(samples=("mcd",)), "da_z"),
        Recording("DE", "wmt20", wmt20, ensemble, "da_z"),
        Recording("MCD", "qt21-hter", qt21, ForecastColumns(samples=("mcd",)), "hter"),
        Recording("DE", "qt21-hter", qt21, ForecastColumns(samples=("ens",)), "hter"),
    ]


def table1(data: str | None, options: Options) -> Rows:
    """Coverage before calibration, after ECE calibration and after conformal prediction."""
    plan = Evaluation(ALPHA, options.splits, seed=options.seed, balanced=True)
    rows = []
    for recording in _recordings(data):
        methods = recording.evaluate(plan)["methods"]
        row: dict[str, Any] = {
            "quantifier": recording.quantifier,
            "set": recording.set,
            "n": len(recording.y),
        }
        for method in ("raw", "ece", "conformal"):
            row[method] = methods[method]["coverage"]
            # The paper's Table 1 is an image in the text at hand: its figures are not known here.
            row[f"paper_{method}"] = None
        row |= {f"{method}_width": methods[method]["width"] for method in ("raw", "ece", "conformal")}
        rows.append(row)
    return rows


_PAPER_TABLE2 = {"MCD": (8.08, 0.04), "DE": (6.99, 0.07)}


def table2(data: str | None, options: Options) -> Rows:
    """The factor q of conformal prediction against the uncertainty Pearson score."""
    plan = Evaluation(ALPHA, options.splits, seed=options.seed, balanced=True)
    rows = []
    for recording in _recordings(data):
        figures = recording.evaluate(plan)
        q, ups = _PAPER_TABLE2[recording.quantifier] if recording.set == "wmt20" else (None, None)
        rows.append(
            {
                "quantifier": recording.quantifier,
                "set": recording.set,
                "q": figures["methods"]["conformal"]["q"],
                "paper_q": q,
                "ups": figures["ups"],
                "paper_ups": ups,
            }
        )
    return rows


# Coverage by language pair, before and after equalising (en-iu is not among the paper's pairs).
_PAPER_TABLE3 = {
    "MCD": {
        "en-cs": (0.959, 0.917),
        "en-de": (0.971, 0.902),
        "en-ja": (0.978, 0.891),
        "en-pl": (0.948, 0.905),
        "en-ru": (0.958, 0.898),
        "en-zh": (0.983, 0.890),
    },
    "DE": {
        "en-cs": (0.939, 0.888),
        "en-de": (0.925, 0.902),
        "en-ja": (0.987, 0.900),
        "en-pl": (0.914, 0.895),
        "en-ru": (0.936, 0.908),
        "en-zh": (0.991, 0.884),
    },
}


def table3(data: str | None, options: Options) -> Rows:
    """Coverage by language pair, with one factor for all and with one for each."""
    plan = Evaluation(ALPHA, options.splits, seed=options.seed, balanced=True)
    rows = []
    for recording in _recordings(data):
        paper = _PAPER_TABLE3[recording.quantifier] if recording.set == "wmt20" else {}
        for pair, group in recording.evaluate(plan)["groups"].items():
            before, after = paper.get(pair, (None, None))
            rows.append(
                {
                    "quantifier": recording.quantifier,
                    "set": recording.set,
                    "lp": pair,
                    "n": group["n"],
                    "conformal": group["conformal"],
                    "paper_conformal": before,
                    "grouped": group["grouped"],
                    "paper_grouped": after,
                }
            )
    return rows


def figure7(data: str | None, options: Options) -> Rows:
    """Coverage against width for increasing alpha."""
    rows = []
    for recording in _recordings(data):
        for alpha in ALPHAS:
            plan = Evaluation(alpha, options.splits, seed=options.seed, balanced=True)
            methods = recording.evaluate(plan)["methods"]
            rows.append(
                {
                    "quantifier": recording.quantifier,
                    "set": recording.set,
                    "alpha": alpha,
                    "coverage": methods["conformal"]["coverage"],
                    "paper_coverage": None,
                    "width": methods["conformal"]["width"],
                    "paper_width": None,
                    "raw_coverage": methods["raw"]["coverage"],
                }
            )
    return rows


def figure8(data: str | None, options: Options) -> Rows:
    """Coverage by bins of a number, before and after calibration within bins (figure 10 for ensembles)."""
    plan = Evaluation(ALPHA, options.splits, seed=options.seed, balanced=True)
    rows = []
    for recording in _recordings(data):
        forecast = AtAlpha.of(recording.forecast, ALPHA)
        for name in ("@source-length", "@score", "@uncertainty"):
            numbers = attribute(recording.table, forecast, name, ALPHA)
            rows += [
                {
                    "quantifier": recording.quantifier,
                    "set": recording.set,
                    "attribute": name.removeprefix("@"),
                    "bin": found["name"],
                    "n": found["n"],
                    "conformal": found["conformal"],
                    "paper_conformal": None,
                    "binned": found["binned"],
                    "paper_binned": None,
                }
                for found in recording.evaluate(plan, np.asarray(numbers))["bins"]
            ]
    return rows


STUDIES = (
    Study("conformal-table1", "Coverage of raw, ECE-calibrated and conformal intervals", table1),
    Study("conformal-table2", "Conformal factor q against the uncertainty Pearson score", table2),
    Study("conformal-table3", "Coverage by language pair, before and after equalising", table3),
    Study("conformal-figure7", "Coverage against width over alpha", figure7),
    Study("conformal-figure8", "Coverage by length, predicted quality and uncertainty", figure8),
)
