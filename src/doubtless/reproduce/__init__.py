"""Tables and figures of the papers, run on real data: ours beside theirs.

One module a paper, one :class:`Study` a table or figure. They live in the package, not beside it, so that an
installed ``doubtless reproduce`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from doubtless.errors import InputError

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Study:
    """A table or figure: its name, what it shows and the function that makes its rows.

    A row holds our figures under plain names (``x``) and the paper's beside them (``paper_x``; null where
    the paper has none or its text gives no number).
    """

    name: str
    title: str
    make: Callable[..., Rows]

    def run(self, data: str | None, *, splits: int, seed: int) -> Rows:
        """Make the rows from the data sets in a directory."""
        return self.make(data, splits=splits, seed=seed)


def _studies() -> dict[str, Study]:
    from doubtless.reproduce import conformal

    return {study.name: study for study in conformal.STUDIES}


def listing() -> list[tuple[str, str]]:
    """Names and titles of all studies."""
    return [(study.name, study.title) for study in _studies().values()]


def find(name: str) -> Study:
    """Find a study by name."""
    studies = _studies()
    if name not in studies:
        raise InputError(f"nothing is called '{name}', expected one of: {', '.join(studies)}")
    return studies[name]
