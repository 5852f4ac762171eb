"""Taggers against the token probabilities that they rest on, with tiny models of both kinds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import write_encoder

from doubtless.errors import InputError
from doubtless.neural.checkpoint import new_model, save
from doubtless.neural.config import ModelConfig
from doubtless.neural.tagged import tagged
from doubtless.words.spans import ErrorSpan, project
from doubtless.words.tagger import TaggedWords, open_tagger, tag_words

TEXTS = {
    "src": ["Die Katze schläft auf dem Dach.", "央行上调了利率。", "I do not know."],
    "mt": ["The cat sleeps on the roof.", "The central bank raised interest rates.", "央行上调了利率。"],
}
KINDS = {
    "own": {"word_tags": ("OK", "BAD"), "language_tags": True, "exits": "every"},
    "severities": {"word_tags": ("O", "minor", "major", "critical"), "uses": "src+mt+ref"},
    "plain": {},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("taggers")
    encoder = write_encoder(root / "encoder")
    for name, options in KINDS.items():
        save(new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(12, 8), **options)), root / name)
    return root


def token_probabilities(engine, texts):
    """The probabilities of tags of each token, by the steps of the model itself, one segment at a time."""
    from doubtless.neural.stepper import TokenBatch

    for src, mt in zip(texts["src"], texts["mt"], strict=True):
        parts = engine.tokens.encode([mt, src])
        ids = engine.tokens.join(parts).ids
        batch = TokenBatch([tuple(ids)], {"joint": np.zeros(1, dtype=np.int64)}, None)
        state = engine.stepper.advance(engine.stepper.start(batch), engine.stepper.depth)
        yield np.asarray(engine.stepper.read_words(state))[0][: len(parts[0].ids)], parts[0].offsets, mt


@pytest.mark.parametrize("name", ["own", "severities"])
def test_suspicion_is_the_sum_of_error_probabilities_and_spans_are_most_probable_tags(models, name):
    engine = open_tagger(models / name)
    found = tag_words(engine, TEXTS)
    for own, (probabilities, offsets, mt) in zip(found, token_probabilities(engine, TEXTS), strict=True):
        suspicion = probabilities[:, 1:].sum(axis=1)
        letters = [(i, i + 1) for i, letter in enumerate(mt) if not letter.isspace()]
        real = [i for i, (start, end) in enumerate(offsets) if start < end]
        expected = project(suspicion[real], [offsets[i] for i in real], own.words, "max")
        assert own.on(own.words) == pytest.approx(expected, abs=2e-6)  # words are rounded to six digits
        flagged = (probabilities.argmax(axis=1) > 0).astype(float)
        marked = project(flagged[real], [offsets[i] for i in real], letters, "max", missing=0.0)
        assert own.on(letters, "binary")[marked == 1].all()
        assert set(own.on(letters, "binary")) <= {0.0, 1.0}


def test_a_model_that_is_told_the_language_is_told_it(models):
    engine = open_tagger(models / "own")
    told = tag_words(engine, TEXTS, ["de-en", None, "en-zh"])
    by_hand = {**TEXTS, "src": [tagged(s, lp) for s, lp in zip(TEXTS["src"], ["de-en", None, "en-zh"])]}  # noqa: B905
    for one, other, silent in zip(told, tag_words(engine, by_hand), tag_words(engine, TEXTS), strict=True):
        assert one.probability.tolist() == other.probability.tolist()
        assert len(one.words) == len(silent.words)
    assert told[0].probability.tolist() != tag_words(engine, TEXTS)[0].probability.tolist()
    assert told[1].probability == pytest.approx(tag_words(engine, TEXTS)[1].probability, abs=1e-5)


def test_other_words_get_the_worst_of_what_they_touch():
    found = TaggedWords([(0, 3), (4, 7), (7, 8)], np.array([0.1, 0.6, 0.3]), [ErrorSpan(4, 7)])
    assert found.on([(0, 3), (4, 8)]).tolist() == [0.1, 0.6]
    assert found.on([(0, 3), (4, 8)], "binary").tolist() == [0.0, 1.0]
    assert found.on([(3, 4)]).tolist() == [0.0]


def test_words_that_the_tagger_did_not_read_are_not_judged(models):
    engine = open_tagger(models / "own")
    long = "The cat sleeps. " * 200
    whole, cut, without_source = tag_words(
        engine, {"src": ["Die Katze", long, long], "mt": ["a b", long, "a b"]}
    )
    assert (whole.truncated, whole.stopped) == (False, None)
    assert (without_source.truncated, without_source.stopped) == (True, None)
    assert cut.truncated
    (kept,) = engine.tokens.encode([long])
    assert cut.stopped == kept.offsets[-2][1] < len(long)  # the last one is a special token
    for form in ("confidence", "binary"):
        unread = np.isnan(cut.on(cut.words, form))
        assert unread.tolist() == [end > cut.stopped for _, end in cut.words]
        assert not np.isnan(without_source.on(without_source.words, form)).any()


def test_models_without_tags_and_unknown_forms_are_refused(models):
    with pytest.raises(InputError, match="the model tags no words"):
        open_tagger(models / "plain")
    with pytest.raises(InputError, match="confidence or binary"):
        TaggedWords([], np.empty(0), []).on([], "both")


def test_the_bundled_model_tags_words():
    found = tag_words(
        open_tagger(threads=1),
        {"src": ["The central bank raised rates.", "Good morning."], "mt": ["央行上调了利率。", ""]},
        ["en-zh", "en-de"],
    )
    assert [len(own.words) > 0 for own in found] == [True, False]
    assert ((found[0].probability >= 0) & (found[0].probability <= 1)).all()
