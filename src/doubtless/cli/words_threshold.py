"""Thresholds of ``doubtless words``: a number, or a file that says what it is for and what it promises."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.words import listed, quoted
from doubtless.segments import Floats
from doubtless.words.control import load

MADE_WITH = "doubtless.signals"
"""Where the footer of a Parquet file says how each signal was made."""


@dataclass(frozen=True)
class Threshold:
    """Words whose suspicion by one signal is at or above a number are bad.

    Parameters
    ----------
    name
        What messages call it.
    value
        The number.
    signal, made_with
        What it is for, and how that was made; None: nobody knows.
    promise
        What holds for new segments.

    Examples
    --------
    >>> Threshold.read("0.5").among(["tagger"]).bad(np.array([0.5, 0.2, np.nan]))
    [True, False, None]
    """

    name: str
    value: float
    signal: str | None = None
    made_with: str | None = None
    promise: str | None = None

    @classmethod
    def read(cls, text: str) -> Threshold:
        """Read a number, or the file of one."""
        try:
            value = float(text)
        except ValueError:
            control = load(text)
            return cls(named(text), control.threshold, control.signal, control.made_with, control.promise)
        if isnan(value):
            raise InputError("a threshold is a number or a file, found 'nan'")
        return cls(f"--threshold {text}", value)

    def among(self, signals: Sequence[str]) -> Threshold:
        """Say which of the signals it is for, and refuse it if there is none."""
        if self.signal is None and len(signals) == 1:
            return replace(self, signal=signals[0])
        if self.signal is None:
            raise InputError(f"{self.name} is for one signal, but there are several: {listed(signals)}")
        if self.signal not in signals:
            raise InputError(
                f"{self.name}: the threshold is for {quoted(self.signal)}, not for {listed(signals)}"
            )
        return self

    def refuse_other(self, made_with: Mapping[str, str]) -> None:
        """Refuse signals that were made in another way than those that it was calibrated on."""
        here = made_with[str(self.signal)]
        if self.made_with not in (None, here):
            raise InputError(
                f"{self.name}: the threshold is for another {self.signal} ({self.made_with}, here {here})"
            )

    @property
    def is_vague(self) -> bool:
        """Whether it promises something, but does not say for which model."""
        return self.promise is not None and self.made_with is None

    @property
    def rule(self) -> str:
        """Which words are bad, in words."""
        if not np.isfinite(self.value):
            return "every word" if self.value < 0 else "no word"
        return f"{self.signal} at or above {self.value:g}"

    def bad(self, suspicion: Floats) -> list[bool | None]:
        """Which words are bad; None where that is not known."""
        return [None if isnan(value) else value >= self.value for value in suspicion.tolist()]

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` says."""
        return {"signal": self.signal, "value": self.value, "rule": self.rule, "promise": self.promise}


def recorded_making(file: str, signal: str) -> str | None:
    """How ``doubtless words`` made a signal, as the Parquet file that it wrote says; others say nothing."""
    if file == "-":
        return None
    with opened(file, named(file)) as stream:
        if stream.read(4) != b"PAR1":
            return None
        stream.seek(0)
        footer = pl.read_parquet_metadata(stream)
    try:
        return json.loads(footer.get(MADE_WITH, "{}")).get(signal)
    except (ValueError, AttributeError):
        return None
