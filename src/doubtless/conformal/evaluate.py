"""Repeated random splits: calibrate on one part of the rows, look at the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.conformal.binned import BinnedConformal, Bins, equal_count_edges
from doubtless.conformal.diagnose import agreement, average_width, coverage, wilson
from doubtless.conformal.ece import EceCalibration
from doubtless.conformal.grouped import Categories, Cells, Codes, GroupedConformal
from doubtless.conformal.split import (
    UNBOUNDED,
    Bounds,
    Floats,
    Intervals,
    SplitConformal,
    checked_human,
    exact,
    widen,
)
from doubtless.errors import InputError
from doubtless.forecast import Forecast


@dataclass(frozen=True, eq=False)
class AtAlpha(Forecast):
    """A forecast reduced to its score and its spread at one alpha: cheap to cut into parts."""

    center: Floats
    below: Floats
    above: Floats

    @classmethod
    def of(cls, forecast: Forecast, alpha: float) -> AtAlpha:
        """Reduce a forecast."""
        return cls(forecast.score, *forecast.spread(alpha), floor=forecast.floor)

    @property
    def score(self) -> Floats:
        """The score."""
        return self.center

    def raw_spread(self, alpha: float) -> tuple[Floats, Floats]:
        """The spread at the alpha it was reduced at."""
        return self.below, self.above


@dataclass(frozen=True)
class Evaluation:
    """Evaluate forecasts against humans by repeated random splits into calibration and test rows.

    Parameters
    ----------
    alpha
        Share of segments that may fall outside.
    splits, share, seed
        How many splits, the share of rows that calibrates, and the seed that fixes them.
    balanced
        In every split use equally many rows of each group, as many as the smallest has (the paper samples
        language pairs equally). Calibration and test rows stay exchangeable, unlike with a balanced
        calibration set and an unbalanced test set.
    bins
        Number of bins when a number to bin by is given.
    bounds
        Range of the human scores, if declared.
    """

    alpha: float = 0.1
    splits: int = 20
    share: float = 0.5
    seed: int = 0
    balanced: bool = False
    bins: int = 10
    bounds: Bounds = UNBOUNDED

    def __post_init__(self) -> None:
        exact(self.alpha)
        if self.splits < 1:
            raise InputError(f"the number of splits must be positive, found {self.splits}")
        if not 0 < self.share < 1:
            raise InputError(f"the calibration share must lie between 0 and 1, found {self.share}")

    def run(
        self,
        forecast: Forecast,
        human: ArrayLike,
        groups: Any = None,
        numbers: ArrayLike | None = None,
        uncertain: bool = True,
    ) -> dict[str, Any]:
        """Return one plain dictionary of figures.

        Parameters
        ----------
        forecast, human
            Forecasts and human scores.
        groups
            Category of each row, for coverage by group and for calibration within groups.
        numbers
            Number of each row, for coverage by bin and for calibration within bins.
        uncertain
            Whether the forecast has an uncertainty of its own; if not, raw intervals and calibration of
            their variance mean nothing and are left out.
        """
        y = checked_human(human, len(forecast))
        figures: dict[str, Any] = {"n": len(y), "alpha": self.alpha, "splits": self.splits}
        figures |= agreement(forecast, y, self.alpha)
        if not uncertain:
            figures["ups"] = None
        tally = _Tally(AtAlpha.of(forecast, self.alpha), y, groups, numbers, self, uncertain)
        for calibration, test in self._draws(len(y), tally.codes):
            tally.add(calibration, test)
        return figures | {"floored": forecast.floored(self.alpha), **tally.figures()}

    def _draws(self, n: int, codes: Codes | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.splits):
            order = rng.permutation(n)
            if codes is None:
                calibration, test = np.split(order, [round(self.share * n)])
            else:
                calibration, test = self._stratified(order, codes)
            if not (len(calibration) and len(test)):
                raise InputError(f"{n} rows are too few to split into calibration and test rows")
            # Ascending rows are read from memory in order.
            yield np.sort(calibration), np.sort(test)

    def _stratified(self, order: np.ndarray, codes: Codes) -> tuple[np.ndarray, np.ndarray]:
        """Split each group in the same way, in the random order given."""
        order = order[np.argsort(codes[order].astype(np.int32), kind="stable")]
        counts = np.bincount(codes)
        used = np.full_like(counts, counts.min()) if self.balanced else counts
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        calibrates = place < np.repeat(np.round(self.share * used), counts)
        tests = ~calibrates & (place < np.repeat(used, counts))
        return order[calibrates], order[tests]


class _Tally:
    """Sums over the splits."""

    def __init__(
        self,
        forecast: AtAlpha,
        y: Floats,
        groups: Any,
        numbers: ArrayLike | None,
        plan: Evaluation,
        uncertain: bool,
    ) -> None:
        self.forecast, self.y, self.plan, self.uncertain = forecast, y, plan, uncertain
        self.groups: Categories | None = None
        self.codes: Codes | None = None
        if groups is not None:
            self.groups = Categories.of(groups)
            self.codes = self.groups.codes(groups)
        self.numbers = None if numbers is None else np.asarray(numbers, dtype=np.float64)
        self.methods: dict[str, list[dict[str, float]]] = {}
        self.by_group: dict[str, list[Floats]] = {}
        self.by_bin: dict[str, list[Floats]] = {}

    @cached_property
    def bins(self) -> Bins:
        """Bins to look at: equal parts of all rows, whatever a calibration chooses for itself."""
        assert self.numbers is not None
        return Bins(equal_count_edges(self.numbers, self.plan.bins, 1))

    @cached_property
    def bin_codes(self) -> Codes:
        return self.bins.codes(self.numbers if self.numbers is not None else [])

    def add(self, calibration: np.ndarray, test: np.ndarray) -> None:
        alpha, bounds = self.plan.alpha, self.plan.bounds
        known, y_known = self.forecast[calibration], self.y[calibration]
        new = self.forecast[test]
        if self.uncertain:
            self._look("raw", widen(new, 1.0, alpha, bounds=bounds), test)
            ece = EceCalibration(alpha, bounds, self.plan.seed).fit(known, y_known)
            self._look("ece", ece.intervals(new), test, scale=ece.scale, offset=ece.offset)
        split = SplitConformal(alpha, bounds=bounds).fit(known, y_known)
        self._look("conformal", split.intervals(new), test, q=split.factor)
        if self.codes is not None and self.groups is not None:
            # A group too small for alpha is left unbounded: honest, and visible in the average width.
            method = GroupedConformal(alpha, bounds=bounds, unseen="unbounded", small="unbounded")
            grouped = method.fit_cells(known, y_known, _Codes(self.groups.names), self.codes[calibration])
            self._look("grouped", grouped.intervals(new, self.codes[test]), test)
        if self.numbers is not None:
            binned = BinnedConformal(alpha, self.plan.bins, bounds=bounds)
            fitted = binned.fit(known, y_known, self.numbers[calibration])
            self._look("binned", fitted.intervals(new, self.numbers[test]), test)

    def _look(self, method: str, intervals: Intervals, test: np.ndarray, **parameters: float) -> None:
        y = self.y[test]
        figures = {"coverage": coverage(intervals, y), "width": average_width(intervals), **parameters}
        self.methods.setdefault(method, []).append(figures)
        covered = intervals.covers(y)
        if self.codes is not None and self.groups is not None and method != "binned":
            self.by_group.setdefault(method, []).append(
                _sums(self.codes[test], covered, len(self.groups.names))
            )
        if self.numbers is not None and method != "grouped":
            self.by_bin.setdefault(method, []).append(
                _sums(self.bin_codes[test], covered, len(self.bins.names))
            )

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {"methods": {name: _summary(runs) for name, runs in self.methods.items()}}
        if self.codes is not None and self.groups is not None:
            rows = self._conditional(self.groups, self.codes, self.by_group)
            found["groups"] = {row.pop("name"): row for row in rows}
        if self.numbers is not None:
            found["bins"] = self._conditional(self.bins, self.bin_codes, self.by_bin)
        return found

    def _conditional(self, cells: Cells, codes: Codes, sums: dict[str, list[Floats]]) -> list[dict[str, Any]]:
        sizes = np.bincount(codes, minlength=len(cells.names))
        rows = []
        for i, name in enumerate(cells.names):
            row: dict[str, Any] = {"name": name, "n": int(sizes[i])}
            for method, runs in sums.items():
                hits, tested = np.sum(runs, axis=0)[:, i]
                row[method] = float(hits / tested) if tested else None
            tested_once = round(float(tested) / self.plan.splits)
            target = float(1 - exact(self.plan.alpha))
            row["expected"] = list(wilson(target * tested_once, tested_once))
            rows.append(row)
        return rows


@dataclass(frozen=True)
class _Codes:
    """Cells whose values are already codes."""

    names: tuple[str, ...]

    def codes(self, values: Any) -> Codes:
        return np.asarray(values)


def _sums(codes: Codes, covered: np.ndarray, size: int) -> Floats:
    hits = np.bincount(codes, weights=covered, minlength=size)
    return np.stack([hits, np.bincount(codes, minlength=size)])


def _summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each figure over the splits, and how much the coverage varies between them."""
    mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    return mean | {"coverage_sd": float(np.std([run["coverage"] for run in runs]))}
