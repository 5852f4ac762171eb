"""Pieces of the input inside sentences: whatever they hold, a sentence stays one line."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

_LONGEST = 60
_MOST_NAMES = 40


def quoted(text: str) -> str:
    """Put a cell or a name in quotes, what cannot be printed escaped, what is long cut.

    >>> print(quoted("dog"), quoted("two\\nlines"))
    'dog' 'two\\nlines'
    """
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def bare(name: str) -> str:
    """Write a name without quotes, unless it holds something that cannot be printed."""
    return name if name.isprintable() and name else repr(name)


def listed(names: Collection[str]) -> str:
    """List names, not all of them when there are very many."""
    first = ", ".join(map(bare, islice(names, _MOST_NAMES)))
    left = len(names) - _MOST_NAMES
    return f"{first} and {left} more" if left > 0 else first or "none"


def counted(number: int, noun: str) -> str:
    """Return ``1 line``, ``2 lines``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def reason(error: BaseException) -> str:
    """Return what an error of a library says, as one line of bearable length."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= 2 * _LONGEST else line[: 2 * _LONGEST - 1] + "…"
