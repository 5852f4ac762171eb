"""The texts of a table as a model reads them, and what is odd about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import index
from typing import overload

import polars as pl

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.rows import Texts
from doubtless.neural.scripts import wrong_script
from doubtless.neural.stepper import Array
from doubtless.segments import Table

_AT_ONCE = 4_096


class Column(Sequence[str]):
    """Texts of a column, which become Python's strings only when they are asked for.

    In the column a text takes little more than its bytes: a long table would take a multiple of that as a
    list, for as long as it is scored.

    >>> texts = Column(pl.Series(["Haus", None]))
    >>> texts[0], texts[:2], list(texts)
    ('Haus', ['Haus', ''], ['Haus', ''])
    """

    def __init__(self, values: pl.Series) -> None:
        self.values = values.cast(pl.String).fill_null("").rechunk()

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, rows: int) -> str: ...

    @overload
    def __getitem__(self, rows: slice) -> list[str]: ...

    def __getitem__(self, rows: int | slice) -> str | list[str]:
        return self.values[rows].to_list() if isinstance(rows, slice) else str(self.values[index(rows)])

    def __iter__(self) -> Iterator[str]:
        starts = range(0, len(self), _AT_ONCE)
        return chain.from_iterable(self[start : start + _AT_ONCE] for start in starts)


def texts_of(table: Table, config: ModelConfig) -> dict[str, Column]:
    """The texts of a table that a model uses; a missing text is empty, and flagged (:func:`sanity_flags`).

    The language pairs come with them (``lp``), if there are such: some models are told them.

    >>> from doubtless.segments import as_table
    >>> table = as_table([{"src": "Haus", "mt": "house", "lp": "de-en"}])
    >>> {name: list(values) for name, values in texts_of(table, ModelConfig(uses="src+mt")).items()}
    {'mt': ['house'], 'src': ['Haus'], 'lp': ['de-en']}
    """
    optional = {"lp"}
    if config.inputs == "joint" and "src" in config.texts:
        optional.add("ref")
    found = {}
    for name in (*config.texts, "lp"):
        if name in optional and not table.has(name):
            continue
        column = table.column(name)
        if column.dtype.is_nested():
            raise InputError(f"{table.name}: column '{column.name}' holds {column.dtype}, expected text")
        found[name] = Column(column)
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
    nothing = [None] * len(texts["mt"])
    sources, references = texts.get("src", nothing), texts.get("ref", nothing)
    rows = zip(texts["mt"], sources, references, pairs or nothing, truncated, strict=True)
    for mt, src, ref, pair, cut in rows:
        words = ["empty"] if not mt.strip() else []
        if src is not None and mt.strip() and mt.strip() == src.strip():
            words.append("copy")
        if wrong_script(mt, pair):
            words.append("wrong-script")
        words += [
            f"no-{name}"
            for name, text in (("src", src), ("ref", ref))
            if text is not None and not text.strip()
        ]
        if cut:
            words.append("truncated")
        flags.append(" ".join(words))
    return flags
