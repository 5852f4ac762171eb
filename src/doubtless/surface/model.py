"""A correction of scores for the language pairs that it was learnt for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.surface.features import features
from doubtless.surface.kernel import KernelRegression
from doubtless.surface.table import Table
from doubtless.surface.units import MOST_UNITS
from doubtless.warp import Floats

_ROWS, _MEETINGS = 256, 1_000_000  # at once: every unit of a text meets every unit of the other


@dataclass(frozen=True, eq=False)
class Surface:
    """What is added to the scores of known language pairs, by what the texts look like.

    Attributes
    ----------
    table
        What is known of the units of all pairs.
    pairs
        The regression of each pair.

    Examples
    --------
    >>> surface = Surface.load(bundled.folder() / "surface.npz")  # doctest: +SKIP
    >>> surface.correction(["et-en"], ["Tere!"], ["Hello!"])  # doctest: +SKIP
    """

    table: Table
    pairs: Mapping[str, KernelRegression]

    def correction(self, lp: Sequence[str | None], src: Sequence[str], mt: Sequence[str]) -> Floats:
        """What to add to the score of each row: 0 where the language pair is not known."""
        names = np.array([name if name in self.pairs else "" for name in lp], dtype=object)
        found = np.zeros(len(names))
        for name in sorted(set(names) - {""}):
            for some in _pieces(np.flatnonzero(names == name).tolist(), src, mt):
                texts = [pl.Series([side[row] for row in some], dtype=pl.String) for side in (src, mt)]
                found[some] = self.pairs[name].predict(features(self.table, name, *texts))
        return found

    def save(self, path: Path) -> None:
        """Write it to a file of NumPy's."""
        kept = {
            f"{name}/{part}": np.asarray(value, dtype=_types[part])
            for name, regression in self.pairs.items()
            for part, value in vars(regression).items()
        }
        table = {f"table/{part}": value for part, value in vars(self.table).items()}
        with path.open("wb") as file:
            np.savez(file, **table, **kept)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Surface:
        """Read one that was saved."""
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                held = {name: file[name] for name in file.files}
            table = Table(*(held.pop(f"table/{part}") for part in ("starts", "lower", "values")))
            names = sorted({name.partition("/")[0] for name in held})
            pairs = {
                name: KernelRegression(**{part: held[f"{name}/{part}"] for part in _types}) for name in names
            }
            table.check()
            for regression in pairs.values():
                regression.check()
        except (OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, BadZipFile) as error:
            raise InputError(f"{path}: this is not a correction of scores ({error})") from None
        return cls(table, pairs)

    def digest(self) -> str:
        """Hex digits of all that it is made of."""
        digest = sha256()
        for value in vars(self.table).values():
            digest.update(np.ascontiguousarray(value).data)
        for name in sorted(self.pairs):
            digest.update(name.encode())
            for part, kind in _types.items():
                digest.update(np.asarray(getattr(self.pairs[name], part), dtype=kind).tobytes())
        return digest.hexdigest()


def _pieces(rows: list[int], src: Sequence[str], mt: Sequence[str]) -> Iterator[list[int]]:
    """Some rows at a time, fewer where texts are long."""
    piece: list[int] = []
    room = _MEETINGS
    for row in rows:
        size = (min(len(src[row]), MOST_UNITS) + 1) * min(len(mt[row]), MOST_UNITS)
        if piece and (len(piece) == _ROWS or size > room):
            yield piece
            piece, room = [], _MEETINGS
        piece.append(row)
        room -= size
    if piece:
        yield piece


_types = {
    "middle": np.float32,
    "spread": np.float32,
    "centres": np.int8,
    "weights": np.float32,
    "width": np.float32,
}
