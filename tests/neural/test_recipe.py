"""Parts of the bundled model's recipe: translations spoilt by a known share, and errors learnt anew."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder

from doubtless.neural.checkpoint import new_model
from doubtless.neural.config import ModelConfig
from doubtless.neural.runtime import torch_engine

RECIPE = Path(__file__).parents[2] / "recipes" / "bundled"
SENTENCES = [
    ["the", "dog", "sees", "a", "cat", "."],
    ["the", "cat", "sees", "a", "bird", "."],
    ["the", "cat", "sees", "a", "mouse", "."],
    ["a", "bird", "hears", "the", "dog", ",", "and", "the", "cat", "sleeps", "."],
]


@pytest.fixture(scope="module", autouse=True)
def path_of_recipe() -> Iterator[None]:
    """The recipe's modules are scripts' and not of the package."""
    sys.path.insert(0, str(RECIPE))
    yield
    sys.path.remove(str(RECIPE))


@pytest.fixture(scope="module")
def graded(path_of_recipe: None) -> Any:
    return import_module("graded")


@pytest.fixture(scope="module")
def lexicon(graded: Any) -> Any:
    made = graded.Lexicon()
    for sentence in SENTENCES:
        made.hear(sentence)
    made.compare(["the", "dog", "sees", "a", "cat", "."], ["the", "dog", "looks", "at", "a", "cat", "."])
    return made


def test_another_word_fits_between_its_neighbours(lexicon: Any) -> None:
    found = Counter(lexicon.fitting("a", "bird", ".", Random(seed)) for seed in range(200))
    assert set(found) <= {word for sentence in SENTENCES for word in sentence}
    assert {word for word, _ in found.most_common(2)} == {"cat", "mouse"}


def test_mistakes_are_what_a_machine_had_instead(lexicon: Any) -> None:
    assert dict(lexicon.mistakes) == {("sees",): [["looks", "at"]]}


@given(st.sampled_from(SENTENCES), st.floats(0, 1), st.integers(0, 999))
def test_every_word_has_a_tag_and_bad_ones_are_counted(
    graded: Any, lexicon: Any, good: list[str], share: float, seed: int
) -> None:
    words, tags, done = graded.spoilt(good, share, lexicon, Random(seed))
    assert len(words) == len(tags) >= 1
    assert 0 <= done <= 1
    kept = [word for word, tag in zip(words, tags, strict=True) if tag == "OK"]
    rest = iter(good)
    assert all(word in rest for word in kept)  # in their order
    if share == 0:
        assert (words, done) == (good, 0)


def test_rows_grow_worse_with_their_share(graded: Any, tmp_path: Path) -> None:
    few = [("Der Hund sieht.", "The dog sees.", "The dog sees .", "The dog is seeing .")] * 3
    few += [("Die Katze hört!", "The cat hears!", "The cat hears !", "Now the cat hears !")]
    material = graded.Material()
    material.add_post_edits("de-en", few)
    rng = Random(3)
    rows = [material.row("de-en", *pair, rng) for pair in material.good["de-en"] * 40]
    table = pl.DataFrame(rows, schema=graded.COLUMNS, orient="row")
    untouched = table.filter(pl.col("hter") == 0)
    assert set(untouched["human"]) == {graded.BEST}
    assert set(untouched["mt"]) == {"The dog is seeing.", "Now the cat hears!"}
    assert {tag for tags in untouched["mt_tags"] for tag in tags} == {"OK"}
    ordered = table.sort("hter")["human"]
    assert ordered.is_sorted(descending=True)
    assert ordered.min() == pytest.approx(graded.WORST)
    lengths = table.select(pl.col("mt_tok").str.split(" ").list.len() == pl.col("mt_tags").list.len())
    assert lengths.to_series().all()


def test_spaces_are_learnt_from_texts(graded: Any) -> None:
    text = 'He said: "I don\'t know", and left (2 %).'
    tokens = ["He", "said", ":", '"', "I", "do", "n't", "know", '"', ",", "and"]
    tokens += ["left", "(", "2", "%", ")", "."]
    spacing = graded.Spacing.learn([(text, tokens)])
    assert spacing.write(tokens) == text
    assert spacing.write(["She", "said", ":", '"', "Wo", "n't", "do", '"', ","]) == 'She said: "Won\'t do",'


def test_unsteady_scores_come_nearer_to_the_truth() -> None:
    prepare = import_module("prepare")
    rng = np.random.default_rng(5)
    truth = rng.normal(size=4000)

    def measure(validity: float) -> np.ndarray:
        return validity * truth + (1 - validity**2) ** 0.5 * rng.normal(size=len(truth))

    human, told = measure(0.53), measure(0.43)
    tags = [["BAD"] * 3 if value < -1 else ["OK"] * 3 for value in told]
    rows = pl.DataFrame(
        {
            "lp": "en-de",
            "human": human,
            "hter": np.exp(-told) / 20,
            "model_score": rng.normal(size=len(truth)),
            "nmt_logprobs": rng.normal(size=(len(truth), 4)).tolist(),
            "mt_tok": "a b c",
            "mt_tags": tags,
            "gap_tags": tags,
            "src_tags": tags,
        }
    )
    steady = prepare.steadied(rows, "en-de")["human"].to_numpy()
    # The best of two measures with independent errors reaches this correlation (sum of odds of v squared).
    odds = sum(v**2 / (1 - v**2) for v in prepare.UNSTEADY["en-de"])
    assert np.corrcoef(steady, truth)[0, 1] == pytest.approx((odds / (1 + odds)) ** 0.5, abs=0.03)
    assert np.corrcoef(human, truth)[0, 1] < 0.57
    assert prepare.steadied(rows, "ro-en") is rows


def test_ridge_is_scikit_learn_s() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(3)
    features, target = rng.normal(2, 3, (50, 4)), rng.normal(1, 1, 50)
    scaled = (features - features.mean(0)) / features.std(0)
    weights, constant = import_module("ridge").ridge(features, target, 7.0)
    expected = linear.Ridge(alpha=7.0).fit(scaled, target).predict(scaled)
    assert features @ weights + constant == pytest.approx(expected)


def test_errors_are_learnt_anew_and_scores_stay(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    kinds = {"pooling": "parts", "exits": "every", "heads": "each", "outputs": "score+error+change"}
    model = new_model(
        ModelConfig(encoder=str(encoder), hidden_sizes=(6,), score_mean=2.0, score_sd=3.0, **kinds)
    )
    texts = {"src": TEXTS[:-1] * 4, "mt": [a + b for a in TEXTS[1:5] for b in TEXTS[1:]]}
    before = torch_engine(model).trace(texts)
    human = np.random.default_rng(1).normal(2, 3, len(texts["mt"]))
    moved = import_module("errors").refit_errors(model, texts, human)
    after = torch_engine(model).trace(texts)
    assert after["score"] == pytest.approx(before["score"])
    assert after["change"] == pytest.approx(before["change"])
    true = np.abs(before["score"] - human)
    assert after["error"].mean(axis=1) == pytest.approx(true.mean(axis=1), rel=1e-4)  # as ridge has it
    assert moved.shape == true.shape
    assert np.abs(moved).max() > 0
