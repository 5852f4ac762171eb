"""Synthetic bad translations: rules per language, and what must hold for any text at all."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubtless.neural.corrupt import KINDS, Pool, corrupt, languages
from doubtless.neural.negate import NEGATION, negate

ROWS = [
    ("en-de", "The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa."),
    ("en-fr", "The cat sleeps on the sofa.", "Le chat dort sur le canapé."),
    ("en-de", "Maria lives in Hamburg.", "Seit Mai wohnt Maria in Hamburg."),
    ("de-en", "Seit Mai wohnt Maria in Hamburg.", "Since May, Maria has lived in Hamburg."),
    ("zh-en", "我们昨天去了图书馆。", "We went to the library in Prague yesterday."),
    ("en-zh", "We went to the library yesterday.", "我们昨天去了图书馆。"),
]
POOL = Pool.from_rows(ROWS)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "I",
                "is",
                "not",
                "12",
                "3,000",
                "no",
                "die",
                "nicht",
                "是",
                "不是",
                "彼は医者です。",
                "Praha,",
                "n'est",
                "est",
            ]
        )
    ).map(" ".join),
)
PAIRS = st.sampled_from(
    [f"en-{code}" for code in [*NEGATION, "ne", "si", "th", "zh_CN"]] + ["de-en", "en", "-"]
)


def once(kind, mt, lp, src="?", seed=0):
    return corrupt(kind, src, mt, lp, Random(seed), POOL)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), TEXTS, TEXTS, PAIRS, st.integers(0, 2**32))
def test_the_result_differs_and_is_repeatable_for_any_text(kind, src, mt, lp, seed):
    out = once(kind, mt, lp, src, seed)
    assert out is None or out.split() != mt.split()
    assert out == once(kind, mt, lp, src, seed)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**9), st.sampled_from(["{:d}", "{:,d}"]), st.integers(0, 2**32))
def test_a_changed_number_has_another_value_and_the_same_shape(value, form, seed):
    text = form.format(value)
    out = once("number", f"It cost {text} euros.", "de-en", seed=seed)
    changed = out.removeprefix("It cost ").removesuffix(" euros.")
    assert int(changed.replace(",", "")) != value
    assert [mark.isdigit() for mark in changed] == [mark.isdigit() for mark in text]
    assert changed[0] != "0"


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("en", "The bridge was opened in May.", "The bridge was not opened in May."),
        ("en", "They don’t live here.", "They do live here."),
        ("en", "You cannot park here.", "You can park here."),
        ("en", "Nobody called.", "Everyone called."),
        ("en", "The house has a garden.", "The house does not have a garden."),
        ("en", "She said so.", "She did not say so."),
        ("en", "Click the button.", "Do not click the button."),
        ("de", "Er kommt heute nicht.", "Er kommt heute."),
        ("de", "Das war kein Unfall.", "Das war ein Unfall."),
        ("de", "Das ist ein Fehler.", "Das ist kein Fehler."),
        ("de", "Gestern ist er gekommen.", "Gestern ist er nicht gekommen."),
        ("fr", "Il n’est pas venu.", "Il est venu."),
        ("fr", "Il y a un bus.", "Il n'y a pas un bus."),
        ("fr", "Elle s'est levée.", "Elle ne s'est pas levée."),
        ("fr", "C'est loin.", "Ce n'est pas loin."),
        ("es", "La casa es grande.", "La casa no es grande."),
        ("es", "No llueve.", "Llueve."),
        ("ro", "El a fost acolo.", "El nu a fost acolo."),
        ("ro", "N-am timp.", "Am timp."),
        ("ro", "S-a născut la Iași.", "Nu s-a născut la Iași."),
        ("cs", "Dům je velký.", "Dům není velký."),
        ("cs", "Nemá čas.", "Má čas."),
        ("ru", "Он не пришёл.", "Он пришёл."),
        ("ru", "Книга была интересной.", "Книга не была интересной."),
        ("pl", "Dom jest duży.", "Dom nie jest duży."),
        ("pl", "Nigdy nie pada.", "Zawsze pada."),
        ("et", "Maja on suur.", "Maja ei ole suur."),
        ("et", "Ta töötab haiglas.", "Ta ei tööta haiglas."),
        ("zh", "他是医生。", "他不是医生。"),
        ("zh", "但是我们没有时间。", "但是我们有时间。"),
        ("zh", "会议将于周五举行。", "会议将不会于周五举行。"),
        ("ja", "彼は医者です。", "彼は医者ではありません。"),
        ("ja", "私は行きません。", "私は行きます。"),
        ("ja", "会議は中止された。", "会議は中止されなかった。"),
    ],
)
def test_negation_by_rule(language, before, after):
    assert negate(before, language, Random(0)) == after


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "He sings."), ("en", "It is not only big but new."), ("zh", "但是天气很好。"), ("ne", "म जान्छु।")],
)
def test_no_negation_where_no_rule_is_sound(language, text):
    assert negate(text, language, Random(0)) is None


@pytest.mark.parametrize(
    ("lp", "mt"),
    [
        ("de-en", "She has three sisters."),
        ("de-en", "One million people, or so: one million"),
        ("en-de", "Wir warten seit zwei Stunden."),
        ("en-zh", "他有两个孩子。"),
        ("en-zh", "这是第一次。"),
        ("en-ja", "三人が来た。"),
        ("en-ne", "मसँग ५ किताब छन्।"),
    ],
)
def test_numbers_in_words_and_other_scripts(lp, mt):
    for seed in range(20):
        out = once("number", mt, lp, seed=seed)
        assert out not in {None, mt}
        assert not set(out) & set("0123456789")


def test_a_year_stays_in_its_century():
    assert {once("number", "in 1987", "de-en", seed=seed)[:5] for seed in range(20)} == {"in 19"}


def test_one_is_a_number_only_before_a_unit():
    assert once("number", "One of them is the one.", "de-en") is None


def test_truncation_counts_words_or_characters():
    text = " ".join("abcdefghij")
    for seed in range(30):
        assert 3 <= len(once("truncated", text, "de-en", seed=seed).split()) <= 7
        assert text.startswith(once("truncated", text, "de-en", seed=seed))
    assert "我们昨天去了图书馆。".startswith(once("truncated", "我们昨天去了图书馆。", "en-zh"))
    assert once("truncated", "Too short.", "de-en") is None


def test_repetition_makes_it_longer_or_loses_the_rest():
    for seed in range(20):
        words = once("repeated", "one two three four five", "de-en", seed=seed).split()
        assert max(words.count(word) for word in words) >= 3


def test_what_the_pool_is_for():
    src, mt = ROWS[0][1:]
    assert once("wrong-language", mt, "en-de", src) == "Le chat dort sur le canapé."
    assert once("wrong-language", mt, "en-de", "unknown") not in POOL.by_language["de"]
    assert once("unrelated", mt, "en-de") == "Seit Mai wohnt Maria in Hamburg."
    assert once("entity", "We met Peter.", "de-en") in {
        f"We met {name}." for name in ("May", "Maria", "Hamburg", "Prague")
    }
    assert once("entity", "We met him.", "de-en") is None
    for kind in ("unrelated", "wrong-language", "entity"):
        assert corrupt(kind, src, mt, "en-de", Random(0), Pool({})) is None


def test_swapping_keeps_every_word_and_dropping_loses_some_from_the_middle():
    text = "On Monday the council voted, after a long debate, against the new road."
    for seed in range(30):
        assert sorted(once("swapped", text, "de-en", seed=seed).split()) == sorted(text.split())
        short = once("dropped", text, "de-en", seed=seed)
        assert len(short) < len(text)
        assert short.startswith("On")
        assert short.endswith("road.")


def test_copy_and_empty():
    assert once("copy", "Hallo.", "en-de", "Hello.") == "Hello."
    assert once("copy", "Hallo.", "en-de", "Hallo.") is None
    assert {once("empty", "Hallo.", "en-de", seed=seed) for seed in range(40)} >= {"", ".", "-"}


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind of corruption 'nonsense'; known are copy"):
        once("nonsense", "Hallo.", "en-de")


@pytest.mark.parametrize(
    ("lp", "both"), [("en-de", ("en", "de")), ("en_XX-de_DE", ("en", "de")), ("en-zh-CN", ("en", "zh"))]
)
def test_languages_of_a_pair(lp, both):
    assert languages(lp) == both
