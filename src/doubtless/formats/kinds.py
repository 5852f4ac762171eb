"""Kinds of JSON values: the one Polars type that holds all values of a column as they are.

Polars would find a type by itself, at the price of turning ``[1, "a"]`` into ``["1", "a"]`` without a word.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import polars as pl

_DEEPEST = 32
_MOST_KEYS = 1000

_SCALARS: dict[type, Any] = {
    type(None): pl.Null,
    bool: pl.Boolean,
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
}
_NUMBERS = (pl.Int64, pl.Float64)


class KindError(ValueError):
    """Values that no column can hold together; the message is what a sentence says of their column."""


def joined(known: Any, value: Any) -> Any:
    """Return the type that holds the values before and this one.

    >>> joined(pl.Int64, 0.5)
    Float64
    >>> joined(pl.List(pl.Null), [{"start": 3}])
    List(Struct({'start': Int64}))
    """
    found = _kind(value, _DEEPEST)
    if found is known:  # nearly always, and quickly told
        return known
    if known != pl.Null and found != pl.Null and described(known) != described(found):
        raise KindError(f"is {described(found)}, but {described(known)} in the rows before")
    return _common(known, found)


def column(name: str, values: list[Any], kind: Any) -> pl.Series:
    """Make a column of values that all fit the type."""
    if isinstance(kind, pl.Struct) or (isinstance(kind, pl.List) and kind.inner.is_nested()):
        values = [_fitted(value, kind) for value in values]
    return pl.Series(name, values, dtype=kind, strict=False)  # not strict: 1 may stand for 1.0


def _fitted(value: Any, kind: Any) -> Any:
    """Make whole numbers floating-point where the type is: Polars does not see to it inside objects."""
    if value is None:
        return None
    if isinstance(kind, pl.Struct):
        return {item.name: _fitted(value.get(item.name), item.dtype) for item in kind.fields}
    if isinstance(kind, pl.List):
        return [_fitted(item, kind.inner) for item in value]
    return float(value) if kind == pl.Float64 else value


def described(kind: Any) -> str:
    """Return the words for a type."""
    if kind in _NUMBERS:
        return "a number"
    words = {pl.Null: "null", pl.Boolean: "a truth value", pl.String: "text", pl.List: "a list"}
    return words.get(kind.base_type(), "an object")


def _kind(value: Any, depth: int) -> Any:
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar
    if depth == 0:
        raise KindError(f"is nested more than {_DEEPEST} levels deep")
    if isinstance(value, dict):
        return pl.Struct({key: _kind(item, depth - 1) for key, item in value.items()})
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} is no kind of JSON value")
    types = dict.fromkeys(map(type, value))  # a list of many numbers has one or two of them
    scalars = [_SCALARS[t] for t in types if t in _SCALARS]
    others = [_kind(item, depth - 1) for item in value if type(item) not in _SCALARS]
    return pl.List(reduce(_common, [*scalars, *others], pl.Null))


def _common(a: Any, b: Any) -> Any:
    if a == b or b == pl.Null:
        return a
    if a == pl.Null:
        return b
    if a in _NUMBERS and b in _NUMBERS:
        return pl.Float64
    if isinstance(a, pl.List) and isinstance(b, pl.List):
        return pl.List(_common(a.inner, b.inner))
    if isinstance(a, pl.Struct) and isinstance(b, pl.Struct):
        return _common_keys(a, b)
    raise KindError(f"mixes {described(a)} and {described(b)}")


def _common_keys(a: pl.Struct, b: pl.Struct) -> pl.Struct:
    fields = {item.name: item.dtype for item in a.fields}
    for item in b.fields:
        fields[item.name] = _common(fields.get(item.name, pl.Null), item.dtype)
    if len(fields) > _MOST_KEYS:
        raise KindError(f"has more than {_MOST_KEYS} different keys")
    return pl.Struct(fields)
