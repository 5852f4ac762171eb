"""Which language a translation should be in, told to a model that reads source and translation only.

A perfect Dutch translation of an English sentence is worthless to someone who ordered German, and nothing in
the two texts says so. Models that were trained for it get the language before the source.
"""

from __future__ import annotations


def tagged(src: str, lp: str | None) -> str:
    """A source with the language that its translation should be in, if the pair is known.

    >>> tagged("Good morning.", "en-de")
    'de | Good morning.'
    >>> tagged("Good morning.", None)
    'Good morning.'
    """
    target = (lp or "").replace("_", "-").partition("-")[2]
    return f"{target} | {src}" if target else src
