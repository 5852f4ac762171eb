"""Signals of translation models against loops that let the public model predict one token after the other."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from tiny_mt import CAUSAL, MAKERS, SOURCES, TRANSLATIONS, write_model  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.words import lens  # noqa: E402
from doubtless.words.blood import sharpness  # noqa: E402
from doubtless.words.forced import open_translation_model  # noqa: E402
from doubtless.words.signals import (  # noqa: E402
    SIGNALS,
    best_layer,
    parse_signal,
    recorded_signals,
    token_signals,
)

# What stands between the last layer and the logits, by the architectures' own names.
NORMS = {"marian": None, "t5": "final_layer_norm", "gpt2": "ln_f", "llama": "norm", "cohere": "norm"}
NORMS |= dict.fromkeys(("m2m", "mbart", "nllb"), "layer_norm")
STARTS = {"marian": "<pad>", "t5": "<pad>", "m2m": "</s>", "nllb": "</s>", "mbart": "</s>"}
DROPOUT = ("marian", "m2m", "mbart", "t5", "gpt2")
WITHOUT_DROPOUT = [name for name in SIGNALS if not name.startswith("mcd")]


class Made(dict):
    """What is made when it is first asked for."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __missing__(self, kind):
        self[kind] = self.make(kind)
        return self[kind]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("mt")
    return Made(lambda kind: write_model(kind, root / kind))


@pytest.fixture(scope="module")
def opened(folders):
    return Made(lambda kind: open_translation_model(folders[kind], **MAKERS[kind][1]))


def naive(kind, model, source, translation):
    """Signals of each token from a pass of the whole model over just what was read before it."""
    network, forced = model.model, model.encode(source, translation)
    tensor = lambda ids: torch.tensor([ids])  # noqa: E731
    rows = []
    for place in forced.text:
        if kind in STARTS:
            start = model.tokenizer.convert_tokens_to_ids(STARTS[kind])
            prefix = [start, *forced.target[:place]]
            output = network(
                input_ids=tensor(forced.source),
                decoder_input_ids=tensor(prefix),
                output_hidden_states=True,
                output_attentions=True,
            )
            hidden, own, cross = (
                output.decoder_hidden_states,
                output.decoder_attentions,
                output.cross_attentions,
            )
        else:
            output = network(tensor(forced.target[:place]), output_hidden_states=True, output_attentions=True)
            hidden, own, cross = output.hidden_states, output.attentions, [None] * len(output.attentions)
        rows.append(_row(kind, model, forced.target[place], output.logits, hidden, own, cross))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _row(kind, model, token, logits, hidden, own, cross):
    last = logits[0, -1].double().log_softmax(0)
    layers = len(hidden) - 1
    decoder = model.model.get_decoder() if kind in STARTS else model.model.base_model
    norm = getattr(decoder, NORMS[kind]) if NORMS[kind] else lambda x: x
    inner = []
    for states in hidden[:-1]:
        state = norm(states[:, -1])
        if kind == "t5" and getattr(model.model.config, "scale_decoder_outputs", True):
            state = state * 16**-0.5
        scores = model.model.get_output_embeddings()(state)[0]
        scores = scores + getattr(model.model, "final_logits_bias", torch.zeros(1))[0]
        scores = scores * (0.25 if kind == "cohere" else 1.0)
        inner.append(scores.double().log_softmax(0))
    entropies = []
    for mine, theirs in zip(own, cross, strict=True):
        for head in range(mine.shape[1]):
            shares = mine[0, head, -1].double()
            if theirs is not None:
                shares = torch.cat([shares, theirs[0, head, -1].double()])
                shares = shares / shares.sum()
            entropies.append(float(-(shares * shares.log()).nan_to_num(0).sum()))
    best = [layer for layer, scores in enumerate([*inner, last]) if int(scores.argmax()) == token]
    return {
        "surprisal": -float(last[token]),
        "entropy": -float((last.exp() * last).sum()),
        "ll-surprisal": [-float(scores[token]) for scores in inner],
        "ll-kl": [float((scores.exp() * (scores - last)).sum()) for scores in inner],
        "depth": best[0] if best else layers + 1,
        "attention-avg": float(np.mean(entropies)),
        "attention-max": max(entropies),
    }


@pytest.mark.parametrize("kind", MAKERS)
def test_signals_are_those_of_a_loop_over_tokens(opened, kind):
    model = opened[kind]
    names = [name for name in WITHOUT_DROPOUT if name != "blood"]
    found = token_signals(model, SOURCES, TRANSLATIONS, names)  # one batch, so that rows are padded
    for signals, source, translation in zip(found, SOURCES, TRANSLATIONS, strict=True):
        with torch.no_grad():
            expected = naive(kind, model, source, translation)
        assert len(signals.tokens) == len(signals.offsets) == len(expected["surprisal"]) > 3
        for name in names:
            np.testing.assert_allclose(
                signals.values[name], expected[name], atol=1e-5, rtol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("kind", MAKERS)
def test_tokens_stand_where_their_letters_are(opened, kind):
    for signals, text in zip(token_signals(opened[kind], SOURCES, TRANSLATIONS), TRANSLATIONS, strict=True):
        for token, (start, end) in zip(signals.tokens, signals.offsets, strict=True):
            letters = token.lstrip("▁Ġ")
            assert text[start:end] == letters or (not letters and end == start + 1)
        covered = {place for start, end in signals.offsets for place in range(start, end)}
        assert covered == {place for place, letter in enumerate(text) if letter != " "}


@pytest.mark.parametrize("kind", DROPOUT)
def test_dropout_is_that_of_the_whole_model_in_training(opened, kind):
    model = opened[kind]
    (found,) = token_signals(model, SOURCES[:1], TRANSLATIONS[:1], ["mcd-avg", "mcd-var"], passes=4, seed=7)
    forced = model.encode(SOURCES[0], TRANSLATIONS[0])
    batch = model.batch([forced])
    kept = [(m, m.layerdrop) for m in model.model.modules() if hasattr(m, "layerdrop")]
    for module, _ in kept:
        module.layerdrop = 0.0  # whole layers are never dropped
    model.model.train()
    torch.manual_seed(7)
    runs = []
    with torch.no_grad():
        for _ in range(4):
            asked = {"input_ids": batch.source, "attention_mask": batch.source_mask}
            asked |= {"decoder_input_ids": batch.inputs, "decoder_attention_mask": batch.mask}
            if not model.has_encoder:
                asked = {"input_ids": batch.inputs, "attention_mask": batch.mask}
            scores = model.model(**asked, use_cache=False).logits[batch.row, batch.column].double()
            runs.append(-scores.log_softmax(1).gather(1, batch.token[:, None])[:, 0].numpy())
    model.model.eval()
    for module, share in kept:
        module.layerdrop = share
    np.testing.assert_allclose(found.values["mcd-avg"], np.mean(runs, axis=0), atol=1e-5)
    np.testing.assert_allclose(found.values["mcd-var"], np.var(runs, axis=0), atol=1e-5)
    assert (found.values["mcd-var"] > 0).all()


@pytest.mark.parametrize("kind", MAKERS)
def test_blood_is_the_norm_of_a_tokens_own_jacobian(opened, kind):
    """With the same probes v, the mean of |J v|², where J comes from backward passes over one token."""
    model, probes = opened[kind], 2
    texts = SOURCES[1:], TRANSLATIONS[1:]
    batch = model.batch([model.encode(*pair) for pair in zip(*texts, strict=True)])
    with torch.no_grad(), model.traced() as trace:
        model.read(batch)
    with torch.no_grad():
        found = sharpness(model, batch, trace, probes, torch.Generator().manual_seed(3))
    draws = torch.Generator().manual_seed(3)
    for number, (layer, ((states, *others), kwargs)) in enumerate(
        zip(model.layers, trace.calls, strict=True)
    ):
        directions = [torch.randn(states.shape, generator=draws) for _ in range(probes)]
        for place in (0, len(batch.row) - 1):
            row, column = int(batch.row[place]), int(batch.column[place])

            def moved(own, row=row, column=column, states=states, others=others, kwargs=kwargs, layer=layer):
                changed = states.clone()
                changed[row, column] = own
                output = layer(changed, *others, **kwargs)
                return (output[0] if isinstance(output, tuple) else output)[row, column]

            jacobian = torch.autograd.functional.jacobian(moved, states[row, column])
            expected = np.mean([float((jacobian @ v[row, column]).square().sum()) for v in directions])
            assert float(found[place, number]) == pytest.approx(expected, rel=1e-4)


def test_the_mean_of_many_probes_is_the_squared_norm(opened):
    model = opened["marian"]
    batch = model.batch([model.encode(SOURCES[1], TRANSLATIONS[1])])
    with torch.no_grad(), model.traced() as trace:
        model.read(batch)
    with torch.no_grad():
        found = sharpness(model, batch, trace, 400, torch.Generator().manual_seed(0))
    (states, *others), kwargs = trace.calls[0]

    def moved(own):
        changed = states.clone()
        changed[0, 1] = own
        return model.layers[0](changed, *others, **kwargs)[0, 1]

    jacobian = torch.autograd.functional.jacobian(moved, states[0, 1])
    squared, spread = float(jacobian.square().sum()), float((jacobian.T @ jacobian).square().sum()) * 2
    # The variance of |J v|² for a normal v is twice the squared norm of JᵀJ; six standard errors.
    assert abs(float(found[1, 0]) - squared) < 6 * (spread / 400) ** 0.5


def test_the_model_is_left_as_it_was_even_after_an_error(opened, monkeypatch):
    model = opened["mbart"]
    model.model.train()
    model.layers[0].eval()  # a mode of its own
    modes = [module.training for module in model.model.modules()]
    attention = model.model.config._attn_implementation
    torch.manual_seed(1)
    state = torch.random.get_rng_state()

    def fails(*_, **__):
        raise RuntimeError("in the middle")

    try:
        token_signals(model, SOURCES, TRANSLATIONS, list(SIGNALS))
        assert [module.training for module in model.model.modules()] == modes
        monkeypatch.setattr(lens, "predicted", fails)
        with pytest.raises(RuntimeError, match="in the middle"):
            token_signals(model, SOURCES, TRANSLATIONS, ["mcd-var", "blood"])
        assert [module.training for module in model.model.modules()] == modes
        assert model.model.get_decoder().layerdrop == 0.5
        assert model.model.config._attn_implementation == attention
        assert torch.equal(torch.random.get_rng_state(), state)
    finally:
        model.model.eval()


def test_the_same_seed_gives_the_same_signals_in_any_order_of_calls(opened):
    names = ["mcd-var", "blood"]
    first, again, other = (
        token_signals(opened["t5"], SOURCES, TRANSLATIONS, names, seed=seed)[1].values for seed in (1, 1, 2)
    )
    for name in names:
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).any()


def test_batches_and_chunks_of_the_vocabulary_change_nothing(opened, monkeypatch):
    names = [name for name in WITHOUT_DROPOUT if name != "blood"]
    whole = token_signals(opened["nllb"], SOURCES, TRANSLATIONS, names)
    monkeypatch.setattr(lens, "_BYTES", 1)  # one row of logits at a time
    apart = token_signals(opened["nllb"], SOURCES, TRANSLATIONS, names, batch_tokens=1)
    for one, other in zip(whole, apart, strict=True):
        for name in names:
            np.testing.assert_allclose(one.values[name], other.values[name], atol=1e-5)


def test_an_empty_translation_has_no_tokens(opened):
    empty, full = token_signals(opened["marian"], SOURCES[:2], ["", TRANSLATIONS[1]], list(SIGNALS))
    assert empty.tokens == empty.offsets == []
    assert {name: len(values) for name, values in empty.values.items()} == dict.fromkeys(SIGNALS, 0)
    (alone,) = token_signals(opened["marian"], SOURCES[:1], [""], list(SIGNALS))
    assert alone.tokens == []
    assert len(full.tokens) > 3


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "t5"])  # which has no limit
def test_of_a_long_translation_the_beginning_is_read_as_the_whole_would_be(opened, kind, monkeypatch):
    """The model reads more than it is allowed to here, so that the whole is known."""
    model, names = opened[kind], [name for name in WITHOUT_DROPOUT if name != "blood"]
    (whole,) = token_signals(model, ["Katze"], TRANSLATIONS[:1], names)
    monkeypatch.setattr(type(model), "most", len(model.encode("Katze", TRANSLATIONS[0]).target) - 4)
    part, other = token_signals(model, ["Katze", "Katze"], [TRANSLATIONS[0], "cat"], names)
    assert other.stopped is None
    assert 0 < len(part.tokens) < len(whole.tokens)
    assert part.stopped == whole.offsets[len(part.tokens)][0]
    for name in names:
        np.testing.assert_allclose(part.values[name], whole.values[name][: len(part.tokens)], atol=1e-5)
    words = [(0, 3), (0, part.stopped), (0, part.stopped + 1), (part.stopped, len(TRANSLATIONS[0]))]
    for how in ("max", "mean", "sum"):
        found = part.on("surprisal", words, how)
        assert np.isnan(found).tolist() == [False, False, True, True]
        np.testing.assert_allclose(found[:2], whole.on("surprisal", words, how)[:2], atol=1e-5)


@pytest.mark.parametrize("kind", ["marian", "mbart", "gpt2"])
def test_of_a_long_source_nothing_is_said_and_others_do_not_suffer(opened, kind):
    sources, translations = [SOURCES[0], "Katze " * 80, SOURCES[1]], [*TRANSLATIONS[:2], TRANSLATIONS[1]]
    found = token_signals(opened[kind], sources, translations, WITHOUT_DROPOUT)
    assert [own.stopped for own in found] == [None, 0, None]
    assert found[1].tokens == found[1].offsets == []
    assert np.isnan(found[1].on("entropy", [(0, 1), (2, 4)])).all()
    alone = token_signals(opened[kind], sources[::2], translations[::2], ["surprisal"])
    for own, other in zip(found[::2], alone, strict=True):
        np.testing.assert_allclose(own.values["surprisal"], other.values["surprisal"], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mbart", {}, "say which two"),
        ("mbart", {"languages": ("de_DE", "xx_XX")}, "knows no language 'xx_XX'"),
        ("nllb", {"lp": "de-en"}, "say which two"),
        ("gpt2", {}, "needs a prompt"),
        ("gpt2", {"template": "English:"}, "{src}"),
    ],
)
def test_what_a_model_needs_is_said(folders, kind, options, message):
    with pytest.raises(InputError, match=message):
        open_translation_model(folders[kind], **options)


def test_what_cannot_be_opened_or_read_is_said(opened, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        open_translation_model(tmp_path / "nothing")
    with pytest.raises(InputError, match="no translation model"):
        open_translation_model(tmp_path)
    with pytest.raises(InputError, match="no dropout"):
        token_signals(opened["llama"], SOURCES, TRANSLATIONS, ["mcd-var"])
    with pytest.raises(InputError, match="2 sources for 1 translation"):
        token_signals(opened["marian"], SOURCES[:2], TRANSLATIONS[:1])


def test_fingerprints_tell_models_apart(opened, folders):
    assert opened["marian"].fingerprint() == open_translation_model(folders["marian"]).fingerprint()
    assert len({opened[kind].fingerprint() for kind in ("marian", "mbart", "nllb")}) == 3
    other = open_translation_model(folders["marian"])
    with torch.no_grad():
        for weights in other.model.parameters():
            weights.mul_(1.001)
    assert other.fingerprint() != opened["marian"].fingerprint()


def test_the_prompt_and_the_languages_reach_the_model(folders):
    model = open_translation_model(folders["gpt2"], lp="de-en", template="{source} {src} {target} ")
    read = model.tokenizer.decode(model.encode("Haus", "house").target)
    assert read == "de Haus en house"
    other = open_translation_model(folders["gpt2"], template=CAUSAL)
    one, two = (token_signals(m, ["Haus"], ["house"])[0].values["surprisal"] for m in (model, other))
    assert np.abs(one - two).max() > 1e-3


def test_a_model_can_be_told_other_languages(folders):
    model = open_translation_model(folders["mbart"], lp="de-en")
    other = model.told("en-de")
    backwards = open_translation_model(folders["mbart"], lp="en-de")
    assert model.is_told_languages
    assert other.encode("Haus", "house") == backwards.encode("Haus", "house")
    assert model.encode("Haus", "house") != other.encode("Haus", "house")  # each says its own, in any order
    assert not open_translation_model(folders["marian"]).is_told_languages
    prompted = open_translation_model(folders["gpt2"], lp="de-en", template="{source} {src} {target} ")
    assert prompted.is_told_languages
    read = prompted.tokenizer.decode(prompted.told("et-fi").encode("Haus", "house").target)
    assert read == "et Haus fi house"


@pytest.mark.parametrize("name", ["nonsense", "entropy:2", "ll-kl:x", "ll-kl:"])
def test_wrong_names_of_signals_are_refused(name):
    with pytest.raises(InputError):
        parse_signal(name)


def test_a_layer_is_chosen_by_its_number(opened):
    (found,) = token_signals(opened["marian"], SOURCES[:1], TRANSLATIONS[:1], ["ll-kl:1"])
    np.testing.assert_array_equal(found.of("ll-kl:1"), found.values["ll-kl"][:, 1])
    np.testing.assert_array_equal(found.of("ll-kl"), found.values["ll-kl"][:, 2])
    with pytest.raises(InputError, match="layers 0 to 2, found 3"):
        found.of("ll-kl:3")


def test_the_best_layer_is_the_one_with_the_highest_average_precision():
    rng = np.random.default_rng(0)
    wrong = rng.random(400) < 0.3
    values = rng.normal(size=(400, 4))
    values[:, 2] += wrong
    assert best_layer(values, wrong) == 2


def test_recorded_probabilities_need_no_model():
    found = recorded_signals("Die Häuser.", ["▁Die", "▁Hä", "user", "."], [-0.5, -1.0, -2.0, -0.25])
    assert found.offsets == [(0, 3), (4, 6), (6, 10), (10, 11)]
    words = [(0, 3), (4, 10), (10, 11)]
    assert found.on("surprisal", words, "sum").tolist() == [0.5, 3.0, 0.25]
    assert found.on("surprisal", words, "max").tolist() == [0.5, 2.0, 0.25]
    with pytest.raises(InputError, match="3 log-probabilities for 1 unit"):
        recorded_signals("a", "a", [-1, -1, -1])
    with pytest.raises(InputError, match="not a finite number"):
        recorded_signals("a", "a", [float("nan")])


@pytest.mark.parametrize(
    ("units", "logprobs", "message"),
    [
        ("a b", -0.5, "a list of numbers, found '-0.5'"),
        ("a b", ["x", "y"], "a list of numbers"),
        ("a b", [[-0.5], [-0.2]], "a list of numbers"),
        ("a b", [-0.5, None], "not a finite number"),
        (5, [-0.5], "a text or a list of texts, found '5'"),
        (["a", 5], [-0.5, -0.2], "a text or a list of texts"),
        ("a b", [-0.5], "1 log-probabilities for 2 units"),
    ],
)
def test_what_was_recorded_wrongly_is_said(units, logprobs, message):
    with pytest.raises(InputError, match=message):
        recorded_signals("a b", units, logprobs)
