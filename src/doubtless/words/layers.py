"""The best layer of a signal, by calibration words.

``ll-kl:best`` stands for the one of the columns ``ll-kl:0``, ``ll-kl:1`` and so on that finds errors best in
calibration words. It is never chosen on the words that it is judged on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from doubtless.errors import InputError
from doubtless.formats.words import listed, quoted
from doubtless.words.agreement import MEAN, judge
from doubtless.words.judged import Judged

BEST = ":best"


def asks_for_best(names: Iterable[str]) -> bool:
    """Whether a best layer is to be found.

    >>> asks_for_best(["entropy", "ll-kl:best"])
    True
    """
    return any(name.endswith(BEST) for name in names)


def layer_columns(names: Sequence[str], columns: Collection[str]) -> list[str]:
    """Write out ``:best`` as the columns that it is to be found among.

    Examples
    --------
    >>> layer_columns(["entropy", "ll-kl:best"], ["entropy", "ll-kl:0", "ll-kl:1", "ll-surprisal:0"])
    ['entropy', 'll-kl:0', 'll-kl:1']
    """
    found = []
    for name in names:
        own = _layers(name, columns) if name.endswith(BEST) else [name]
        if not own:
            numbered = quoted(f"{name.removesuffix(BEST)}:0")
            raise InputError(f"{quoted(name)} is among columns such as {numbered}, found: {listed(columns)}")
        found += own
    return list(dict.fromkeys(found))


def _layers(name: str, columns: Iterable[str]) -> list[str]:
    numbered = re.compile(rf"{re.escape(name.removesuffix(BEST))}:\d+")
    return [column for column in columns if numbered.fullmatch(column)]


def best_layers(calibration: Judged, names: Sequence[str]) -> list[dict[str, Any]]:
    """Find the columns with the highest average precision on calibration words.

    Parameters
    ----------
    calibration
        Words with all columns (:func:`layer_columns`) as metrics.
    names
        Metrics, some of which end in ``:best``.

    Returns
    -------
    list of dict
        For every layer of these its ``metric``, the ``column``, average precision ``ap`` (averaged over
        annotators, then over groups) and whether it is ``chosen``: one of each metric is.

    Examples
    --------
    >>> import numpy as np
    >>> scores = {"ll-kl:0": np.array([0.3, 0.8, 0.1]), "ll-kl:1": np.array([0.9, 0.1, 0.8])}
    >>> calibration = Judged(scores, {"a": np.array([1.0, 0, 1])}, np.arange(3), ["de"] * 3)
    >>> [row["column"] for row in best_layers(calibration, ["ll-kl:best"]) if row["chosen"]]
    ['ll-kl:1']
    """
    asked = {name: _layers(name, calibration.scores) for name in names if name.endswith(BEST)}
    layered = calibration.of_metrics([column for own in asked.values() for column in own])
    precision = {row["metric"]: row["ap"] for row in judge(layered) if row["group"] == MEAN}
    rows = []
    for name, own in asked.items():
        best = max(own, key=precision.__getitem__)
        metric = name.removesuffix(BEST)
        rows += [
            {"metric": metric, "column": column, "ap": precision[column], "chosen": column == best}
            for column in own
        ]
    return rows


def with_best_layers(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> list[str]:
    """Put the chosen columns in the place of ``:best``.

    >>> with_best_layers(["ll-kl:best"], [{"metric": "ll-kl", "column": "ll-kl:1", "chosen": True}])
    ['ll-kl:1']
    """
    chosen = {f"{row['metric']}{BEST}": row["column"] for row in rows if row["chosen"]}
    return list(dict.fromkeys(chosen.get(name, name) for name in names))
