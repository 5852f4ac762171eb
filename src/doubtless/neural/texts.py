"""The texts of a table as a model reads them, and what is odd about them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.engine import Texts
from doubtless.neural.scripts import wrong_script
from doubtless.neural.stepper import Array
from doubtless.segments import Table


def texts_of(table: Table, config: ModelConfig) -> dict[str, list[str]]:
    """The texts of a table that a model uses; a missing text is empty, and flagged (:func:`sanity_flags`)."""
    found = {}
    for name in config.texts:
        if name == "ref" and config.inputs == "joint" and "src" in config.texts and not table.has("ref"):
            continue
        column = table.column(name)
        if column.dtype.is_nested():
            raise InputError(f"{table.name}: column '{column.name}' holds {column.dtype}, expected text")
        found[name] = column.cast(pl.String).fill_null("").to_list()
    return found


def pairs_of(table: Table) -> list[str | None]:
    """The language pair of each row of a table, as far as it is known.

    >>> from doubtless.segments import as_table
    >>> pairs_of(as_table([{"src": "Good morning.", "lp": "en-de"}]))
    ['en-de']
    """
    return table.column("lp").cast(pl.String).to_list() if table.has("lp") else [None] * len(table)


def sanity_flags(texts: Texts, truncated: Array, pairs: Sequence[str | None] | None = None) -> list[str]:
    """Words for what is odd about a row.

    ``empty``, a ``copy`` of the source, ``wrong-script`` (the letters are not the target language's),
    ``no-src`` and ``no-ref`` (an empty one), ``truncated``.

    >>> import numpy as np
    >>> sanity_flags({"src": ["Haus", "Hund"], "mt": ["", "Hund"]}, np.array([False, True]))
    ['empty', 'copy truncated']
    >>> sanity_flags({"mt": ["Доброе утро."]}, np.array([False]), ["en-de"])
    ['wrong-script']
    """
    flags = []
    sources = texts.get("src")
    for i, mt in enumerate(texts["mt"]):
        words = ["empty"] if not mt.strip() else []
        if sources is not None and mt.strip() and mt.strip() == sources[i].strip():
            words.append("copy")
        if pairs is not None and wrong_script(mt, pairs[i]):
            words.append("wrong-script")
        words += [f"no-{name}" for name in ("src", "ref") if name in texts and not texts[name][i].strip()]
        if truncated[i]:
            words.append("truncated")
        flags.append(" ".join(words))
    return flags
