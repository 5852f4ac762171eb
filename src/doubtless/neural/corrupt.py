"""Make bad translations out of good ones, by rule, for training.

Every function works on text alone, needs no PyTorch and draws only from the generator it is given, so that
the same generator state gives the same corruption. The rules are meant to be right far more often than
not, not always: they label a text as worse, they do not write a grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from doubtless.neural.negate import negate
from doubtless.neural.tagged import target_of

__all__ = ["KINDS", "Pool", "corrupt"]

SPACELESS = frozenset({"zh", "ja", "th", "km", "lo", "my"})
CLAUSE = re.compile(r"(?<=[,;:，、；：])")
NAME = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")


@dataclass(frozen=True)
class Pool:
    """Other texts that a corruption may take from.

    Parameters
    ----------
    by_language : mapping from language code to texts
        Fluent texts of each language.
    translations : mapping from source text to {language code: translation}
        Known translations of whole sources, so that a text in the wrong language can still be right
        otherwise; where a source is not known, any text of another language serves.

    Examples
    --------
    >>> pool = Pool.from_rows([("en-de", "Hello.", "Hallo."), ("en-fr", "Hello.", "Bonjour.")])
    >>> pool.by_language["de"], pool.translations["Hello."]["fr"]
    (['Hallo.'], 'Bonjour.')
    """

    by_language: Mapping[str, Sequence[str]]
    translations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, str, str]]) -> Pool:
        """Collect (language pair, source, translation) rows, in their order and without duplicates."""
        texts: dict[str, dict[str, None]] = {}
        known: dict[str, dict[str, str]] = {}
        for lp, src, mt in rows:
            for language, text in zip(languages(lp), (src, mt), strict=True):
                texts.setdefault(language, {})[text] = None
            known.setdefault(src, {}).setdefault(languages(lp)[1], mt)
        return cls({language: list(found) for language, found in texts.items()}, known)


def languages(lp: str) -> tuple[str, str]:
    """Source and target language of a pair such as ``en-de``, ``en_XX-de_DE`` or ``en-zh_CN``."""
    return re.split(r"[-_]", lp)[0].lower(), target_of(lp).partition("-")[0].lower()


def negation(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """One negation taken away or put in."""
    return negate(mt, languages(lp)[1], rng)


NUMBER_WORDS = {
    "en": "two three four five six seven eight nine ten eleven twelve",
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "deux trois quatre cinq six sept huit neuf dix onze douze",
    "es": "dos tres cuatro cinco seis siete ocho nueve diez once doce",
}
_ONE = r"\bone(?= (?:hundred|thousand|million|billion|second|minute|hour|day|week|month|year|person|metre)\b)"
_HAN = (
    r"(?<=第)[一二三四五六七八九]|[二两兩三四五六七八九](?=[十百千万萬亿億个個名位次场場部家座种種项項年月日号號天岁歳人公米元"
    r"美英倍小时時间間分円回本つ])|一(?=[百千万萬亿億月])|(?<=[十百])[二三四五六七八九]"
)


def number(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """Change the value of one number, keeping its length, its separators and its script."""
    target = languages(lp)[1]
    places = [(match, "digits") for match in re.finditer(r"\d+(?:[.,'’ \u00a0\u202f]\d{3}(?!\d))*", mt)]
    if words := NUMBER_WORDS.get(target, "").split():
        pattern = rf"\b(?:{'|'.join(words)})\b" + (f"|{_ONE}" if target == "en" else "")
        places += [(match, "word") for match in re.finditer(pattern, mt, re.IGNORECASE)]
    if target in {"zh", "ja"}:
        places += [(match, "han") for match in re.finditer(_HAN, mt)]
    if not places:
        return None
    match, how = rng.choice(places)
    old = match.group()
    if how == "digits":
        spots = [at for at, character in enumerate(old) if character.isdecimal()]
        year = len(old) == len(spots) == 4 and old[0] in "12"
        first = spots[0] if not year else spots[2]
        spot = first if rng.random() < 0.5 else rng.choice([at for at in spots if at >= first])
        value = int(old[spot])
        low = 1 if spot == spots[0] else 0
        new = rng.choice([digit for digit in range(low, 10) if digit != value])
        put = old[:spot] + chr(ord(old[spot]) - value + new) + old[spot + 1 :]
    elif how == "word":
        put = rng.choice([word for word in words if word != old.lower()])
        put = put.capitalize() if old[0].isupper() else put
    else:
        same = "二两兩" if old in "二两兩" else old
        put = rng.choice([numeral for numeral in "三四五六七八九" if numeral not in same])
    return mt[: match.start()] + put + mt[match.end() :]


def _units(mt: str, lp: str) -> tuple[list[str], str]:
    """The words of a text, or its characters where words are not set apart; and what joins them."""
    words = mt.split()
    if languages(lp)[1] in SPACELESS or (len(words) == 1 and len(mt) > 30):
        return list(mt.strip()), ""
    return words, " "


def copy(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """The source itself."""
    return src


def empty(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """Nothing, or a lone mark."""
    return rng.choice([mark for mark in ("", "", ".", "-", "…", "?") if mark != mt.strip()])


def truncated(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """The first 30 to 70 % of the text."""
    units, glue = _units(mt, lp)
    if len(units) < (4 if glue else 8):
        return None
    return glue.join(units[: round(len(units) * rng.uniform(0.3, 0.7))])


def repeated(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """A phrase said three to six times, in place or instead of the rest, as a broken decoder does."""
    units, glue = _units(mt, lp)
    if len(units) < 2:
        return None
    size = min(rng.randint(1, 4) if glue else rng.randint(2, 6), len(units))
    start = rng.randint(0, len(units) - size)
    rest = units[start + size :] if rng.random() < 0.6 else []
    return glue.join(units[:start] + units[start : start + size] * rng.randint(3, 6) + rest)


def unrelated(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """Another text of the target language."""
    texts = pool.by_language.get(languages(lp)[1], ())
    return rng.choice(texts) if texts else None


def wrong_language(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """A translation into another language if the pool knows one, otherwise any text in one."""
    source, target = languages(lp)
    known = sorted(set(pool.translations.get(src, ())) - {source, target})
    if known:
        return pool.translations[src][rng.choice(known)]
    others = sorted(code for code, texts in pool.by_language.items() if code != target and texts)
    return rng.choice(pool.by_language[rng.choice(others)]) if others else None


def swapped(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """Two neighbouring phrases, or two words far apart, exchanged."""
    units, glue = _units(mt, lp)
    if len(units) < 4:
        return None
    if rng.random() < 0.5:
        longest = min(4 if glue else 6, len(units) // 2)
        one, two = rng.randint(1, longest), rng.randint(1, longest)
        start = rng.randint(0, len(units) - one - two)
        middle = start + one
        return glue.join(
            units[:start] + units[middle : middle + two] + units[start:middle] + units[middle + two :]
        )
    left = rng.randrange(len(units) // 2)
    right = rng.randrange(left + len(units) // 2, len(units))
    units[left], units[right] = units[right], units[left]
    return glue.join(units)


def dropped(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """A clause, or one to three words with a content word among them, left out in the middle."""
    clauses = CLAUSE.split(mt)
    if len(clauses) > 2 and rng.random() < 0.5:
        del clauses[rng.randrange(1, len(clauses) - 1)]
        return "".join(clauses)
    units, glue = _units(mt, lp)
    content = [at for at in range(1, len(units) - 1) if not glue or len(units[at]) > 3]
    if not content or len(units) < 4:
        return None
    start = rng.choice(content)
    stop = min(start + (rng.randint(1, 3) if glue else rng.randint(2, 5)), len(units) - 1)
    return glue.join(units[:start] + units[stop:])


def _names(text: str) -> list[re.Match[str]]:
    """Capitalised words that do not begin a sentence."""
    found = [match for match in NAME.finditer(text) if match.group()[0].isupper()]
    return [
        match
        for match in found
        if text[: match.start()].rstrip(" \"'“„«(–—-")[-1:] not in set(".!?:…") | {""}
    ]


def entity(src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """A capitalised word replaced by one from another text of the language."""
    places, texts = _names(mt), pool.by_language.get(languages(lp)[1], ())
    if not places or not texts:
        return None
    match = rng.choice(places)
    for _ in range(20):
        names = [name.group() for name in _names(rng.choice(texts)) if name.group() not in mt]
        if names:
            return mt[: match.start()] + rng.choice(names) + mt[match.end() :]
    return None


_MAKERS: dict[str, Callable[[str, str, str, Random, Pool], str | None]] = {
    "copy": copy, "empty": empty, "truncated": truncated, "negation": negation, "number": number,
    "repeated": repeated, "unrelated": unrelated, "wrong-language": wrong_language, "swapped": swapped,
    "dropped": dropped, "entity": entity,
}  # fmt: skip
KINDS = tuple(_MAKERS)


def corrupt(kind: str, src: str, mt: str, lp: str, rng: Random, pool: Pool) -> str | None:
    """Make a worse translation of the given kind.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.
    src, mt : str
        The source and a good translation of it.
    lp : str
        The language pair, such as ``en-de``.
    rng : random.Random
        Where all chance comes from.
    pool : Pool
        Other texts, for the kinds that need some.

    Returns
    -------
    str or None
        A text that differs from ``mt``; None if the kind does not apply to this one.

    Examples
    --------
    >>> from random import Random
    >>> corrupt("negation", "Das ist gut.", "That is good.", "de-en", Random(0), Pool({}))
    'That is not good.'
    >>> corrupt("copy", "Das ist gut.", "That is good.", "de-en", Random(0), Pool({}))
    'Das ist gut.'
    >>> corrupt("number", "Das ist gut.", "That is good.", "de-en", Random(0), Pool({})) is None
    True
    """
    if kind not in _MAKERS:
        raise ValueError(f"unknown kind of corruption {kind!r}; known are {', '.join(KINDS)}")
    for _ in range(4):
        out = _MAKERS[kind](src, mt, lp, rng, pool)
        if out is None or out.split() != mt.split():
            return out
    return None
