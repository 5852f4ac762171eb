"""One line that says all that the figures of an evaluation depend on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doubtless import __version__
from doubtless.conformal.evaluate import Evaluation


def gold(given: Mapping[str, Any]) -> str:
    """What the human scores are: the column, or the files of ratings that made them."""
    return "+".join(Path(file).name for file in given["ratings"] or ()) or str(given["human"])


def evaluation_signature(plan: Evaluation, given: Mapping[str, Any]) -> str:
    """Sign an evaluation by random splits: what it was measured against, and how.

    >>> evaluation_signature(Evaluation(), {"human": "da", "ratings": None})[:40]
    'human:da|alpha:0.1|splits:20|share:0.5|s'
    """
    parts = [
        f"human:{gold(given)}",
        f"alpha:{plan.alpha:g}",
        f"splits:{plan.splits}",
        f"share:{plan.share:g}",
        f"seed:{plan.seed}",
        *(["balanced"] if plan.balanced else []),
    ]
    return "|".join([*parts, f"version:doubtless.{__version__}"])
