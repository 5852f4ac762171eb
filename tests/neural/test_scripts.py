"""Translations in another script than their language's."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.bundled import behaviour
from doubtless.neural import scripts
from doubtless.neural.scripts import wrong_script
from doubtless.neural.texts import pairs_of, sanity_flags
from doubtless.segments import as_table

NAMES = {"Kana": ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"), "Han": ("CJK", "IDEOGRAPHIC")}
NAMES |= {"Latin": ("LATIN", "FEMININE", "MASCULINE", "KELVIN"), "Greek": ("GREEK", "COPTIC", "MICRO")}
# Of every alphabetic character the ranges say what Unicode's names say; these belong to several scripts.
SHARED = re.compile(
    r"MODIFIER|COMMERCIAL|VERTICAL KANA|KATAKANA-HIRAGANA|ARABIC MATHEMATICAL|HANGZHOU|SYMBOL"
)


ALPHABETIC = {
    character: unicodedata.name(character, "")
    for character in map(chr, range(0x20000))
    if character.isalpha()
}


@pytest.mark.parametrize("script", scripts._RANGES)
def test_ranges_agree_with_the_names_of_characters(script: str) -> None:
    belongs = scripts._of(script)
    expected = NAMES.get(script, (script.upper(),))
    named = {character for character, name in ALPHABETIC.items() if name.startswith(expected)}
    inside = {character for character in ALPHABETIC if belongs.match(character)}
    strange = {character for character in inside - named if not SHARED.search(ALPHABETIC[character])}
    assert not strange
    assert len(inside & named) > len(named) / 2  # the rest are rare blocks of historical and phonetic letters


@pytest.mark.parametrize(
    ("text", "lp", "wrong"),
    [
        ("Die Tür ist offen.", "en-de", False),
        ("Дверь открыта.", "en-de", True),
        ("Дверь открыта.", "en-ru", False),
        ("Dveře jsou otevřené.", "en_XX-ru_RU", True),
        ("这家面包店早上7点开门，星期一休息。", "en-ja", True),
        ("その店は7時に開く。", "en-ja", False),
        ("東京都知事選", "en-ja", False),
        ("その店は朝7時に開店し、月曜日は休みです。", "en-zh", True),
        ("他在 Massachusetts Institute of Technology 工作。", "en-zh", False),
        ("यह दुकान सुबह 7 बजे खुलती है।", "ne-en", True),
        ("Dobro jutro, gospodine.", "en-sr", False),
        ("Nín hǎo, xiānsheng.", "en-zh-Latn", False),
        ("12 kg", "en-ru", False),
        ("", "en-ru", False),
        ("Dobro jutro.", None, False),
        ("Dobro jutro.", "en", False),
    ],
)
def test_letters_tell_the_script(text: str, lp: str | None, wrong: bool) -> None:
    assert wrong_script(text, lp) is wrong


@given(st.text(), st.sampled_from([None, "", "en", "en-de", "x-y-z", "en-zh_CN", "de-ja"]))
def test_any_text_can_be_asked_about(text: str, lp: str | None) -> None:
    assert isinstance(wrong_script(text, lp), bool)


def test_the_behaviour_suite_has_no_false_alarm() -> None:
    rows = behaviour()
    assert not any(wrong_script(good, lp) for good, lp in rows.select("good", "lp").iter_rows())
    foreign = rows.filter(pl.col("kind") == "wrong-language")
    found = sum(wrong_script(bad, lp) for bad, lp in foreign.select("bad", "lp").iter_rows())
    assert found == 36


def test_flags_name_the_script_where_the_pair_is_known() -> None:
    rows = [
        {"src": "Good morning.", "mt": "Доброе утро.", "lp": "en-de"},
        {"src": "Good morning.", "mt": "Guten Morgen.", "lp": "en-de"},
        {"src": "Good morning.", "mt": "Доброе утро.", "lp": None},
    ]
    table = as_table(rows)
    texts = {"src": [row["src"] or "" for row in rows], "mt": [row["mt"] or "" for row in rows]}
    flags = sanity_flags(texts, np.zeros(3, dtype=bool), pairs_of(table))
    assert flags == ["wrong-script", "", ""]
