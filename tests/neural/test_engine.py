from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.forecast import ErrorEstimate, Gaussian, Quantiles, Samples  # noqa: E402
from doubtless.neural.checkpoint import load, new_model, save  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.encoder import batch_of  # noqa: E402
from doubtless.neural.exits import ExitRule, replay  # noqa: E402
from doubtless.neural.heads import LayerMix, sparsemax  # noqa: E402
from doubtless.neural.model import Batch  # noqa: E402
from doubtless.neural.rows import token_batches  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402
from doubtless.neural.texts import Column, sanity_flags  # noqa: E402
from doubtless.neural.uncertainty import Quantifier, quantify  # noqa: E402

JOINT = {"inputs": "joint", "uses": "src+mt"}
SEPARATE = {
    "inputs": "separate",
    "uses": "src+mt+ref",
    "pooling": "mean",
    "layer_mix": "softmax",
    "mix_norm": True,
}
EXITS = {"exits": "every", "outputs": "score+error", "error_target": "last"}
VARIANTS = {
    "joint": JOINT,
    "joint with references": {"inputs": "joint", "uses": "src+mt+ref"},
    "joint, exits": JOINT | EXITS,
    "joint, exits, heads": JOINT | EXITS | {"heads": "each", "layer_mix": "softmax", "first_exit": 0},
    "separate": SEPARATE,
    "separate, sparsemax": SEPARATE | {"layer_mix": "sparsemax", "pooling": "cls"},
    "separate, no references": {"inputs": "separate", "uses": "src+mt"},
    "separate, exits": {"inputs": "separate", "uses": "src+mt"} | EXITS,
    "no source": {"inputs": "separate", "uses": "mt+ref"},
    "hts": JOINT | {"outputs": "mean+variance"},
    "quantiles": JOINT | {"outputs": "quantiles"},
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


def make(encoder, seed=0, **options):
    sizes = {"hidden_sizes": (12, 8)}
    model = new_model(ModelConfig(encoder=str(encoder), **(sizes | options)), seed)
    # Untrained layer mixes weigh all layers alike: make them differ, so that a mix-up shows.
    with torch.no_grad():
        for mix in model.estimator.mixes:
            mix.weights.copy_(torch.linspace(-1, 1, len(mix.weights)))
            mix.gamma.fill_(1.3)
    return model


def segments(n=40, seed=0):
    rng = np.random.default_rng(seed)

    def text():
        words = " ".join(rng.choice(TEXTS, rng.integers(1, 4))).split()
        return " ".join(words[: rng.integers(1, len(words) + 1)])

    src = [text() for _ in range(n // 2)] * 2  # two systems over the same sources
    return {"src": src, "mt": [text() for _ in range(n)], "ref": src[::-1]}


def naive(model, texts):
    """One segment at a time, every text encoded on its own, through the plain forward method."""
    config, tokens = model.config, model.tokens
    rows = []
    model.estimator.eval()
    for i in range(len(texts["mt"])):
        made = {name: tokens.encode([texts[name][i]])[0] for name in config.texts}
        found = []
        for names in config.passes:
            if config.inputs == "joint":
                ids, mask = batch_of([tokens.join([made[name] for name in names]).ids], tokens.padding)
                batch = Batch(ids, mask, {"joint": torch.tensor([0])})
            else:
                ids, mask = batch_of([made[name].ids for name in names], tokens.padding)
                batch = Batch(ids, mask, {name: torch.tensor([j]) for j, name in enumerate(names)})
            with torch.no_grad():
                outputs, _ = model.estimator(batch)
            found.append({name: value[:, 0].numpy() for name, value in outputs.items()})
        rows.append({name: np.mean([f[name] for f in found], axis=0) for name in found[0]})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_equal_one_by_one_scoring_for_every_batch_size(encoder, variant):
    model, texts = make(encoder, **VARIANTS[variant]), segments()
    expected = naive(model, texts)
    for budget in (1, 100, 10_000):
        scored = torch_engine(model, batch_tokens=budget).score(texts)
        for name, values in scored.outputs.items():
            np.testing.assert_allclose(values, expected[name][:, -1], atol=1e-6)
        assert (scored.layer == 3).all()


@pytest.mark.parametrize("variant", ["joint, exits", "separate"])
def test_scores_do_not_depend_on_the_order_or_company_of_rows(encoder, variant):
    engine, texts = torch_engine(make(encoder, **VARIANTS[variant])), segments()
    whole = engine.score(texts).score
    order = np.random.default_rng(1).permutation(40)
    shuffled = engine.score({name: [values[i] for i in order] for name, values in texts.items()}).score
    np.testing.assert_allclose(shuffled, whole[order], atol=1e-6)
    alone = engine.score({name: values[7:8] for name, values in texts.items()}).score
    np.testing.assert_allclose(alone, whole[7:8], atol=1e-6)


@pytest.mark.parametrize("variant", ["joint, exits", "joint, exits, heads", "separate, exits"])
@pytest.mark.parametrize("rule", ["confidence:0.02", "constant:2", "variance:0.0001"])
def test_an_early_score_is_that_of_the_same_layer_of_a_full_run(encoder, variant, rule):
    model, texts = make(encoder, **VARIANTS[variant]), segments()
    full = naive(model, texts)
    exits = list(model.estimator.exits)
    rule = ExitRule.parse(rule)
    if rule.kind == "confidence":
        rule = ExitRule("confidence", float(np.median(full["error"][:, 0])))
    scored = torch_engine(model, batch_tokens=400).score(texts, exit=rule)
    for i, layer in enumerate(scored.layer):
        place = exits.index(layer)
        np.testing.assert_allclose(scored.score[i], full["score"][i, place], atol=1e-6)
        holds = [
            _holds(rule, exits[j], full["score"][i, : j + 1], full["error"][i, j]) for j in range(place + 1)
        ]
        assert not any(holds[:-1])
        assert holds[-1] or layer == exits[-1]
    if rule.kind == "confidence" and exits[0] > 0:  # below the first layer, all translations look alike
        assert len(set(scored.layer.tolist())) > 1


def _holds(rule, layer, scores, error):
    if rule.kind == "confidence":
        return error < rule.value
    if rule.kind == "constant":
        return layer >= rule.value
    return len(scores) >= 3 and np.var(scores[-3:]) < rule.value


def test_rows_that_left_are_computed_no_more(encoder):
    model, texts = make(encoder, **VARIANTS["joint, exits"]), segments()
    engine = torch_engine(model)
    rows_at = dict.fromkeys((1, 2, 3), 0)
    whole = model.estimator.encoder.layer
    model.estimator.encoder.layer = lambda number, state, mask: (
        rows_at.__setitem__(number, rows_at[number] + len(state)) or whole(number, state, mask)
    )
    errors = naive(model, texts)["error"]
    tolerance = float(np.median(errors[:, 0]))
    rows_at |= dict.fromkeys(rows_at, 0)
    scored = engine.score(texts, exit=ExitRule("confidence", tolerance))
    distinct = len(set(zip(texts["src"], texts["mt"], strict=True)))
    rows = zip(texts["src"], texts["mt"], scored.layer.tolist(), strict=True)
    left = {(src, mt): layer for src, mt, layer in rows}
    assert rows_at[1] == distinct
    assert rows_at[2] == sum(layer >= 2 for layer in left.values())
    assert rows_at[3] == sum(layer >= 3 for layer in left.values())
    assert rows_at[2] < distinct


def test_each_distinct_text_is_encoded_once(encoder):
    model, texts = make(encoder, **VARIANTS["separate"]), segments()
    seen = []
    engine = torch_engine(model)
    vectors = engine.stepper.vectors
    engine.stepper.vectors = lambda sequences: seen.append(len(sequences)) or vectors(sequences)
    engine.score(texts)
    assert sum(seen) == len({text for column in texts.values() for text in column})


def test_dropout_is_seeded_and_gone_afterwards(encoder):
    engine, texts = torch_engine(make(encoder, **JOINT)), segments(10)
    before = engine.score(texts).score
    state = torch.random.get_rng_state()
    one = quantify([engine], texts, Quantifier.parse("mcd:5"), seed=3)
    same = quantify([engine], texts, Quantifier.parse("mcd:5"), seed=3)
    other = quantify([engine], texts, Quantifier.parse("mcd:5"), seed=30)
    assert isinstance(one.forecast, Samples)
    np.testing.assert_array_equal(one.forecast.samples, same.forecast.samples)
    assert not np.array_equal(one.forecast.samples, other.forecast.samples)
    assert (one.forecast.sd > 0).all()
    assert not engine.stepper.estimator.training
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_array_equal(engine.score(texts).score, before)


def test_every_quantifier_gives_its_forecast(encoder):
    texts = segments(10)

    def engine(seed=0, **options):
        return torch_engine(make(encoder, seed, **(JOINT | options)))

    instant = quantify([engine(outputs="score+error")], texts, Quantifier("instant"))
    assert isinstance(instant.forecast, ErrorEstimate)
    hts = quantify([engine(outputs="mean+variance")], texts, Quantifier("hts"))
    assert isinstance(hts.forecast, Gaussian)
    assert (hts.forecast.sd > 0).all()
    quantile = quantify([engine(outputs="quantiles")], texts, Quantifier("quantile"))
    assert isinstance(quantile.forecast, Quantiles)
    assert quantile.forecast.crossings == 0
    assert set(quantile.columns) == {"score", "q0.05", "q0.5", "q0.95"}
    several = quantify([engine(0), engine(1), engine(2)], texts, Quantifier("ensemble"))
    assert several.forecast.samples.shape == (10, 3)
    plain = engine()
    dup = quantify([plain], texts, Quantifier("dup"), errors=engine(5, outputs="error"))
    assert (dup.forecast.error > 0).all()
    turned = quantify([plain], texts, Quantifier("bt"))
    back = plain.score({"src": texts["mt"], "mt": texts["src"]}).score
    np.testing.assert_allclose(turned.forecast.error, np.abs(plain.score(texts).score - back))


@pytest.mark.parametrize(
    ("options", "quantifier", "sentence"),
    [
        ({}, "instant", "the model gives score, which is no 'instant' uncertainty"),
        ({}, "ensemble", "an ensemble needs at least two models"),
        ({}, "dup", "dup needs a second model, trained on errors"),
        ({"uses": "src+mt+ref"}, "bt", "bt turns source and translation round"),
    ],
)
def test_uncertainties_that_a_model_does_not_offer_are_refused(encoder, options, quantifier, sentence):
    with pytest.raises(InputError, match=sentence):
        quantify(
            [torch_engine(make(encoder, **(JOINT | options)))], segments(4), Quantifier.parse(quantifier)
        )


@pytest.mark.parametrize("text", ["mcd", "mcd:1", "mcd:x", "magic", "instant:3"])
def test_unknown_uncertainties_are_refused(text):
    with pytest.raises(InputError):
        Quantifier.parse(text)


def test_what_a_model_lacks_is_said(encoder):
    model = make(encoder, **JOINT)
    engine = torch_engine(model)
    with pytest.raises(InputError, match="^the model needs 'src'$"):
        engine.score({"mt": ["a"]})
    with pytest.raises(InputError, match="^there is nothing to score$"):
        engine.score({"mt": [], "src": []})
    with pytest.raises(InputError, match="^the model has no exits before its last layer$"):
        engine.score(segments(4), exit=ExitRule.parse("0.1"))
    with pytest.raises(InputError, match="^dtype is one of"):
        torch_engine(model, dtype="int4")


def test_scores_that_are_not_numbers_are_refused(encoder):
    model = make(encoder, **JOINT)
    with torch.no_grad():
        model.estimator.heads[0].layers[-1].bias.fill_(float("nan"))
    with pytest.raises(InputError, match="^the model's score of row 1 is not a finite number$"):
        torch_engine(model).score(segments(4))


def test_long_empty_and_copied_translations_are_flagged(encoder):
    engine = torch_engine(make(encoder, **JOINT))
    texts = {"src": ["The cat.", "The cat.", "x " * 200, "Hund"], "mt": [" ", "The cat.", "Katze", "Katze"]}
    scored = engine.score(texts)
    assert sanity_flags(texts, scored.truncated) == ["empty", "copy", "truncated", ""]


def test_batches_hold_every_row_once_within_the_budget():
    sizes = np.random.default_rng(0).integers(1, 50, 300)
    batches = list(token_batches(sizes, 200))
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    assert all(sizes[batch].max() * len(batch) <= 200 for batch in batches)


def test_a_saved_model_scores_the_same_and_needs_no_network(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("joint, exits, heads", "separate, sparsemax", "quantiles"):
        model, texts = make(encoder, **VARIANTS[name]), segments(12)
        save(model, tmp_path / name)
        loaded = load(tmp_path / name)
        assert loaded.fingerprint() == model.fingerprint()
        np.testing.assert_array_equal(
            torch_engine(loaded).score(texts).score, torch_engine(model).score(texts).score
        )


def test_weights_that_do_not_fit_are_listed(encoder, tmp_path):
    from safetensors.torch import load_file, save_file

    save(make(encoder, **JOINT), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["heads.9.weight"] = weights.pop("heads.0.layers.0.bias").clone()
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"missing heads.0.layers.0.bias; unknown heads.9.weight"):
        load(tmp_path)


@pytest.mark.parametrize("folder", ["nowhere", "./nowhere", "/nowhere/at/all"])
def test_a_folder_that_is_not_there_is_said(folder):
    with pytest.raises(InputError, match="there is no such folder"):
        load(folder)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match="this is not a model folder"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="this is not a model folder of doubtless or COMET"):
        load(tmp_path)


@pytest.mark.parametrize("transformation", ["softmax", "sparsemax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_mix_whose_layers_are_all_dropped_keeps_them(transformation, dtype):
    mix = LayerMix(2, transformation, dropout=1.0).to(dtype).train()
    mixed = mix(torch.tensor([[[1.0], [3.0]]], dtype=dtype))
    assert mixed.tolist() == [[2.0]]


def test_sparsemax_is_the_projection_onto_the_simplex():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        logits = 2 * torch.randn(6, generator=generator)
        weights = sparsemax(logits)
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-6)
        rivals = torch.distributions.Dirichlet(torch.ones(6)).sample((500,))
        best = ((logits - weights) ** 2).sum()
        assert (((logits - rivals) ** 2).sum(dim=1) >= best - 1e-5).all()
    assert torch.isfinite(sparsemax(torch.full((3,), -1e20))).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layer": 9}, "layer is 9, but the encoder has 3 layers"),
        ({"word_layer": -3, "word_tags": ("OK", "BAD")}, "word_layer is -3, but the encoder has 3 layers"),
        ({"activation": "Linear"}, "there is no activation 'Linear'"),
        ({"outputs": "quantiles", "quantile_levels": (0.1, 0.9)}, "quantile_levels must increase"),
        ({"max_length": 3}, "max_length must be at least 5, found 3"),
        ({"pooling": "max"}, "pooling is one of cls, mean, parts, found 'max'"),
    ],
)
def test_models_that_cannot_be_are_refused(encoder, options, sentence):
    with pytest.raises(InputError, match=sentence):
        make(encoder, **(JOINT | options))


def test_a_model_takes_no_longer_texts_than_its_encoder(encoder):
    assert make(encoder, **JOINT, max_length=500).tokens.most == 64
    assert make(encoder, **JOINT, max_length=20).tokens.most == 20


@pytest.mark.parametrize("damage", ["tokenizer.json", "model", "tokens"])
def test_a_damaged_folder_is_one_sentence(encoder, tmp_path, damage):
    save(make(encoder, **JOINT), tmp_path)
    if damage.endswith(".json"):
        (tmp_path / damage).unlink()
    else:
        data = json.loads((tmp_path / "config.json").read_text())
        del data[damage]
        (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="the model folder is damaged"):
        load(tmp_path)


def test_an_encoder_without_its_tokenizer_is_refused(encoder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((encoder / name).read_bytes())
    with pytest.raises(InputError, match="are its tokenizer files missing|the encoder cannot be loaded"):
        make(tmp_path, **JOINT)


@pytest.mark.parametrize("rule", ["0.5", "constant:2", "variance:0.01"])
def test_a_rule_replayed_on_the_trace_is_the_rule_itself(tmp_path, rule):
    config = ModelConfig(
        encoder=str(write_encoder(tmp_path)), exits="every", outputs="score+error", hidden_sizes=(8,)
    )
    engine = torch_engine(new_model(config))
    texts = {"src": TEXTS, "mt": TEXTS[::-1]}
    chosen = ExitRule.parse(rule)
    found, layers = replay(chosen, engine.stepper.exits, engine.trace(texts))
    scored = engine.score(texts, exit=chosen)
    assert layers.tolist() == scored.layer.tolist()
    np.testing.assert_allclose(found["score"], scored.score, atol=1e-5)


def test_many_texts_are_tokenized_as_each_alone(encoder, monkeypatch):
    tokens = new_model(ModelConfig(encoder=str(encoder))).tokens
    monkeypatch.setattr("doubtless.neural.tokens._AT_ONCE", 3)
    assert tokens.encode(TEXTS) == [tokens.encode([text])[0] for text in TEXTS]


@given(st.lists(st.none() | st.text(), max_size=12), st.integers(-14, 14), st.integers(-14, 14))
def test_columns_of_texts_are_lists_to_their_readers(texts, start, end):
    column, expected = Column(pl.Series(texts, dtype=pl.String)), [text or "" for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("doubtless.neural.texts._AT_ONCE", 5)
        assert list(column) == expected
    assert len(column) == len(expected)
    assert column[start:end] == expected[start:end]
    assert [column[i] for i in np.arange(len(column))] == expected


def test_texts_without_offsets_are_the_same_tokens(encoder):
    tokens = new_model(ModelConfig(encoder=str(encoder), max_length=8)).tokens
    whole, bare = tokens.encode(TEXTS), tokens.encode(TEXTS, offsets=False)
    assert [text.ids for text in bare] == [text.ids for text in whole]
    assert [text.truncated for text in bare] == [text.truncated for text in whole]
    assert {len(text.offsets) for text in bare} == {0}
    assert all(len(text.offsets) == len(text.ids) <= 6 for text in whole)


def test_words_are_tagged_only_if_somebody_asks(encoder, monkeypatch):
    engine = torch_engine(make(encoder, word_tags=("OK", "BAD"), **JOINT))
    texts = {name: values for name, values in segments(6).items() if name != "ref"}
    spans, words = engine.score(texts, spans=True), engine.score(texts, words=0.5)
    assert (spans.spans is None, spans.words is None) == (False, True)
    assert (words.spans is None, words.words is None) == (True, False)
    monkeypatch.setattr(type(engine.stepper), "read_words", None)
    plain = engine.score(texts)
    assert (plain.spans, plain.words) == (None, None)
    np.testing.assert_array_equal(plain.score, spans.score)
