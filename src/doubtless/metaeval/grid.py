"""Scores of systems on items: what humans said, and what each metric said.

A :class:`Grid` holds one language pair. A missing human score is NaN; metrics must have a score wherever
humans have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.words import bare, quoted
from doubtless.metaeval.pairs import Floats
from doubtless.segments import Table


@dataclass(frozen=True, eq=False)
class Grid:
    """Human and metric scores of one language pair.

    Parameters
    ----------
    name
        The language pair.
    systems
        Names of the systems.
    human
        Systems by items, NaN where there is no human score.
    metrics
        Systems by items, for each metric.
    human_system, metrics_system
        Scores of whole systems, where they are not the means over items (corpus BLEU; official human scores).
    gold, reference
        What the human scores are and which reference the metrics used, for the signature.

    Examples
    --------
    >>> grid = Grid("en-de", ("A", "B"), np.array([[1.0, np.nan], [0.0, 3.0]]), {"m": np.eye(2)})
    >>> grid.missing, grid.system_scores("m")
    (1, (array([1. , 1.5]), array([1. , 0.5])))
    """

    name: str
    systems: tuple[str, ...]
    human: Floats
    metrics: Mapping[str, Floats]
    human_system: Floats | None = None
    metrics_system: Mapping[str, Floats] = field(default_factory=dict)
    gold: str = "human"
    reference: str = ""

    def __post_init__(self) -> None:
        count = len(self.systems)
        known = ~np.isnan(self.human)
        for name, scores in self.metrics.items():
            if scores.shape != self.human.shape:
                raise InputError(
                    f"{bare(self.name)}: metric {quoted(name)} has {_size(scores)} scores,"
                    f" the human scores are {_size(self.human)}"
                )
            bad = known & ~np.isfinite(scores)
            if bad.any():
                system = self.systems[int(np.argwhere(bad)[0, 0])]
                raise InputError(
                    f"{bare(self.name)}: metric {quoted(name)} has no score for {int(bad.sum())} translations"
                    f" that humans scored, the first of system {quoted(system)}"
                )
        for name, row in self.metrics_system.items():
            if len(row) != count:
                raise InputError(
                    f"{bare(self.name)}: metric {quoted(name)} scores {len(row)} of {count} systems"
                )

    @property
    def names(self) -> list[str]:
        """The metrics, those with scores of items first."""
        return list(dict.fromkeys([*self.metrics, *self.metrics_system]))

    @property
    def missing(self) -> int:
        """Number of translations without a human score."""
        return int(np.isnan(self.human).sum())

    def segment_scores(self, metric: str) -> tuple[Floats, Floats]:
        """Human and metric scores, systems by items."""
        if metric not in self.metrics:
            raise InputError(f"{bare(self.name)}: metric {quoted(metric)} has no scores of segments")
        return self.human, self.metrics[metric]

    def system_scores(self, metric: str) -> tuple[Floats, Floats]:
        """Human and metric scores of the systems.

        Where no scores of systems were given they are means over the items with a human score, for humans
        and metric alike, so that both speak of the same items.
        """
        human = self.human_system if self.human_system is not None else _means(self.human, self.human)
        if metric in self.metrics_system:
            return human, self.metrics_system[metric]
        if metric not in self.metrics:
            raise InputError(f"{bare(self.name)}: there is no metric {quoted(metric)}")
        return human, _means(self.metrics[metric], self.human)

    def with_systems(self, scores: Mapping[str, Mapping[tuple[str, str], float]]) -> Grid:
        """Add scores of whole systems: of each metric, by language pair and system."""
        rows = {name: np.array([own[self.name, s] for s in self.systems]) for name, own in scores.items()}
        return replace(self, metrics_system={**self.metrics_system, **rows})


def _size(scores: Floats) -> str:
    return " x ".join(map(str, scores.shape))


def _means(scores: Floats, human: Floats) -> Floats:
    known = ~np.isnan(human)
    counts = known.sum(axis=1)
    sums = np.where(known, scores, 0.0).sum(axis=1)
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)


def grids_of(
    table: Table,
    human: Floats,
    metrics: Mapping[str, Floats],
    *,
    system: str = "system",
    item: Sequence[str] = ("seg",),
    pair: str | None = "lp",
) -> list[Grid]:
    """Arrange the rows of a table as grids, one for each language pair.

    Parameters
    ----------
    table
        One row a translation. What is not there (a system without this item) has no human score.
    human, metrics
        One number a row; NaN is a missing human score.
    system, item, pair
        The columns that say which system, item and language pair a row belongs to; without the column of
        pairs all rows are one pair.
    """
    labels = {"system": table.labels([system]), "item": table.labels(item)}
    labels["pair"] = table.labels([pair]) if pair and table.has(pair) else pl.Series(["all"] * len(table))
    frame = pl.DataFrame(labels)
    twice = frame.is_duplicated()
    if twice.any():
        row = int(twice.arg_max() or 0)
        cell = " ".join(str(frame[column][row]) for column in ("pair", "system", "item"))
        raise InputError(
            f"{table.place(row)}: {quoted(cell)} occurs more than once, expected one row a translation"
        )
    grids = []
    for name in frame["pair"].unique(maintain_order=True):
        rows = np.flatnonzero((frame["pair"] == name).to_numpy())
        systems, down = np.unique(frame["system"].to_numpy()[rows].astype(str), return_inverse=True)
        items, across = np.unique(frame["item"].to_numpy()[rows].astype(str), return_inverse=True)

        def laid_out(
            values: Floats,
            shape: tuple[int, int] = (len(systems), len(items)),
            place: tuple[np.ndarray, np.ndarray] = (down, across),
            rows: np.ndarray = rows,
        ) -> Floats:
            cells = np.full(shape, np.nan)
            cells[place] = values[rows]
            return cells

        grids.append(
            Grid(
                str(name),
                tuple(str(s) for s in systems),
                laid_out(human),
                {metric: laid_out(values) for metric, values in metrics.items()},
            )
        )
    return grids
