"""Tables and figures of the papers, run on real data: ours beside theirs.

One module a paper, one :class:`Study` a table or figure. They live in the package, not beside it, so that an
installed ``doubtless reproduce`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from doubtless.errors import InputError

Rows = list[dict[str, Any]]

# Modules with a list STUDIES; only the one that is asked for is run, but all are read for the overview.
MODULES = (
    "bundled",
    "conformal",
    "metaeval",
    "gp",
    "risk",
    "deferral",
    "early_exit",
    "words_signals",
    "words_judged",
    "tau",
)


@dataclass(frozen=True)
class Options:
    """Which part of a study to run, and how; a study reads those that concern it.

    Parameters
    ----------
    splits, seed
        Random splits, and the seed of all that is random.
    sets, models, folds
        Names of data sets, of models and numbers of folds; empty means all.
    quick
        A small part that shows that it works, where the whole takes long.
    """

    splits: int = 20
    seed: int = 0
    sets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    folds: tuple[int, ...] = ()
    quick: bool = False


@dataclass(frozen=True)
class Study:
    """A table or figure: its name, what it shows and the function that makes its rows.

    A row holds our figures under plain names (``x``) and the paper's beside them (``paper_x``; null where
    the paper has none or its text gives no number).
    """

    name: str
    title: str
    make: Callable[[str | None, Options], Rows]

    def run(self, data: str | None, options: Options | None = None) -> Rows:
        """Make the rows from the data sets in a directory."""
        return self.make(data, options or Options())


def _studies() -> dict[str, Study]:
    modules = [import_module(f"doubtless.reproduce.{name}") for name in MODULES]
    return {study.name: study for module in modules for study in module.STUDIES}


def listing() -> list[tuple[str, str]]:
    """Names and titles of all studies."""
    return [(study.name, study.title) for study in _studies().values()]


def find(name: str) -> Study:
    """Find a study by name."""
    studies = _studies()
    if name not in studies:
        raise InputError(f"nothing is called '{name}', expected one of: {', '.join(studies)}")
    return studies[name]
