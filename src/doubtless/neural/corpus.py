"""Tables to the segments that a model is trained on: which rows, which columns, labels of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.words import counted, quoted
from doubtless.neural.schedule import Plan
from doubtless.segments import Table, read

HELD_OUT = 0.05


def read_segments(plan: Plan) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Read the rows to train and to validate on, and say what was done to them."""
    data, seed = plan.data, plan.training.seed
    notes: list[str] = []
    train = _read_all(plan, data.train, data.where, notes)
    if plan.training.cache_states and "fertility" in train.columns:
        raise InputError(
            "cache_states cannot be used with prefixes that change from epoch to epoch: give the rows a"
            f" column {quoted(data.unfinished)} that says which are unfinished"
        )
    if data.dev or data.dev_where:
        dev = _read_all(plan, data.dev or data.train, data.dev_where, notes)
    else:
        train, dev = held_out(train, seed)
        rows = f"{len(dev)} of {len(dev) + len(train)} rows"
        notes.append(f"no validation rows are given: 5 % of the sources, {rows}, are held out by the seed")
    train, dev = _drawn(train, data.sample, seed), _drawn(dev, data.dev_sample, seed)
    texts = list(plan.model.texts)
    shared = dev.join(train, on=texts, how="semi").height
    if shared:
        notes.append(f"{shared} of {len(dev)} validation rows are also rows to train on")
    return train, dev, notes


def _read_all(plan: Plan, paths: Sequence[str], where: str, notes: list[str]) -> pl.DataFrame:
    parts = []
    for path in paths:
        table = read(plan.folder / path, columns=None if where else _columns(plan))
        parts.append(segments_of(table.where(where) if where else table, plan, notes))
    return pl.concat(parts)


def _columns(plan: Plan) -> list[str]:
    data = plan.data
    known = [data.human, data.src, data.mt, data.ref, data.lp, data.score, data.tags, data.words]
    return [*known, data.unfinished, *plan.model.auxiliary, *([data.group] if data.group else [])]


def segments_of(table: Table, plan: Plan, notes: list[str] | None = None) -> pl.DataFrame:
    """Take the columns that a model is trained on from a table; rows without a human score are left out."""
    model, data = plan.model, plan.data
    present = ~np.isnan(table.numbers(data.human, missing=True))
    if not present.any():
        raise InputError(f"{table.name}: no row has a human score in {quoted(data.human)}")
    if notes is not None and not present.all():
        notes.append(f"{table.name}: {counted(int((~present).sum()), 'row')} without a human score left out")
    table = table.take(present)
    # The source is needed for prefixes, and to hold out whole sources.
    names = [*model.texts, *(["src"] if "src" not in model.texts and model.partial else [])]
    found = {name: _texts(table, getattr(data, name)) for name in names}
    frame = pl.DataFrame(found).with_columns(human=table.numbers(data.human))
    if model.outputs == "error":
        frame = frame.with_columns(score=table.numbers(data.score))
    if data.group:
        frame = frame.with_columns(pl.Series("group", table.labels([data.group])))
    for name in model.auxiliary:
        frame = frame.with_columns(pl.Series(name, table.numbers(name, missing=True)))
    if model.partial and table.has(data.unfinished):
        frame = frame.with_columns(unfinished=table.column(data.unfinished).cast(pl.Boolean))
    elif model.partial:
        frame = frame.with_columns(fertility=_fertility(table, plan))
    if model.word_tags:
        marks, strange = character_labels(table, plan, found["mt"].to_list())
        if strange and notes is not None:
            notes.append(f"{table.name}: the tags of {counted(strange, 'row')} do not fit their translation")
        frame = frame.with_columns(pl.Series("marks", marks, dtype=pl.List(pl.Int16)))
    return frame


def _texts(table: Table, column: str) -> pl.Series:
    series = table.column(column)
    if series.dtype != pl.String:
        raise InputError(f"{table.name}: column {quoted(series.name)} holds {series.dtype}, expected text")
    if series.null_count():
        row = int(series.is_null().arg_max() or 0)
        raise InputError(f"{table.place(row)}: column {quoted(series.name)} is empty")
    return series


def _fertility(table: Table, plan: Plan) -> pl.Series:
    rates = plan.training.fertility
    if not isinstance(rates, Mapping):
        return pl.Series(np.full(len(table), float(rates)))
    pairs = table.labels([plan.data.lp])
    for row, pair in enumerate(pairs):
        if pair not in rates:
            raise InputError(f"{table.place(row)}: no fertility is given for {quoted(pair)}")
    return pl.Series([float(rates[pair]) for pair in pairs])


def character_labels(table: Table, plan: Plan, texts: Sequence[str]) -> tuple[list[list[int]], int]:
    """The label of each character of the translations, -1 where there is none.

    Tags belong to whitespace tokens; their characters are looked up in the translation, whatever blanks
    tokenization put between them. Also count the rows where that fails: they have no labels. Nor have rows
    whose tags are null: those teach the score alone.
    """
    data, names = plan.data, plan.model.word_tags
    numbers = {name: i for i, name in enumerate(names)}
    tokens = table.column(data.words) if table.has(data.words) else texts
    marks, strange = [], 0
    for row, (text, line, tags) in enumerate(zip(texts, tokens, table.column(data.tags), strict=True)):
        if tags is None:
            marks.append([-1] * len(text))
            continue
        if not isinstance(line, str) or not isinstance(tags, str | pl.Series | list):
            raise InputError(f"{table.place(row)}: the tags or their tokens are missing")
        words = line.split()
        labels = tags.split() if isinstance(tags, str) else [str(tag) for tag in tags]
        if len(labels) != len(words):
            place = table.place(row)
            raise InputError(f"{place}: {counted(len(labels), 'tag')} for {counted(len(words), 'token')}")
        for label in labels:
            if label not in numbers:
                raise InputError(f"{table.place(row)}: tag {quoted(label)} is none of {', '.join(names)}")
        found = _marked(text, words, [numbers[label] for label in labels])
        strange += found is None
        marks.append(found or [-1] * len(text))
    return marks, strange


def _marked(text: str, words: Sequence[str], labels: Sequence[int]) -> list[int] | None:
    inked = [i for i, character in enumerate(text) if not character.isspace()]
    if "".join(words) != "".join(text[i] for i in inked):
        return None
    marks = [-1] * len(text)
    spread = [label for word, label in zip(words, labels, strict=True) for _ in word]
    for i, label in zip(inked, spread, strict=True):
        marks[i] = label
    return marks


def held_out(frame: pl.DataFrame, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Hold out 5 % of the sources (of references, if there are none) with all their rows."""
    name = "src" if "src" in frame.columns else "ref"
    keys = frame[name].unique(maintain_order=True)
    if len(keys) < 2:
        raise InputError("one source cannot be parted into training and validation rows: name a dev table")
    count = max(1, round(HELD_OUT * len(keys)))
    chosen = keys[np.random.default_rng([seed, 5]).permutation(len(keys))[:count]]
    out = frame[name].is_in(chosen.implode())
    return frame.filter(~out), frame.filter(out)


def _drawn(frame: pl.DataFrame, most: int, seed: int) -> pl.DataFrame:
    if not most or len(frame) <= most:
        return frame
    return frame[np.sort(np.random.default_rng([seed, 6]).permutation(len(frame))[:most])]
