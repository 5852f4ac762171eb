"""``doubtless score --adapt``: a model that fits itself to each system, or decides not to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from doubtless.cli.progress import progress_bar
from doubtless.conformal.calibrate import drift
from doubtless.errors import InputError
from doubtless.neural.adapt_plan import AdaptPlan
from doubtless.segments import Table

if TYPE_CHECKING:
    from doubtless.conformal.store import Calibration
    from doubtless.neural.engine import Engine
    from doubtless.neural.rows import Texts

Ints = np.ndarray[Any, np.dtype[np.int64]]
Drift = Callable[[Ints], Mapping[str, float]]

AUTO = "auto"
REFUSED = (
    "a calibration made without adaptation promises nothing for adapted scores: calibrate on rows scored with"
    " the same --adapt, score with --no-intervals and use 'doubtless apply'"
)


@dataclass(frozen=True)
class AdaptWish:
    """What ``--adapt`` says: how, and whether the rule of :mod:`doubtless.neural.adapt_auto` decides.

    >>> AdaptWish.parse("auto,passes=2", seed=0).plan.passes
    2
    """

    plan: AdaptPlan
    auto: bool

    @classmethod
    def parse(cls, text: str, seed: int) -> AdaptWish:
        """Read ``auto``, ``auto,passes=2`` or ``passes=3,k=30,lr=1e-4,parameters=layer-mix``."""
        first, _, rest = text.partition(",")
        auto = first == AUTO
        return cls(AdaptPlan.parse(rest if auto else text, seed), auto)

    def __str__(self) -> str:
        return f"{AUTO},{self.plan}" if self.auto else str(self.plan)


@dataclass(frozen=True)
class SystemAdaptation:
    """What became of one system: its uncertainty is the mean over its segments, before and after."""

    system: str | None
    lp: str | None
    n: int
    adapted: bool
    reason: str
    before: float
    after: float

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.lp, self.system))) or "all rows"
        if not self.adapted:
            return f"{name}: not adapted, {self.reason} (uncertainty {self.before:.4g})"
        why = f"; {self.reason}" if self.reason else ""
        return f"{name}: adapted, uncertainty {self.before:.4g} before, {self.after:.4g} after{why}"


@dataclass(frozen=True)
class Adapted:
    """The systems of a table, their rows, and what became of them."""

    systems: Sequence[SystemAdaptation]
    rows: Sequence[Ints]
    plan: AdaptPlan

    @property
    def any(self) -> bool:
        """Whether a system was adapted."""
        return any(system.adapted for system in self.systems)

    def column(self) -> pl.Series:
        """How the model was adapted that scored each row; null where it was not."""
        found: list[str | None] = [None] * sum(map(len, self.rows))
        for system, rows in zip(self.systems, self.rows, strict=True):
            for row in rows if system.adapted else ():
                found[row] = str(self.plan)
        return pl.Series(found, dtype=pl.String)

    def as_json(self) -> list[dict[str, Any]]:
        """One row a system."""
        return [asdict(system) for system in self.systems]


def adapt_systems(
    engine: Engine, texts: Texts, table: Table, wish: AdaptWish, drift_of: Drift | None
) -> tuple[Engine, Adapted]:
    """Adapt a model to each system of a table, as wished.

    Parameters
    ----------
    engine, texts, table
        The model, and the rows as it reads them.
    wish
        How to adapt.
    drift_of
        For ``auto``: gives the p-values of the tests of exchangeability for some rows.
    """
    from doubtless.neural.adapt import Adaptation, adapt_segments, with_systems
    from doubtless.neural.adapt_auto import Decision, decide
    from doubtless.neural.noisy import Segments

    parts: list[tuple[Ints, Adaptation | None]] = []
    reports: list[SystemAdaptation] = []
    with progress_bar(len(table), "adapting") as progress:
        for lp, system, rows in systems_of(table):
            own = {name: [values[i] for i in rows] for name, values in texts.items()}
            segments = Segments.of(engine, own, wish.plan)
            verdict = Decision(True, "")
            if drift_of is not None:
                # In the order of the sorted segments: the verdict must not depend on that of the table.
                verdict = decide(segments, wish.plan, drift_of(rows[np.argsort(segments.rank)]))
            found = adapt_segments(segments, wish.plan) if verdict.adapt else None
            before = segments.uncertainty(wish.plan) if found is None else found.before
            after = before if found is None else found.after
            means = (fsum(values) / len(rows) for values in (before, after))  # exact, whatever the order
            reports.append(SystemAdaptation(system, lp, len(rows), verdict.adapt, verdict.reason, *means))
            parts.append((rows, found))
            if progress is not None:
                progress(len(rows))
    return with_systems(engine, parts), Adapted(reports, [rows for rows, _ in parts], wish.plan)


def systems_of(table: Table) -> list[tuple[str | None, str | None, Ints]]:
    """Language pair, system and rows of each system, in the order of their names."""
    labels: list[list[str | None]] = []
    for name in ("lp", "system"):
        known = table.has(name)
        labels.append(table.column(name).cast(pl.String).to_list() if known else [None] * len(table))
    keys = list(zip(*labels, strict=True))
    found: dict[tuple[str | None, ...], list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    ordered = sorted(found, key=lambda key: tuple(label or "" for label in key))
    return [(key[0], key[1], np.array(found[key])) for key in ordered]


def reference(calibration: Calibration | None) -> Calibration:
    """The calibration whose rows drift is looked for from; there must be one."""
    if calibration is None:
        raise InputError(
            "--adapt auto compares with calibration rows, and the model brings no calibration:"
            " name one (--calibration), or say how to adapt (--adapt passes=3)"
        )
    return calibration


def drift_from(bare: Table, calibration: Calibration, seed: int) -> Drift:
    """How probable the forecasts of some rows are if they are like the calibration rows, by what is tested.

    ``bare`` holds the rows with the columns of their forecasts, before any adaptation.
    """
    forecast = calibration.forecast(bare)

    def found(rows: Ints) -> dict[str, float]:
        tests = drift(calibration, bare.take(rows), forecast[rows], seed=seed)
        return {name: test.p_value for name, test in tests.items()}

    return found


def tell(adapted: Adapted) -> None:
    """Say on standard error what became of each system."""
    for system in adapted.systems:
        print(f"doubtless: {system}", file=sys.stderr)
