"""Marks of all kinds as character spans, subword units in their text, scores carried between pieces."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.errors import InputError
from doubtless.neural.words import words
from doubtless.words.align import align
from doubtless.words.edits import edit_spans
from doubtless.words.spans import (
    ErrorSpan,
    characters,
    from_lists,
    from_marks,
    from_model,
    from_tags,
    gap_labels,
    joined,
    labels,
    project,
)
from doubtless.words.subwords import placed

# Text, its units, how they are written, and where they stand.
UNITS = [
    ("The houses.", ["The", "hou@@", "ses", "."], "bpe", ["The", "hou", "ses", "."]),
    (
        'It\'s 3-fold "new"',
        ["It", "&apos;s", "3", "@-@", "fo@@", "ld", "&quot;", "new", "&quot;"],
        "bpe",
        None,
    ),
    ("The houses.", ["▁The", "▁hou", "ses", "."], "sentencepiece", ["The", "hou", "ses", "."]),
    ("我不知道。", ["▁我", "不知道", "。"], "sentencepiece", ["我", "不知道", "。"]),
    ("A 猫", ["▁A", "▁", "<0xE7>", "<0x8C>", "<0xAB>"], "sentencepiece", ["A", "猫", "猫", "猫", "猫"]),
    ("Das Öl.", ["Das", "ĠÃ", "ĸ", "l", "."], "bytes", ["Das", "Ö", "Ö", "l", "."]),
    ("你好", ["ä½łå¥½"], "bytes", ["你好"]),
    ("unseen houses", ["un", "##seen", "house", "##s"], "wordpiece", ["un", "seen", "house", "s"]),
    ("a  cow .", ["a", "cow", "."], "plain", ["a", "cow", "."]),
]


@pytest.mark.parametrize(("text", "units", "scheme", "pieces"), UNITS)
@pytest.mark.parametrize("told", [True, False])
def test_units_stand_where_their_letters_are(text, units, scheme, pieces, told):
    offsets = placed(text, units, scheme if told else "auto")
    if pieces is None:
        pieces = ["It", "'s", "3", "-", "fo", "ld", '"', "new", '"']
    assert [text[start:end] for start, end in offsets] == pieces


def test_letters_that_a_tokenizer_changed_are_aligned():
    text = "Ｆｕｌｌ width… don’t"
    units = ["▁Full", "▁width", "...", "▁don", "'", "t"]
    assert [text[a:b] for a, b in placed(text, units)] == ["Ｆｕｌｌ", "width", "…", "don", "’", "t"]
    # Composed and decomposed accents.
    assert placed("cafe\u0301 ole\u0301", ["▁café", "▁olé"]) == [(0, 5), (6, 10)]


def test_unknown_units_get_what_lies_between():
    text = "The 🦄 sleeps"
    assert [text[a:b] for a, b in placed(text, ["▁The", "▁", "<unk>", "▁sleeps"])] == [
        "The",
        "🦄",
        "🦄",
        "sleeps",
    ]
    assert placed("🦄🦄", ["<unk>"]) == [(0, 2)]


def test_a_unit_of_blanks_at_the_end_is_empty():
    assert placed("cow ", ["▁cow", "▁"]) == [(0, 3), (4, 4)]
    assert placed("", []) == []


def test_units_of_another_text_are_refused():
    with pytest.raises(InputError, match="not those of the text"):
        placed("The cow jumped", ["▁Quite", "▁another", "▁sentence"])
    with pytest.raises(InputError, match="found 'morse'"):
        placed("a", ["a"], "morse")


@given(st.text(alphabet="ab é猫\u0301", max_size=12), st.lists(st.integers(1, 11), max_size=5))
def test_any_cut_into_bytes_or_letters_is_found_again(text, cuts):
    letters = [i for i, letter in enumerate(text) if not letter.isspace()]
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in pairwise(places)]
    units = [part for part in parts if part.strip()]
    offsets = placed(text, units, "plain")
    assert (
        sorted({place for a, b in offsets for place in range(a, b) if not text[place].isspace()}) == letters
    )
    assert ["".join(text[a:b].split()) for a, b in offsets] == ["".join(unit.split()) for unit in units]


def test_spans_of_annotators_are_checked():
    spans = from_lists("The cow jumped", [8, 4], [14, 7], ["minor", "major"])
    assert spans == [ErrorSpan(4, 7, "major"), ErrorSpan(8, 14, "minor")]
    for starts, ends in (([3], [2]), ([-1], [2]), ([3], [15])):
        with pytest.raises(InputError, match="does not lie in a text of 14 characters"):
            from_lists("The cow jumped", starts, ends)
    with pytest.raises(InputError, match="2 starts, 1 ends"):
        from_lists("The cow jumped", [1, 2], [3])


def test_marks_in_the_text():
    assert from_marks("<v>A</v> cow<v></v>.", "minor") == (
        "A cow.",
        [ErrorSpan(0, 1, "minor"), ErrorSpan(5, 5, "minor")],
    )
    assert from_marks("nothing") == ("nothing", [])
    for broken in ("<v>a", "a</v>", "<v>a<v>b</v></v>", "</v>a<v>"):
        with pytest.raises(InputError, match="do not come in pairs"):
            from_marks(broken)


def test_tags_of_words_and_gaps_and_back():
    text, tokens = "我 不 知道。", ["我", "不", "知道", "。"]
    tags, gaps = ["OK", "BAD", "BAD", "OK"], ["BAD", "OK", "OK", "OK", "BAD"]
    spans = from_tags(text, tokens, tags, gaps)
    assert spans == [ErrorSpan(0, 0), ErrorSpan(2, 6), ErrorSpan(7, 7)]
    offsets = placed(text, tokens, "plain")
    assert labels(spans, offsets).tolist() == [tag == "BAD" for tag in tags]
    assert gap_labels(spans, offsets).tolist() == [tag == "BAD" for tag in gaps]
    with pytest.raises(InputError, match="1 tag for 2 tokens"):
        from_tags("a b", ["a", "b"], ["OK"])
    with pytest.raises(InputError, match="found 'GOOD'"):
        from_tags("a b", ["a", "b"], ["OK", "GOOD"])


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ("ignore", [0, 0, 0]),
        ("next", [0, 1, 0]),
        ("previous", [1, 0, 0]),
        ("both", [1, 1, 0]),
    ],
)
def test_what_a_gap_marks_is_a_choice(gaps, expected):
    offsets = [(0, 3), (4, 7), (8, 14)]
    for place in (3, 4):  # anywhere between the two words
        assert labels([ErrorSpan(place, place)], offsets, gaps).tolist() == [bool(x) for x in expected]
    assert labels([ErrorSpan(5, 5)], offsets, gaps).tolist() == [False, True, False]  # inside a word


def test_gaps_at_the_ends_mark_the_nearest_word():
    offsets = [(0, 3), (4, 7)]
    assert labels([ErrorSpan(7, 7)], offsets, "next").tolist() == [False, True]
    assert labels([ErrorSpan(0, 0)], offsets, "previous").tolist() == [True, False]
    assert labels([ErrorSpan(0, 0)], [], "both").tolist() == []


def test_spans_of_models_are_taken():
    reported = [{"text": "cow", "start": 4, "end": 7, "severity": "major", "confidence": 0.9}]
    assert from_model(reported) == [ErrorSpan(4, 7, "major")]
    assert from_model([{"start": 1, "end": 2}]) == [ErrorSpan(1, 2)]


def test_post_edits_mark_what_was_changed():
    def marked(text, edited):
        return [(text[a:b], a) for a, b, _ in edit_spans(text, edited)]

    assert marked("He saw a cow.", "He saw a dog.") == [("cow", 9)]
    assert marked("He saw saw a cow.", "He saw a cow.") == [("saw", 3)]  # removed: marked
    assert marked("He saw cow.", "He saw a cow.") == [("", 7)]  # added: the gap
    assert marked("He saw", "He saw it") == [("", 6)]
    assert marked("我不知道。", "我知道吗。") == [("不", 1), ("", 4)]
    assert marked("", "a b") == [("", 0)]
    assert marked("a b", "") == [("a b", 0)]
    assert marked("same", "same") == []


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_an_alignment_is_a_shortest_edit(before, after):
    @cache
    def least(i, j):  # the definition
        if not i or not j:
            return i + j
        same = before[i - 1] == after[j - 1]
        return min(least(i - 1, j) + 1, least(i, j - 1) + 1, least(i - 1, j - 1) + (not same))

    pairs = align(before, after)
    assert [i for i, _ in pairs if i is not None] == list(range(len(before)))
    assert [j for _, j in pairs if j is not None] == list(range(len(after)))
    cost = sum(i is None or j is None or before[i] != after[j] for i, j in pairs)
    assert cost == least(len(before), len(after))


pieces_of = st.lists(st.integers(1, 4), min_size=1, max_size=6)


def _offsets(sizes):
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@given(pieces_of, pieces_of, st.lists(st.floats(-5, 5), min_size=6, max_size=6))
def test_scores_are_carried_as_by_a_loop_over_characters(sizes, others, scores):
    offsets, onto = _offsets(sizes), _offsets(others)
    values = scores[: len(offsets)]
    for how in ("max", "mean", "sum"):
        expected = []
        for start, end in onto:
            touching = [(v, a, b) for v, (a, b) in zip(values, offsets, strict=True) if a < end and start < b]
            shares = [(min(b, end) - max(a, start)) / (b - a) for _, a, b in touching]
            if not touching:
                expected.append(-9.0)
            elif how == "max":
                expected.append(max(v for v, _, _ in touching))
            elif how == "mean":
                expected.append(sum(v for v, _, _ in touching) / len(touching))
            else:
                expected.append(sum(v * share for (v, _, _), share in zip(touching, shares, strict=True)))
        np.testing.assert_allclose(project(values, offsets, onto, how, missing=-9.0), expected, atol=1e-9)


@given(pieces_of, st.lists(st.floats(-5, 5), min_size=6, max_size=6))
def test_scores_survive_the_way_to_characters_and_back(sizes, scores):
    offsets = _offsets(sizes)
    values = np.array(scores[: len(offsets)])
    single = characters("x" * sum(sizes))
    for how in ("max", "mean"):
        there = project(values, offsets, single, how)
        np.testing.assert_allclose(project(there, single, offsets, how), values, atol=1e-12)
    total = project(values, offsets, single, "sum")
    assert total.sum() == pytest.approx(values.sum(), abs=1e-9)
    np.testing.assert_allclose(project(total, single, offsets, "sum"), values, atol=1e-9)


def test_rows_of_scores_and_mistakes():
    found = project([[1.0, 4.0], [3.0, 2.0]], [(0, 1), (1, 2)], [(0, 2), (5, 6)], "max")
    assert found[0].tolist() == [3.0, 4.0]
    assert np.isnan(found[1]).all()
    with pytest.raises(InputError, match="1 score for 2 pieces"):
        project([1.0], [(0, 1), (1, 2)], [(0, 2)])
    with pytest.raises(InputError, match="found 'median'"):
        project([1.0], [(0, 1)], [(0, 1)], "median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="found 'left'"):
        labels([], [(0, 1)], "left")  # type: ignore[arg-type]


def test_neighbours_are_joined():
    assert joined([(0, 1), (2, 3), (4, 5)], [True, False, True], "minor") == [
        ErrorSpan(0, 1, "minor"),
        ErrorSpan(4, 5, "minor"),
    ]


@pytest.mark.data
def test_real_rows_agree_with_their_recorded_tags(data):
    """MLQE-PE: tags survive the way over spans, post-edits give nearly the same, subword units are found."""
    rows = pl.read_parquet(data / "mlqe_pe.parquet").filter(pl.col("split") == "dev")
    rows = rows.filter(pl.int_range(pl.len()).over("lp") < 100)
    for lp, part in rows.group_by("lp"):
        agree = count = spelt = known = 0
        for row in part.iter_rows(named=True):
            text, tokens = row["mt"], row["mt_tok"].split()
            offsets = placed(text, tokens, "plain")
            wrong, gaps = ([tag == "BAD" for tag in row[name]] for name in ("mt_tags", "gap_tags"))
            spans = from_tags(text, tokens, row["mt_tags"], row["gap_tags"])
            assert labels(spans, offsets).tolist() == wrong
            assert gap_labels(spans, offsets).tolist() == gaps
            spaced, edited = " ".join(tokens), " ".join(row["pe"].split())
            places = placed(spaced, tokens, "plain")
            edits = edit_spans(
                spaced, edited, offsets=places, edited_offsets=placed(edited, edited.split(), "plain")
            )
            agree += int((labels(edits, places) == wrong).sum())
            count += len(tokens)
            if row["nmt_tok"] is not None:
                units = row["nmt_tok"].split()
                found = placed(text, units)
                known += len(units)
                spelt += sum(
                    text[a:b] == unit.removesuffix("@@").replace("▁", "")
                    for (a, b), unit in zip(found, units, strict=True)
                )
                whole = list(words(text))
                surprisal = -np.array(row["nmt_logprobs"][: len(units)])
                assert np.isfinite(project(surprisal, found, whole)).all()
        assert agree / count > 0.98, lp
        assert spelt / known > 0.95, lp
