"""Features against values computed by hand."""

from __future__ import annotations

from math import log10

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless import InputError
from doubtless.gp import glassbox, lexicon, ngrams
from doubtless.gp.features import Extractor, read_numbers, train_texts
from doubtless.gp.lexicon import translations
from doubtless.gp.ngrams import NgramModel, Sentences
from doubtless.gp.quest import NAMES, Quest
from doubtless.segments import as_table

SOURCE = pl.Series(["das haus ist klein", "das buch", "das haus", "ein buch"])
TARGET = pl.Series(["the house is small", "the book", "the house", "a book"])


def sentences(*texts):
    return Sentences.of(pl.Series(texts, dtype=pl.String))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't panic!", ["don't", "panic", "!"]),
        ("3.5 km, (or 1,000)", ["3.5", "km", ",", "(", "or", "1,000", ")"]),
        ("我爱你。", ["我", "爱", "你", "。"]),
        ("well-known", ["well-known"]),
        ("  ", []),
        ("ශ්‍රී ලංකාව", ["ශ්‍රී", "ලංකාව"]),
    ],
)
def test_texts_are_cut_into_tokens(text, tokens):
    assert sentences(text).words.to_list() == tokens


def test_sentences_without_words_keep_their_place():
    found = sentences("", "a b", None, "c")
    assert found.lengths.tolist() == [0, 2, 0, 1]
    assert found.mean(np.array([1.0, 3.0, 5.0])).tolist() == [0.0, 2.0, 0.0, 5.0]


def test_the_language_model_by_hand():
    """Corpus "a b" and "a": 5 predictions (a b end a end) of 2 words, an unknown one and the end."""
    model = NgramModel.train(sentences("a b", "a"))
    words = {"a": 3 / 9, "b": 2 / 9, "end": 3 / 9, "unknown": 1 / 9}
    # After the beginning: 2 times continued, in 1 way. After "a": 2 times, in 2 ways.
    pair = {"a|begin": (2 + 1 * words["a"]) / 3, "end|a": (1 + 2 * words["end"]) / 4}
    triple = {
        "a|begin": (2 + 1 * pair["a|begin"]) / 3,
        "end|begin a": (1 + 2 * pair["end|a"]) / 4,
    }
    found = model.log10_probability(sentences("a"))
    assert found[0] == pytest.approx(log10(triple["a|begin"]) + log10(triple["end|begin a"]))
    # An unknown word was never seen after the beginning, and nothing after it.
    unknown = (0 + 1 * (0 + 1 * words["unknown"]) / 3) / 3
    assert model.log10_probability(sentences("z"))[0] == pytest.approx(log10(unknown) + log10(words["end"]))


@given(st.lists(st.text("ab c", max_size=8), min_size=1, max_size=6), st.sampled_from(["", "a", "b a", "z"]))
def test_probabilities_of_what_may_follow_sum_to_one(corpus, history):
    """Over all known words, an unknown one and the end."""
    model = NgramModel.train(sentences(*corpus, "a"))
    place = len(history.split())
    total = model.probabilities(sentences(history))[place]
    for word in [*model.words.to_list(), "zzz"]:
        total += model.probabilities(sentences(f"{history} {word}"))[place]
    assert total == pytest.approx(1.0)


def test_frequencies_and_quartiles_by_hand():
    model = NgramModel.train(sentences("a a a a b", "a a b c", "d"))
    counts, owner = model.frequencies(sentences("a c x", "b"), 1)
    assert counts.tolist() == [6, 1, 0, 2]
    assert owner.tolist() == [0, 0, 0, 1]
    counts, owner = model.frequencies(sentences("a a b", "b", "c d"), 2)
    assert counts.tolist() == [4, 2, 0]  # "a a", "a b", never "c d"
    assert owner.tolist() == [0, 0, 2]
    assert model.quartiles(1) == (1.0, 2.0)  # of 1 1 2 6


def test_ibm_model_1_learns_the_textbook_example():
    source, target = Sentences.of(SOURCE), Sentences.of(TARGET)
    left, right = NgramModel.train(source), NgramModel.train(target)
    s, t, p = translations(source, target, left.numbers(source.words), right.numbers(target.words))
    np.testing.assert_allclose(np.bincount(s + 1, weights=p), 1.0)  # each word's translations
    table = {
        (left.words[i], right.words[j]): x
        for i, j, x in zip(s.tolist(), t.tolist(), p, strict=True)
        if i >= 0
    }
    for word, translation in (("das", "the"), ("haus", "house"), ("buch", "book"), ("ein", "a")):
        best = max((x, other) for (first, other), x in table.items() if first == word)
        assert best[1] == translation


def test_one_step_of_ibm_model_1_by_hand():
    """One pair "x" - "y z" and the empty word: nothing tells them apart, all stays even."""
    source, target = sentences("x"), sentences("y z")
    s, t, p = translations(source, target, np.array([0]), np.array([0, 1]))
    assert sorted(zip(s.tolist(), t.tolist(), p.tolist(), strict=True)) == [
        (-1, 0, 0.5),
        (-1, 1, 0.5),
        (0, 0, 0.5),
        (0, 1, 0.5),
    ]


def test_a_large_corpus_is_thinned_for_the_lexical_table(monkeypatch):
    source, target = Sentences.of(SOURCE), Sentences.of(TARGET)
    words = np.arange(len(source.words)), np.arange(len(target.words))
    seen = set(translations(source, target, *words)[0].tolist())
    assert seen == {-1, *range(10)}
    # 20 + 6 + 6 + 6 meetings with the empty word: every second sentence pair is 26.
    monkeypatch.setattr(lexicon, "_MOST_MEETINGS", 26)
    assert set(translations(source, target, *words)[0].tolist()) == {-1, 0, 1, 2, 3, 6, 7}


def test_more_words_than_can_be_counted_are_refused(monkeypatch):
    monkeypatch.setattr(ngrams, "MOST_WORDS", 5)
    with pytest.raises(InputError, match=r"^the corpus has 6 distinct words, at most 5 can be counted: take"):
        Quest.train(SOURCE, TARGET)


def test_features_by_hand():
    quest = Quest.train(SOURCE, TARGET)
    row = dict(
        zip(
            NAMES,
            quest.features(pl.Series(["Das Auto ist klein!"]), pl.Series(["the the car ."]))[0],
            strict=True,
        )
    )
    assert row["quest1001"] == 5
    assert row["quest1002"] == 4
    assert row["quest1006"] == (3 + 4 + 3 + 5 + 1) / 5
    assert row["quest1009"] == quest.source.log10_probability(sentences("das auto ist klein !"))[0]
    assert row["quest1012"] == quest.target.log10_probability(sentences("the the car ."))[0]
    assert row["quest1015"] == 4 / 3
    # Counts of words: das 3, haus buch 2, ist klein ein 1; the quarters end at 1 and 2.
    assert row["quest1046"] == 2 / 5
    assert row["quest1049"] == 1 / 5
    assert row["quest1050"] == 1 / 4  # "ist klein" of four pairs; all seen pairs but "das haus" occur once
    assert row["quest1053"] == 0
    assert row["quest1054"] == 0
    assert row["quest1057"] == 0
    assert row["quest1058"] == 3 / 5
    assert row["quest1074"] == 1
    assert row["quest1075"] == 1
    numbers = quest.source.numbers(pl.Series(["das", "ist", "klein"]))
    assert row["quest1022"] == pytest.approx(quest.likely[numbers].sum() / 5)
    assert row["quest1036"] == pytest.approx((quest.possible[numbers] / np.array([3, 1, 1])).sum() / 5)


def test_empty_texts_have_features():
    features = Quest.train(SOURCE, TARGET).features(pl.Series(["", None]), pl.Series([None, ""]))
    assert np.isfinite(features).all()


def test_the_resource_survives_as_arrays():
    quest = Quest.train(SOURCE, TARGET)
    again = Quest.from_arrays(quest.arrays())
    np.testing.assert_array_equal(again.features(SOURCE, TARGET), quest.features(SOURCE, TARGET))


def test_glass_box_features_in_text_and_in_lists():
    rows = [
        {"src": "a b c", "mt": "x", "nmt_logprobs": [-1.0, -2.0, -3.0]},
        {"src": "a", "mt": "x y", "nmt_logprobs": [-0.5]},
    ]
    expected = [[-2.0, -3.0, 2 / 3, 1 / 3, 0.5], [-0.5, -0.5, 0.0, 0.0, 1.5]]
    np.testing.assert_allclose(glassbox.features(as_table(rows)), expected)
    text = [{**row, "nmt_logprobs": str(row["nmt_logprobs"])} for row in rows]
    np.testing.assert_allclose(glassbox.features(as_table(text)), expected)


@pytest.mark.parametrize("bad", [None, [], [-1.0, None], [float("nan")]])
def test_rows_without_probabilities_are_named(bad):
    rows = [{"src": "a", "mt": "b", "nmt_logprobs": [-1.0]}, {"src": "a", "mt": "b", "nmt_logprobs": bad}]
    with pytest.raises(InputError, match=r"^the data, row 2: column 'nmt_logprobs' is not a list of finite"):
        glassbox.features(as_table(rows))


def test_sources_add_up_in_order(tmp_path):
    (tmp_path / "feats").write_text("1 2\n3 4\n")
    table = as_table(
        [
            {"src": "das haus", "mt": "the house", "x": 7.0, "nmt_logprobs": [-1.0]},
            {"src": "ein buch", "mt": "a book !", "x": 8.0, "nmt_logprobs": [-2.0]},
        ]
    )
    extractor = Extractor(2, ("x",), Quest.train(SOURCE, TARGET), True)
    found = extractor.read(table, tmp_path / "feats")
    assert found.shape == (2, 2 + 1 + 17 + 5)
    assert found[:, :3].tolist() == [[1.0, 2.0, 7.0], [3.0, 4.0, 8.0]]
    smaller, kept = extractor.without_constants(found)
    assert "quest1001" in smaller.left_out
    assert kept.shape[1] == len(smaller.names)
    np.testing.assert_array_equal(smaller.read(table, tmp_path / "feats"), kept)


def test_a_corpus_leaves_out_what_will_be_fitted_on():
    corpus = as_table(pl.DataFrame({"src": SOURCE, "tgt": TARGET}))
    quest, shared = train_texts(corpus, as_table([{"src": "das buch", "mt": "the book"}]))
    assert shared == 1
    assert quest.source.tables[0].counts.sum() == 4 + 2 + 2 + 3  # words and ends of three sentences
    with pytest.raises(InputError, match="all sources of the corpus are in the data"):
        train_texts(corpus, corpus)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2\n", "1 line, but the data has 2 rows"),
        ("1 2\n3\n", "2: 1 number, expected 2"),
        ("1 2\n3 x\n", "2: 'x' is not a finite number"),
        ("1 2\n3 nan\n", "2: 'nan' is not a finite number"),
        ("\n\n", "1: 0 numbers, expected some"),
    ],
)
def test_a_wrong_file_of_features_is_refused(tmp_path, text, sentence):
    path = tmp_path / "feats.17"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_numbers(path, 2, "the data")
