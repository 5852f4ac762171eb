from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.neural.words import marked, suspicious_words, words


def cut(text, cuts=()):
    return [text[start:end] for start, end in words(text, cuts)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cow, jumped!", ["The", "cow", ",", "jumped", "!"]),
        ("don't e-mail 3.5 % of it...", ["don't", "e-mail", "3.5", "%", "of", "it", "..."]),
        ("«Привет», сказал он", ["«", "Привет", "»,", "сказал", "он"]),
        # An accent that is a character of its own.
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
        # Devanagari and its vowel signs.
        ("मैं घर जाता हूँ।", ["मैं", "घर", "जाता", "हूँ", "।"]),
        ("great 👍🏽 job", ["great", "👍🏽", "job"]),
        ("a 👨‍👩‍👧 b", ["a", "👨‍👩‍👧", "b"]),
        ("great👍🏽job", ["great👍🏽job"]),
        ("\u0301a", ["\u0301", "a"]),
        ("", []),
        ("   ", []),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert cut(text) == expected


def test_scripts_without_blanks_are_cut_at_tokens_but_marks_stay():
    assert cut("央行上调了利率。", [0, 2, 4, 5, 7]) == ["央行", "上调", "了", "利率", "。"]
    # A token that begins with a Thai tone mark would tear it from its letter.
    assert cut("ไม่รู้", [0, 2, 3]) == ["ไม่", "รู้"]
    assert cut("GDP增长3.5%", [0, 3, 5]) == ["GDP", "增长", "3.5", "%"]


def tags(*wrong):
    return [[1 - p, p] for p in wrong]


def test_a_word_is_as_suspicious_as_its_worst_token():
    found = suspicious_words(tags(0, 0.2, 0.7, 0.1, 0), [(0, 0), (0, 2), (2, 4), (4, 7), (0, 0)], "wrong ok")
    assert found == [{"text": "wrong", "start": 0, "end": 5, "probability": 0.7}]


def test_the_blank_of_a_token_makes_no_word():
    found = suspicious_words(tags(0, 0.9, 0, 0), [(0, 0), (2, 6), (7, 9), (0, 0)], "a  cow is")
    assert [word["text"] for word in found] == ["cow"]


def test_tags_that_name_several_errors_are_taken_together():
    found = suspicious_words([[0.4, 0.3, 0.3]], [(0, 3)], "cow", threshold=0.5)
    assert found[0]["probability"] == pytest.approx(0.6)
    assert suspicious_words([[0.4, 0.3, 0.3]], [(0, 3)], "cow", threshold=0.6) == []


def test_chinese_characters_and_emoji_are_marked_whole():
    text = "央行👍🏽"
    offsets = [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (0, 0)]
    found = suspicious_words(tags(0, 0.1, 0.8, 0.9, 0.1, 0), offsets, text)
    assert marked(text, found) == "央[行][👍🏽]"


@given(st.text(max_size=30), st.sets(st.integers(0, 30)))
def test_words_cover_all_but_the_blanks(text, cuts):
    found = list(words(text, cuts))
    assert "".join(text[start:end] for start, end in found) == "".join(text.split())
    assert all(start < end for start, end in found)


@given(st.text(alphabet="ab c", max_size=12), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))))
def test_marks_never_change_the_text(text, pieces):
    inside = [{"start": a, "end": b} for a, b in pieces if a <= b <= len(text)]
    assert marked(text, inside).replace("[", "").replace("]", "") == text
