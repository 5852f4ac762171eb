"""Whether a translation is written in the script of its language.

A model may like a good Czech translation where Russian was asked for. What script a text is in is no matter
of opinion: it is read off the letters.
"""

from __future__ import annotations

import re
from functools import cache

from doubtless.neural.tagged import target_of

__all__ = ["wrong_script"]

_RANGES = {
    "Latin": r"A-Za-zªºÀ-ɏḀ-ỿ",
    "Greek": r"Ͱ-Ͽἀ-῿",
    "Cyrillic": r"\u0400-\u052f",
    "Armenian": r"\u0530-\u058f",
    "Hebrew": r"\u0590-\u05ff\ufb1d-\ufb4f",
    "Arabic": r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Devanagari": r"\u0900-\u097f",
    "Bengali": r"\u0980-\u09ff",
    "Gurmukhi": r"\u0a00-\u0a7f",
    "Gujarati": r"\u0a80-\u0aff",
    "Oriya": r"\u0b00-\u0b7f",
    "Tamil": r"\u0b80-\u0bff",
    "Telugu": r"\u0c00-\u0c7f",
    "Kannada": r"\u0c80-\u0cff",
    "Malayalam": r"\u0d00-\u0d7f",
    "Sinhala": r"\u0d80-\u0dff",
    "Thai": r"\u0e00-\u0e7f",
    "Lao": r"\u0e80-\u0eff",
    "Tibetan": r"\u0f00-\u0fff",
    "Myanmar": r"\u1000-\u109f",
    "Georgian": r"\u10a0-\u10ff\u1c90-\u1cbf",
    "Ethiopic": r"\u1200-\u139f",
    "Khmer": r"\u1780-\u17ff",
    "Hangul": r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "Kana": r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Han": r"\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
# Languages that are written in one script nearly always; others (Serbian, Kazakh, …) are not judged.
_WRITTEN_IN = {
    "Latin": "af az ca cs cy da de en eo es et eu fi fil fr ga gl ha hr hu id ig is it la lb lt lv ms mt nb"
    " nl nn no pl pt ro sk sl sq st sv sw tl tr vi xh yo zu",
    "Greek": "el",
    "Cyrillic": "be bg ky mk mn ru sah tg uk",
    "Armenian": "hy",
    "Hebrew": "he iw yi",
    "Arabic": "ar fa ps ur",
    "Devanagari": "hi mr ne sa",
    "Bengali": "as bn",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Oriya": "or",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Tibetan": "bo dz",
    "Myanmar": "my",
    "Georgian": "ka",
    "Ethiopic": "am ti",
    "Khmer": "km",
    "Hangul Han": "ko",
    "Kana Han": "ja",
    "Han": "yue zh",
}
_SCRIPTS = {language: scripts.split() for scripts, said in _WRITTEN_IN.items() for language in said.split()}
_LETTERS = re.compile(r"[^\W\d_]+")
_LEAST = 0.2  # share of own letters: names may keep theirs
_LEAST_IDEOGRAPHS = 0.05  # each says as much as a few letters
_FEWEST = 4  # letters: fewer may be a name, a unit or an address
# Chinese and Japanese share their ideographs; kana tell them apart.
_KANA_IN_CHINESE = 0.1
_LONG_WITHOUT_KANA = 10


@cache
def _of(script: str) -> re.Pattern[str]:
    return re.compile(f"[{_RANGES[script]}]+")


def _share(script: str, letters: str) -> float:
    return sum(map(len, _of(script).findall(letters))) / len(letters)


def wrong_script(text: str, lp: str | None) -> bool:
    """Whether hardly any letters of a translation are of the script of the pair's target language.

    Nothing is said (False) of unknown pairs, of languages with several scripts, of pairs that name a script
    themselves (``en-zh-Latn``) and of texts with fewer than four letters.

    Examples
    --------
    >>> wrong_script("Vesnice má jen 64 obyvatel.", "en-ru"), wrong_script("В деревне 64 жителя.", "en-ru")
    (True, False)
    >>> wrong_script("这家面包店早上7点开门，星期一休息。", "en-ja")
    True
    """
    target, *further = target_of(lp).lower().split("-")
    scripts = _SCRIPTS.get(target, [])
    if not scripts or any(len(part) == 4 for part in further):
        return False
    letters = "".join(_LETTERS.findall(text))
    if len(letters) < _FEWEST:
        return False
    shares = {script: _share(script, letters) for script in scripts}
    if sum(shares.values()) < (_LEAST_IDEOGRAPHS if "Han" in scripts else _LEAST):
        return True
    if target == "ja":
        return shares["Kana"] == 0 and len(letters) >= _LONG_WITHOUT_KANA
    return target in {"zh", "yue"} and _share("Kana", letters) >= _KANA_IN_CHINESE
