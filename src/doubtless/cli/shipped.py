"""What a model folder brings besides the model: calibrations, an exit, a threshold for words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doubtless.errors import InputError

if TYPE_CHECKING:
    from doubtless.conformal.store import Calibration

AUTO = "auto"


@dataclass(frozen=True)
class Shipped:
    """The further content of a model folder; several models together have none.

    A folder may hold ``calibration.json`` and others like it for another alpha (``calibration-0.2.json``),
    ``calibration-exit.json`` and others like that, made with the model's own exit, and in its
    ``config.json`` that exit and a ``word_threshold``.
    """

    path: Path | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Sequence[str]) -> Shipped:
        """What comes with one model; without a name, with the bundled one."""
        from doubtless import bundled
        from doubtless.neural.folder import locate

        if len(models) > 1:
            return cls()
        path = locate(models[0]) if models else bundled.folder()
        return cls(path, notes_of(path))

    def exit(self, wish: str | None) -> str | None:
        """The exit that is meant: ``auto`` is the model's own."""
        if wish != AUTO:
            return wish
        if "exit" not in self.notes:
            raise InputError("the model names no exit of its own: --exit TOLERANCE")
        return repr(float(self.notes["exit"]))

    def word_threshold(self) -> float:
        """How probably wrong a word is that is marked."""
        from doubtless.neural.words import THRESHOLD

        return float(self.notes.get("word_threshold", THRESHOLD))

    def calibration(self, alpha: float | None, exit: str | None) -> tuple[Calibration | None, list[str]]:
        """The calibration for an alpha and an exit, and what is to be said of its promise."""
        found = self._chosen(alpha, with_exit=True) if self._is_own(exit) else None
        if found is not None:
            return found, []
        found = self._chosen(alpha, with_exit=False)
        if found is None and alpha is not None:
            raise InputError(f"the model brings no calibration for alpha {alpha}{self._others()}")
        if found is None or exit is None:
            return found, []
        return found, ["the promise of these intervals was made for the full depth, without --exit"]

    def _is_own(self, exit: str | None) -> bool:
        from doubtless.neural.exits import ExitRule

        if exit is None or "exit" not in self.notes:
            return False
        return ExitRule.parse(exit) == ExitRule("confidence", float(self.notes["exit"]))

    def _chosen(self, alpha: float | None, *, with_exit: bool) -> Calibration | None:
        files = self._files(with_exit)
        if alpha is None:
            return _loaded(min(files, key=lambda path: len(path.name))) if files else None
        return next((made for made in map(_loaded, files) if made.fitted.alpha == alpha), None)

    def _files(self, with_exit: bool) -> list[Path]:
        if self.path is None:
            return []
        files = sorted(self.path.glob("calibration*.json"))
        return [path for path in files if path.name.startswith("calibration-exit") == with_exit]

    def _others(self) -> str:
        known = sorted({_loaded(path).fitted.alpha for path in self._files(False)})
        return f", only for {', '.join(f'{alpha:g}' for alpha in known)}" if known else ""


def _loaded(path: Path) -> Calibration:
    from doubtless.conformal.store import load

    return load(path)


def notes_of(path: Path) -> dict[str, Any]:
    """The content of a folder's ``config.json``; COMET's folders have none."""
    try:
        data = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # whoever opens the model says what is wrong
    return data if isinstance(data, dict) else {}
