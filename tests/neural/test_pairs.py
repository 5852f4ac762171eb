"""Models that are told the language pair: sources are read with it, and scores of known pairs corrected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnx")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import load, new_model, save  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.exits import ExitRule  # noqa: E402
from doubtless.neural.export import export  # noqa: E402
from doubtless.neural.live import Live  # noqa: E402
from doubtless.neural.model import Estimator  # noqa: E402
from doubtless.neural.pairs import corrected  # noqa: E402
from doubtless.neural.runtime import open_engine, torch_engine  # noqa: E402
from doubtless.neural.tagged import tagged  # noqa: E402
from doubtless.neural.uncertainty import Quantifier, quantify  # noqa: E402
from doubtless.surface.features import features  # noqa: E402
from doubtless.surface.kernel import KernelRegression  # noqa: E402
from doubtless.surface.model import Surface  # noqa: E402
from doubtless.surface.table import Table, keys  # noqa: E402

SRC, MT = TEXTS[::2], TEXTS[1::2]
PAIRS = ["en-de", "en-de", "", "zh-en", "es-en"]
CONFIG = {
    "inputs": "joint",
    "uses": "src+mt",
    "pooling": "parts",
    "separator": 2,
    "exits": "every",
    "heads": "each",
    "outputs": "score+error+change",
    "hidden_sizes": (12,),
    "language_tags": True,
    "partial": True,
}
KNOWN = {"src": SRC, "mt": MT, "lp": PAIRS}


@pytest.fixture(scope="module")
def surface():
    import polars as pl

    table = Table.of([(keys("en-de source", np.arange(9, dtype=np.uint64)), np.linspace(0, 1, 9))])
    x = features(table, "en-de", pl.Series(SRC), pl.Series(MT))
    fitted = KernelRegression.fit(x, np.linspace(-2, 2, len(x)), centres=5, noise=0.1, width=0.5)
    return Surface(table, {"en-de": fitted, "zh-en": fitted.scaled(2.0)})


@pytest.fixture(scope="module")
def model(tmp_path_factory, surface):
    encoder = write_encoder(tmp_path_factory.mktemp("encoder") / "encoder", kind="bert")
    return replace(new_model(ModelConfig(encoder=str(encoder), **CONFIG)), surface=surface)


@pytest.fixture(scope="module")
def engines(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    export(model, folder, quantise=False)
    return {
        "torch": torch_engine(model),
        "onnx": open_engine(folder),
        "torch again": torch_engine(load(folder)),
    }


@pytest.fixture(scope="module", params=["torch", "onnx", "torch again"])
def engine(engines, request):
    return engines[request.param]


def plain(engine):
    return replace(engine, surface=None)


def test_sources_are_read_with_the_language(engine):
    by_hand = {"src": [tagged(src, lp) for src, lp in zip(SRC, PAIRS, strict=True)], "mt": MT}
    told = plain(engine).score(KNOWN).score
    np.testing.assert_allclose(told, plain(engine).score(by_hand).score, atol=1e-6)
    assert not np.allclose(told, plain(engine).score({"src": SRC, "mt": MT}).score)


def test_scores_of_known_pairs_are_corrected_and_nothing_else(engine, surface):
    with_it, without = engine.score(KNOWN), plain(engine).score(KNOWN)
    correction = surface.correction(PAIRS, SRC, MT)
    assert (correction != 0).tolist() == [True, True, False, True, False]
    np.testing.assert_allclose(with_it.score, without.score + correction, atol=1e-5)
    for name in ("error", "change"):
        np.testing.assert_allclose(with_it.outputs[name], without.outputs[name], atol=1e-6)
    untold = {"src": SRC, "mt": MT}
    np.testing.assert_allclose(engine.score(untold).score, plain(engine).score(untold).score, atol=1e-6)


def test_pairs_may_be_written_in_other_ways(engine):
    other = ["en_XX-de_DE", "en_de", None, "ZH-en", "es-en"]
    with_it, without = (made.score({**KNOWN, "lp": other}).score for made in (engine, plain(engine)))
    expected = engine.surface.correction(PAIRS, SRC, MT)
    np.testing.assert_allclose(with_it - without, expected, atol=1e-5)


def test_quantiles_move_with_scores():
    outputs = {"score": np.array([0.0, 1.0]), "quantiles": np.zeros((2, 3)), "error": np.ones(2)}
    moved = corrected(outputs, np.array([0.5, -1.0]))
    assert moved["score"].tolist() == [0.5, 0.0]
    assert moved["quantiles"].tolist() == [[0.5] * 3, [-1.0] * 3]
    assert moved["error"].tolist() == [1.0, 1.0]
    assert set(corrected({"error": np.ones(2)}, np.ones(2))) == {"error"}


def test_models_that_are_told_and_others_are_an_ensemble(engines, model):
    config = ModelConfig(**CONFIG | {"language_tags": False})
    untold = replace(model, surface=None, estimator=Estimator(config, model.estimator.encoder))
    pair = [engines["torch"], torch_engine(untold)]
    found = quantify(pair, KNOWN, Quantifier("ensemble"))
    expected = np.mean([engine.score(KNOWN).score for engine in pair], axis=0)
    np.testing.assert_allclose(found.forecast.score, expected, atol=1e-6)


def test_texts_are_not_turned_round_for_a_model_that_is_told_the_language(engine):
    with pytest.raises(InputError, match="told no language"):
        quantify([engine], KNOWN, Quantifier("bt"))


def test_every_exit_is_corrected_alike(engine, surface):
    correction = surface.correction(PAIRS, SRC, MT)
    traced, bare = engine.trace(KNOWN), plain(engine).trace(KNOWN)
    np.testing.assert_allclose(traced["score"], bare["score"] + correction, atol=1e-5)
    for layer in engine.stepper.exits:
        left = engine.score(KNOWN, exit=ExitRule("constant", layer))
        np.testing.assert_allclose(left.score, traced["score"][layer - 1], atol=1e-5)
    live = Live(engine, KNOWN)
    live.advance(np.arange(5), np.array([1, 2, 3, 1, 2]))
    live.advance(np.array([3, 0]), np.array([3, 2]))
    place = live.place - 1
    np.testing.assert_allclose(live.outputs["score"], traced["score"][place, np.arange(5)], atol=1e-5)


def test_unfinished_translations_are_not_corrected(engine):
    found = engine.score(KNOWN, partial=True).score
    np.testing.assert_allclose(found, plain(engine).score(KNOWN, partial=True).score, atol=1e-6)


def test_pairs_that_do_not_fit_the_segments_are_refused(engine):
    with pytest.raises(InputError, match="texts of different numbers"):
        engine.score({"src": SRC, "mt": MT, "lp": PAIRS[:2]})


def test_runtimes_agree_on_scores_and_fingerprints(engines, model):
    scores = [engine.score(KNOWN).score for engine in engines.values()]
    np.testing.assert_allclose(scores[1:], [scores[0]] * 2, atol=1e-4)
    prints = {engine.fingerprint() for engine in engines.values()}
    assert len(prints) == 1
    assert prints != {torch_engine(replace(model, surface=None)).fingerprint()}


def test_a_folder_keeps_what_corrects_its_scores(model, tmp_path):
    save(model, tmp_path / "with")
    save(replace(model, surface=None), tmp_path / "without")
    assert load(tmp_path / "with").surface.digest() == model.surface.digest()
    assert load(tmp_path / "without").surface is None
    save(replace(model, surface=None), tmp_path / "with")
    assert load(tmp_path / "with").surface is None
