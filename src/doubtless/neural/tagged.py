"""Which language a translation should be in, told to a model that reads source and translation only.

A perfect Dutch translation of an English sentence is worthless to someone who ordered German, and nothing in
the two texts says so. Models that were trained for it get the language before the source.
"""

from __future__ import annotations


def sides_of(lp: str | None) -> tuple[str, str]:
    """What a pair says of both languages, whichever sign stands between them.

    >>> sides_of("en_XX-zh_CN"), sides_of("en_de"), sides_of("en"), sides_of(None)
    (('en_XX', 'zh_CN'), ('en', 'de'), ('en', ''), ('', ''))
    """
    source, _, target = (lp or "").partition("-")
    if not target:
        source, _, target = source.partition("_")
    return source, target


def target_of(lp: str | None) -> str:
    """What a pair says of the target language; nothing if it is not known.

    >>> target_of("en-de"), target_of("en_de"), target_of("en_XX-zh_CN"), target_of("en")
    ('de', 'de', 'zh-CN', '')
    """
    return sides_of(lp)[1].replace("_", "-")


def tagged(src: str, lp: str | None) -> str:
    """A source with the language that its translation should be in, if the pair is known.

    >>> tagged("Good morning.", "en-de")
    'de | Good morning.'
    >>> tagged("Good morning.", "en_XX-de_DE")
    'de | Good morning.'
    >>> tagged("Good morning.", None)
    'Good morning.'
    """
    target = target_of(lp).partition("-")[0]
    return f"{target} | {src}" if target else src
