from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnx")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless import bundled  # noqa: E402
from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import load, new_model, save  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.exits import ExitRule, run  # noqa: E402
from doubtless.neural.export import export  # noqa: E402
from doubtless.neural.runtime import open_engine, torch_engine  # noqa: E402
from doubtless.neural.stepper import TokenBatch  # noqa: E402
from doubtless.neural.torch_stepper import TorchStepper  # noqa: E402
from doubtless.neural.uncertainty import Quantifier, quantify  # noqa: E402
from doubtless.neural.weights import dequantised, mapped, scaled_columns, scaled_rows  # noqa: E402

SMALL = {"inputs": "joint", "exits": "every", "hidden_sizes": (24, 8), "max_length": 60}
VARIANTS = {
    "mean": {"pooling": "mean", "outputs": "score+error", "score_mean": 3.0, "score_sd": 2.0},
    "parts": {
        "pooling": "parts",
        "outputs": "score+error+change",
        "heads": "each",
        "auxiliary": ("hter",),
        "word_tags": ("OK", "BAD"),
        "word_layer": 2,
        "score_sd": 0.5,
    },
    "again": {
        "pooling": "parts",
        "outputs": "score+error+change",
        "heads": "each",
        "restart": 1,
        "word_tags": ("OK", "BAD"),
    },
    "cls": {"outputs": "mean+variance", "word_tags": ("OK", "BAD"), "first_exit": 2, "activation": "SiLU"},
    "quantiles": {"pooling": "mean", "outputs": "quantiles", "final_activation": "Tanh"},
    "three texts": {"uses": "src+mt+ref", "exits": "last", "layer": 2, "activation": "GELU"},
    "kinds": {"kinds_after": 2, "partial": True, "word_tags": ("OK", "BAD")},
}
CASES = [
    (variant, "bert" if variant in ("kinds", "parts", "again") else "xlm-roberta") for variant in VARIANTS
]
PLAIN_TOLERANCE = 1e-5
# Random weights of 16 channels are the worst case; trained models of 384 are at 0.999 and better.
BYTES_CORRELATION, BYTES_TOLERANCE = 0.98, 0.7


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    place = tmp_path_factory.mktemp("encoders")
    return {kind: write_encoder(place / kind, seed=3, kind=kind) for kind in ("bert", "xlm-roberta")}


@pytest.fixture(scope="module")
def model_of(encoders):
    made = {}

    def model(variant):
        if variant not in made:
            config = ModelConfig(encoder=str(encoders[dict(CASES)[variant]]), **(SMALL | VARIANTS[variant]))
            made[variant] = new_model(config, seed=1, name=variant)
        return made[variant]

    return model


@pytest.fixture(scope="module")
def folder_of(model_of, tmp_path_factory):
    made = {}

    def folder(variant, quantise):
        if (variant, quantise) not in made:
            made[variant, quantise] = tmp_path_factory.mktemp("model")
            export(model_of(variant), made[variant, quantise], quantise=quantise)
        return made[variant, quantise]

    return folder


def segments(count=24, seed=0):
    random = np.random.default_rng(seed)
    words = [word for text in TEXTS for word in text.split()]
    return {
        name: [" ".join(random.choice(words, size=random.integers(1, 9))) for _ in range(count)]
        for name in ("src", "mt", "ref")
    }


def batch_of(engine, texts):
    names = engine.config.passes[0]
    encoded = {name: engine.tokens.encode(texts[name]) for name in names}
    rows = zip(*(encoded[name] for name in names), strict=True)
    joined = [engine.tokens.join(parts).ids for parts in rows]
    # Two segments of one sequence: each sequence stands in a batch once.
    return TokenBatch(joined, {"joint": np.array([*range(len(joined)), 3])})


def assert_alike(found, expected, tolerance=PLAIN_TOLERANCE):
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_floats_give_what_torch_gives_at_every_exit(model_of, folder_of, variant):
    engine = open_engine(folder_of(variant, False), threads=2)
    reference = TorchStepper(model_of(variant))
    batch = batch_of(engine, segments())
    assert (engine.stepper.exits, engine.stepper.depth) == (reference.exits, reference.depth)
    ours, theirs = engine.stepper.start(batch), reference.start(batch)
    for layer in reference.exits:
        ours, theirs = engine.stepper.advance(ours, layer), reference.advance(theirs, layer)
        assert_alike(engine.stepper.read(ours), reference.read(theirs))
        some = np.arange(len(engine.stepper.read(ours)["score"])) % 3 != layer % 3
        ours, theirs = engine.stepper.keep(ours, some), reference.keep(theirs, some)
    if engine.config.word_tags:
        found, expected = engine.stepper.read_words(ours), reference.read_words(theirs)
        kept = batch.rows["joint"]
        for layer in reference.exits:
            kept = kept[np.arange(len(kept)) % 3 != layer % 3]
        for row, text in enumerate(kept):
            tokens = len(batch.sequences[text])
            np.testing.assert_allclose(found[row, :tokens], expected[row, :tokens], atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("quantise", [False, True], ids=["floats", "bytes"])
def test_scores_are_those_of_torch(model_of, folder_of, variant, quantise):
    texts = segments()
    found = open_engine(folder_of(variant, quantise)).score(texts, spans=True)
    expected = torch_engine(model_of(variant)).score(texts, spans=True)
    if quantise:
        assert np.corrcoef(found.score, expected.score)[0, 1] > BYTES_CORRELATION
        np.testing.assert_allclose(found.score, expected.score, atol=BYTES_TOLERANCE * expected.score.std())
    else:
        assert_alike(found.outputs, expected.outputs)
        assert [[span["text"] for span in row] for row in found.spans or []] == [
            [span["text"] for span in row] for row in expected.spans or []
        ]


@pytest.mark.parametrize("quantise", [False, True], ids=["floats", "bytes"])
def test_a_folder_serves_both_runtimes(folder_of, quantise):
    folder, texts = folder_of("parts", quantise), segments()
    ours, theirs = open_engine(folder), open_engine(folder, runtime="torch")
    found, expected = ours.score(texts).score, theirs.score(texts).score
    # PyTorch has the rounded weights, but computes with floats.
    assert np.corrcoef(found, expected)[0, 1] > (0.998 if quantise else 0.99999)
    assert ours.fingerprint() == theirs.fingerprint()
    assert (ours.name, ours.config) == (theirs.name, theirs.config)


@pytest.mark.parametrize("quantise", [False, True], ids=["floats", "bytes"])
def test_a_row_does_not_depend_on_its_neighbours(folder_of, quantise):
    texts = segments(40)
    folder = folder_of("mean", quantise)
    together = open_engine(folder, threads=2).score(texts).outputs
    alone = open_engine(folder, threads=1, batch_tokens=1)
    for row in range(0, 40, 7):
        single = alone.score({name: column[row : row + 1] for name, column in texts.items()}).outputs
        for name, values in single.items():
            np.testing.assert_allclose(values[0], together[name][row], atol=1e-6, rtol=1e-6)


def test_rows_that_leave_early_have_the_scores_of_their_layers(folder_of):
    engine = open_engine(folder_of("parts", True))
    batch = batch_of(engine, segments(30))
    change = run(engine.stepper, batch, ExitRule.parse("constant:1"))[0]["change"]
    found, layers = run(engine.stepper, batch, ExitRule("confidence", float(np.median(change))))
    assert len(set(layers)) > 1
    for layer in set(layers):
        whole, _ = run(engine.stepper, batch, ExitRule.parse(f"constant:{layer}"))
        for name, values in whole.items():
            np.testing.assert_allclose(found[name][layers == layer], values[layers == layer], atol=1e-6)


def test_rows_that_left_cost_nothing(folder_of):
    engine = open_engine(folder_of("mean", False))
    state = engine.stepper.advance(engine.stepper.start(batch_of(engine, segments(30))), 1)
    kept = engine.stepper.keep(state, np.array([4, 4, 9]))
    assert sum(len(group.hidden) for group in kept.groups) == 2
    assert len(engine.stepper.read(kept)["score"]) == 3


def test_unfinished_translations(folder_of, model_of):
    texts = segments()
    found = open_engine(folder_of("kinds", False)).score(texts, partial=True)
    assert_alike(found.outputs, torch_engine(model_of("kinds")).score(texts, partial=True).outputs)
    whole = open_engine(folder_of("kinds", False)).score(texts)
    assert not np.allclose(found.score, whole.score)
    with pytest.raises(InputError, match="^the model was not trained on unfinished translations$"):
        open_engine(folder_of("mean", False)).score(texts, partial=True)


def test_scoring_imports_no_torch(folder_of):
    code = (
        "import sys\nfrom doubtless.neural.runtime import open_engine\n"
        f"engine = open_engine({str(folder_of('parts', True))!r})\n"
        "found = engine.score({'src': ['The cat sleeps.'], 'mt': ['Die Katze.']}, spans=True)\n"
        "heavy = ('torch', 'transformers', 'onnx', 'safetensors', 'huggingface_hub')\n"
        "print([name for name in heavy if name in sys.modules], len(found.score), found.spans is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] 1 True"


def test_without_torch_the_way_out_is_named(folder_of, monkeypatch):
    monkeypatch.setattr("doubtless.neural.runtime.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^torch is missing: pip install 'doubtless\[torch\]'$"):
        open_engine(folder_of("mean", True), runtime="torch")
    assert open_engine(folder_of("mean", True)).name == "mean"


def test_the_bundled_model_is_the_default(folder_of, monkeypatch):
    monkeypatch.setattr(bundled, "folder", lambda: folder_of("mean", True))
    assert open_engine().name == "mean"


def test_what_runs_where(folder_of, model_of, tmp_path):
    plain = tmp_path / "plain"
    save(model_of("mean"), plain)
    assert isinstance(open_engine(plain).stepper, TorchStepper)
    assert isinstance(open_engine(folder_of("mean", True), dtype="bfloat16").stepper, TorchStepper)
    with pytest.raises(InputError, match="was not exported for ONNX Runtime$"):
        open_engine(plain, runtime="onnx")
    with pytest.raises(InputError, match="^ONNX Runtime runs on the cpu here, not on 'cuda'$"):
        open_engine(folder_of("mean", True), runtime="onnx", device="cuda")
    with pytest.raises(InputError, match="^a runtime is one of auto, torch, onnx, found 'jax'$"):
        open_engine(plain, runtime="jax")
    with pytest.raises(InputError, match="^mcd needs dropout, which only the runtime 'torch' has$"):
        quantify([open_engine(folder_of("mean", True))], segments(2), Quantifier.parse("mcd:2"))


@pytest.mark.parametrize("damage", ["weights cut", "weights gone", "graph", "graph gone", "steps", "tensor"])
def test_a_damaged_folder_gets_one_sentence(model_of, tmp_path, damage):
    export(model_of("mean"), tmp_path)
    weights, graph, config = (
        tmp_path / name for name in ("model.safetensors", "steps/layer.onnx", "config.json")
    )
    if damage == "weights cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "weights gone":
        weights.unlink()
    elif damage == "graph":
        graph.write_bytes(b"\x00" * 50)
    elif damage == "graph gone":
        graph.unlink()
    elif damage == "tensor":
        weights.write_bytes(
            weights.read_bytes().replace(b"layer.1.output.dense.scale", b"layer.1.output.dense.scape")
        )
    else:
        data = json.loads(config.read_text())
        del data["steps"]["exits"]
        config.write_text(json.dumps(data))
    with pytest.raises(InputError, match="the model folder is damaged") as caught:
        open_engine(tmp_path).score(segments(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"inputs": "separate"}, {"layer_mix": "softmax"}, {"outputs": "error"}, {"activation": "Hardtanh"}],
)
def test_other_models_are_refused(encoders, tmp_path, options):
    config = ModelConfig(encoder=str(encoders["bert"]), **(SMALL | {"exits": "last"} | options))
    with pytest.raises(InputError, match="can(not)? be exported$"):
        export(new_model(config), tmp_path)


def test_bytes_are_near_what_they_stand_for():
    random = np.random.default_rng(0)
    weight, table = random.normal(size=(7, 10)), random.normal(size=(5, 4))
    smooth = random.uniform(0.5, 1, size=10).astype(np.float32)
    data, scale = scaled_columns(weight, smooth)
    rows, factors = scaled_rows(table)
    stored = {
        "a.b.weight": data,
        "a.b.scale": scale,
        "a.smooth": smooth,
        "t.weight": rows,
        "t.scale": factors,
    }
    floats = dequantised(stored | {"a.b.bias": np.ones(7)})
    assert set(floats) == {"a.b.weight", "a.b.bias", "t.weight"}
    assert np.all(np.abs(floats["a.b.weight"] - weight) <= scale[:, None] / 2 * smooth + 1e-6)
    assert np.all(np.abs(floats["t.weight"] - table) <= factors / 2 + 1e-6)


def test_neighbouring_bytes_never_overflow_16_bits():
    data, _ = scaled_columns(np.random.default_rng(0).normal(size=(64, 128)))
    assert np.abs(data.astype(int)).reshape(64, 2, 64).sum(axis=1).max() * 255 < 2**15


def test_mapped_weights_are_those_that_torch_reads(folder_of):
    from safetensors.torch import load_file

    path = folder_of("mean", True) / "model.safetensors"
    theirs, ours = load_file(path), mapped(path)
    assert set(theirs) == set(ours)
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor.numpy())


def test_weights_whose_memory_was_given_back_are_read_again(folder_of):
    ours = mapped(folder_of("mean", True) / "model.safetensors")
    before = {name: array.copy() for name, array in ours.items()}
    ours.give_back()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, before[name])


def test_an_exported_model_can_be_saved_and_exported_again(folder_of, tmp_path):
    loaded = load(folder_of("mean", True))
    save(loaded, tmp_path / "plain")
    assert "steps" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    export(loaded, tmp_path / "again", quantise=False)
    texts = segments()
    np.testing.assert_allclose(
        open_engine(tmp_path / "again").score(texts).score,
        torch_engine(loaded).score(texts).score,
        atol=PLAIN_TOLERANCE,
    )
