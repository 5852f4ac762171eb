"""The model that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from doubtless.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def folder() -> Path:
    """Return the folder of the bundled model.

    Raises
    ------
    InputError
        If this installation has none.

    Examples
    --------
    >>> folder().name  # doctest: +SKIP
    'model'
    """
    path = Path(__file__).parent / "model"
    if not (path / "config.json").is_file():
        raise InputError("no model comes with this installation: name one")
    return path


def behaviour() -> pl.DataFrame:
    """Return the behaviour suite: sources, right translations and ones that are spoilt in a known way.

    Columns are ``id``, ``lp``, ``src``, ``good``, ``kind`` and ``bad``.

    Examples
    --------
    >>> behaviour().filter(kind="copy").select("src", "bad").unique().row(0)[0] != ""
    True
    """
    import polars as pl

    path = Path(__file__).parent / "behaviour.tsv"
    return pl.read_csv(path, separator="\t", quote_char=None, infer_schema=False).fill_null("")
