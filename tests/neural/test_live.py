from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnx")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.export import export  # noqa: E402
from doubtless.neural.live import Live  # noqa: E402
from doubtless.neural.runtime import open_engine, torch_engine  # noqa: E402

CONFIG = {
    "exits": "every",
    "heads": "each",
    "outputs": "score+error+change",
    "pooling": "parts",
    "separator": 2,
    "hidden_sizes": (12,),
    "word_tags": ("OK", "BAD"),
    "word_layer": 2,
}
RUNTIMES = ("torch", "torch, mixed layers", "onnx")


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    encoder = write_encoder(place / "encoder", kind="bert")
    made = {}

    def engine(runtime):
        if runtime not in made:
            more = {"layer_mix": "softmax", "pooling": "mean"} if "mixed" in runtime else {}
            model = new_model(ModelConfig(encoder=str(encoder), **(CONFIG | more)))
            if runtime == "onnx":
                made[runtime] = open_engine(export(model, place / "onnx", quantise=False) or place / "onnx")
            else:
                made[runtime] = torch_engine(model, batch_tokens=120)
        return made[runtime]

    return engine


def texts(count=30, seed=0):
    random = np.random.default_rng(seed)
    words = [word for text in TEXTS for word in text.split()]
    made = {
        name: [" ".join(random.choice(words, size=random.integers(1, 9))) for _ in range(count)]
        for name in ("src", "mt")
    }
    made["src"][1], made["mt"][1] = made["src"][0], made["mt"][0]  # a row that is there twice
    return made


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("memory", [0, 20_000, 1 << 30])
def test_segments_at_layers_of_their_own_give_what_all_together_give(engine_of, runtime, memory):
    engine, segments = engine_of(runtime), texts()
    traced = engine.trace(segments)
    live, random = Live(engine, segments, memory), np.random.default_rng(1)
    depth = len(live.exits)
    while (live.place < depth).any():
        rows = random.choice(len(live), size=random.integers(1, 12), replace=False)
        places = np.minimum(live.place[rows] + random.integers(0, 3, size=len(rows)), depth)
        live.advance(rows, places)
        np.testing.assert_array_equal(live.place[rows], places)
        assert live._held == sum(map(engine.stepper.held, live._states.values())) <= memory
        begun = np.flatnonzero(live.place)
        for name, values in live.outputs.items():
            np.testing.assert_allclose(values[begun], traced[name][live.place[begun] - 1, begun], atol=2e-6)
    assert not live._states  # whoever has arrived is not kept
    assert (live.again > 0) == (memory < 1 << 30)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_memory_is_what_was_foretold(engine_of, runtime):
    engine = engine_of(runtime)
    live = Live(engine, texts())
    foretold = live.bytes.sum()
    live.advance(np.arange(len(live)), np.ones(len(live), dtype=int))
    assert live._held == pytest.approx(foretold, rel=0.3)
    live.forget()
    assert not live._states
    assert not live._held


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_parts_joined_again_are_the_whole(engine_of, runtime):
    engine, segments = engine_of(runtime), texts(12)
    stepper, rows = engine.stepper, engine.rows(segments)
    state = stepper.advance(stepper.start(rows.batch(rows.origin)), 2)
    parts = stepper.split(state)
    again = stepper.join([stepper.join(parts[6:]), *parts[:6]])
    order = np.r_[6:12, 0:6]
    for layer in (2, 3):
        whole = stepper.read(stepper.advance(state, layer))
        for name, values in stepper.read(stepper.advance(again, layer)).items():
            np.testing.assert_allclose(values, whole[name][order], atol=2e-6, err_msg=name)
    found = stepper.read_words(stepper.advance(again, 3))
    expected = stepper.read_words(stepper.advance(state, 3))[order]
    lengths = [len(rows.sequences[row][0]) for row in rows.origin[order]]
    for one, other, length in zip(found, expected, lengths, strict=True):
        np.testing.assert_allclose(one[:length], other[:length], atol=2e-6)


def test_a_model_without_exits_is_refused(engine_of, tmp_path):
    encoder = write_encoder(tmp_path / "encoder")
    engine = torch_engine(new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(4,))))
    with pytest.raises(InputError, match="no exits before its last layer"):
        Live(engine, texts())
