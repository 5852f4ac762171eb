"""The behaviour suite must itself be sound before it may judge an estimator."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import polars as pl
import pytest

import doubtless
from doubtless.neural.corrupt import Pool, corrupt

PATH = Path(doubtless.__file__).parent / "bundled" / "behaviour.tsv"
PAIRS = "en-de en-zh en-cs en-ja en-ru en-pl et-en ne-en ro-en ru-en si-en de-en zh-en fr-en en-fr".split()  # noqa: SIM905
KINDS = ("copy", "empty", "truncated", "negation", "number", "wrong-language", "repeated", "unrelated")
SCRIPT = {
    "zh": r"[\u4e00-\u9fff]",
    "ja": r"[\u3040-\u30ff]",
    "ru": r"[\u0400-\u04ff]",
    "ne": r"[\u0900-\u097f]",
    "si": r"[\u0d80-\u0dff]",
}
# Every written-out number, and every date word, that a `number` case may change.
AMOUNTS = set(
    """one two three four five six seven eight nine ten thirteen fourteen fifteen twenty thirty seventy ninety
    once june july september november zehn fünfzig tři šest dva pět sedm два пять восемь три шесть
    sześciu dwóch neuf quinze sept vingt 一 二 两 三 四 五 七 十""".split()  # noqa: SIM905
)


@pytest.fixture(scope="module")
def suite() -> pl.DataFrame:
    return pl.read_csv(PATH, separator="\t", quote_char=None, infer_schema=False).fill_null("")


def rows(suite: pl.DataFrame, kind: str) -> list[dict[str, str]]:
    return suite.filter(pl.col("kind") == kind).to_dicts()


def units(row: dict[str, str], field: str) -> list[str]:
    return list(row[field]) if row["lp"].endswith(("zh", "ja")) else row[field].split()


def amounts(row: dict[str, str], field: str) -> Counter[str]:
    words = units(row, field) if row["lp"].endswith(("zh", "ja")) else re.findall(r"\w+", row[field].lower())
    return Counter(re.findall(r"\d+", row[field])) + Counter(word for word in words if word in AMOUNTS)


def test_the_file_is_plain(suite):
    text = PATH.read_bytes().decode("utf-8")
    assert suite.columns == ["id", "lp", "src", "good", "kind", "bad"]
    assert text.endswith("\n")
    assert "\r" not in text
    assert all(line.count("\t") == 5 for line in text.splitlines())
    assert suite.height == len(text.split("\n")) - 2


def test_ids_are_unique(suite):
    assert suite["id"].is_unique().all()


def test_every_pair_has_at_least_eight_cases_of_every_kind(suite):
    counts = Counter(suite.select("lp", "kind").iter_rows())
    assert set(counts) == {(lp, kind) for lp in PAIRS for kind in KINDS}
    assert min(counts.values()) >= 8


def test_a_source_has_one_translation_and_one_pair(suite):
    bases = suite.select("lp", "src", "good").unique()
    assert bases["src"].is_unique().all()
    assert bases["good"].is_unique().all()
    assert suite.select("src", "kind").is_unique().all()


def test_only_an_empty_translation_is_empty(suite):
    for column in ("id", "lp", "src", "good", "kind"):
        assert (suite[column].str.strip_chars() != "").all()
    assert (suite.filter(pl.col("kind") != "empty")["bad"].str.strip_chars() != "").all()
    for column in ("src", "good", "bad"):
        assert (suite[column] == suite[column].str.strip_chars()).all()


def test_the_bad_translation_differs(suite):
    assert (suite["bad"] != suite["good"]).all()


def test_sources_have_eight_to_twenty_five_words(suite):
    for lp, src in suite.select("lp", "src").unique().iter_rows():
        assert lp == "zh-en" or 8 <= len(src.split()) <= 25, src


def test_texts_are_in_the_script_of_their_language(suite):
    for lp, src, good in suite.select("lp", "src", "good").unique().iter_rows():
        for language, text in zip(lp.split("-"), (src, good), strict=True):
            for code, script in SCRIPT.items():
                if code == language:
                    assert re.search(script, text), text
                elif (code, language) != ("zh", "ja"):
                    assert not re.search(script, text), text


def test_copies_are_the_source(suite):
    assert all(row["bad"] == row["src"] for row in rows(suite, "copy"))


def test_empty_ones_come_in_three_forms_for_every_pair(suite):
    for lp in PAIRS:
        assert {row["bad"] for row in rows(suite, "empty") if row["lp"] == lp} == {"", ".", "-"}


def test_truncated_ones_are_about_the_first_half(suite):
    for row in rows(suite, "truncated"):
        whole, part = units(row, "good"), units(row, "bad")
        assert whole[: len(part)] == part
        assert 0.4 <= len(part) / len(whole) <= 0.6, row["id"]


def test_negated_ones_stay_sentences_on_the_same_matter(suite):
    for row in rows(suite, "negation"):
        whole, changed = Counter(units(row, "good")), Counter(units(row, "bad"))
        assert (whole & changed).total() >= 0.25 * whole.total(), row["id"]
        assert row["bad"][-1] == row["good"][-1], row["id"]


def test_changed_numbers_really_differ_and_little_else_does(suite):
    for row in rows(suite, "number"):
        assert amounts(row, "good") != amounts(row, "bad"), row["id"]
        lost = Counter(units(row, "good")) - Counter(units(row, "bad"))
        assert lost.total() <= 3, row["id"]


def test_translations_into_the_wrong_language_are_in_neither(suite):
    for row in rows(suite, "wrong-language"):
        source, target = row["lp"].split("-")
        shared = set(re.findall(r"\w+", row["bad"].lower())) & set(re.findall(r"\w+", row["good"].lower()))
        assert row["bad"] != row["src"]
        assert len(shared) <= 0.5 * len(re.findall(r"\w+", row["good"])), row["id"]
        for language in {source, target} & (set(SCRIPT) - {"zh", "ru", "ne"}):
            assert not re.search(SCRIPT[language], row["bad"]), row["id"]


def test_repeated_ones_say_a_phrase_at_least_three_times_in_a_row(suite):
    for row in rows(suite, "repeated"):
        text = " ".join(units(row, "bad"))
        assert re.search(r"(?:^| )(\S+(?: \S+)+?)(?: \1){2}(?: |$)", text), row["id"]
        assert set(units(row, "bad")) <= set(units(row, "good"))


def test_unrelated_ones_are_good_translations_of_another_source(suite):
    goods = set(suite.select("lp", "good").iter_rows())
    assert all((row["lp"], row["bad"]) in goods for row in rows(suite, "unrelated"))


@pytest.mark.parametrize("kind", ["negation", "number"])
def test_the_training_rules_do_not_make_these_cases(suite, kind):
    for row in rows(suite, kind):
        made = {
            corrupt(kind, row["src"], row["good"], row["lp"], Random(seed), Pool({})) for seed in range(50)
        }
        assert row["bad"] not in made, row["id"]
