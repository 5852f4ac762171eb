"""Test-time adaptation against algorithm 1 written down plainly: pass by pass, through the whole model."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural import noisy  # noqa: E402
from doubtless.neural.adapt import adapt, adapt_segments, using, with_systems  # noqa: E402
from doubtless.neural.adapt_plan import PARAMETERS, AdaptPlan  # noqa: E402
from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.encoder import batch_of  # noqa: E402
from doubtless.neural.model import Batch  # noqa: E402
from doubtless.neural.noisy import Segments, seed_of  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402

SEPARATE = {"inputs": "separate", "uses": "src+mt", "pooling": "mean", "layer_mix": "softmax"}
JOINT = {"inputs": "joint", "pooling": "cls", "layer_mix": "softmax"}
VARIANTS = {
    "separate": SEPARATE | {"mix_norm": True},
    "with references": SEPARATE | {"uses": "src+mt+ref"},
    "sparsemax": SEPARATE | {"layer_mix": "sparsemax"},
    "no layer dropout": SEPARATE | {"layer_dropout": 0.0},
    "no head dropout": SEPARATE | {"dropout": 0.0, "layer_dropout": 0.5},
    "joint": JOINT,
    "parts": JOINT | {"pooling": "parts"},
    "exits": JOINT | {"exits": "every", "heads": "each", "outputs": "score+error"},
    "quantiles": JOINT | {"outputs": "quantiles", "score_sd": 3.0},
}
PLAN = AdaptPlan(passes=3, k=4, lr=0.02, batch=5, seed=3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


def engine_of(encoder, *, double=False, **options):
    model = new_model(ModelConfig(encoder=str(encoder), **({"hidden_sizes": (12, 8)} | options)))
    with torch.no_grad():
        for mix in model.estimator.mixes:
            mix.weights.copy_(torch.linspace(-1, 1, len(mix.weights)) / 4)
    engine = torch_engine(model)
    if double:
        engine.stepper.estimator.double()
    return engine


def segments(n=13, seed=0):
    rng = np.random.default_rng(seed)
    src = [str(rng.choice(TEXTS)) for _ in range(n)]
    mt = [" ".join(rng.permutation(str(rng.choice(TEXTS)).split())) for _ in range(n)]
    return {"src": src, "mt": mt, "ref": src[::-1]}


def in_batches(texts, names, plan):
    """Rows sorted by their texts, shuffled by the seed and cut."""
    rows = list(zip(*(texts[name] for name in names), strict=True))
    order = np.array(sorted(range(len(rows)), key=rows.__getitem__))
    order = order[np.random.default_rng(plan.seed).permutation(len(rows))]
    return [order[i : i + plan.batch] for i in range(0, len(order), plan.batch)]


def learnt(estimator, parameters):
    found = []
    if "layer-mix" in parameters:
        found += [estimator.mixes[-1].weights, estimator.mixes[-1].gamma]
    if "layernorm" in parameters:
        norms = [m for m in estimator.encoder.modules() if isinstance(m, torch.nn.LayerNorm)]
        found += [weight for norm in norms for weight in (norm.weight, norm.bias)]
    if "estimator" in parameters:
        found += list(estimator.heads[-1].parameters())
    return found


def whole_batch(engine, texts, names, rows):
    tokens = engine.tokens
    made = [[tokens.encode([texts[name][i]])[0] for i in rows] for name in names]
    if engine.config.inputs == "joint":
        sequences = [tokens.join(list(row)).ids for row in zip(*made, strict=True)]
        index = {"joint": torch.arange(len(rows))}
    else:
        sequences = [text.ids for texts_of_name in made for text in texts_of_name]
        index = {name: j * len(rows) + torch.arange(len(rows)) for j, name in enumerate(names)}
    return Batch(*batch_of(sequences, tokens.padding), index)


class PlainAdam:
    """Adam as Kingma & Ba write it, with the constants of the paper."""

    def __init__(self, weights, lr):
        self.weights, self.lr, self.t = weights, lr, 0
        self.m = [torch.zeros_like(w) for w in weights]
        self.v = [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step(self, gradients):
        self.t += 1
        for i, (weight, g) in enumerate(zip(self.weights, gradients, strict=True)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.99 * self.v[i] + 0.01 * g * g
            m, v = self.m[i] / (1 - 0.9**self.t), self.v[i] / (1 - 0.99**self.t)
            weight -= self.lr * m / (v.sqrt() + 1e-8)


def naive(engine, texts, plan):
    """Algorithm 1 with whole passes through the model in training mode, one after another."""
    estimator = deepcopy(engine.stepper.estimator)
    names = engine.config.texts
    weights = learnt(estimator, plan.parameters)
    adam = PlainAdam(weights, plan.lr)
    for epoch in range(1, plan.passes + 1):
        for number, rows in enumerate(in_batches(texts, names, plan)):
            scores = passes(estimator, whole_batch(engine, texts, names, rows), plan, epoch, number)
            mean = scores.mean(dim=0)
            uncertainty = ((scores - mean) ** 2).mean(dim=0).sqrt()
            adam.step(torch.autograd.grad(uncertainty.mean(), weights))
    return weights


def passes(estimator, batch, plan, epoch, number):
    """Scores of K passes; dropout of the encoder, if it is on, is that of its own seed in every epoch."""
    estimator.train()
    estimator.encoder.train(plan.dropout == "all")
    torch.manual_seed(seed_of(plan.seed, 1 << 31, 0))
    states = [estimator.advance(estimator.start(batch), estimator.exits[-1]) for _ in range(plan.k)]
    torch.manual_seed(seed_of(plan.seed, epoch, number))
    return torch.stack([estimator.read(state)["score"] for state in states])


def same_weights(engine, found, plan):
    own = deepcopy(engine.stepper.estimator)
    with torch.no_grad():
        for name, weight in own.named_parameters():
            if name in found.values:
                weight.copy_(found.values[name])
    return learnt(own, plan.parameters)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_passes_at_once_equal_passes_one_after_another(encoder, variant):
    engine, texts = engine_of(encoder, double=True, **VARIANTS[variant]), segments()
    expected = naive(engine, texts, PLAN)
    found = adapt(engine, texts, PLAN)
    start = learnt(engine.stepper.estimator, PLAN.parameters)
    for ours, theirs, before in zip(same_weights(engine, found, PLAN), expected, start, strict=True):
        assert (theirs - before).abs().max() > 1e-3  # it did learn
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "parameters", [("estimator",), ("layernorm",), ("layer-mix", "layernorm", "estimator")]
)
@pytest.mark.parametrize("variant", ["with references", "joint"])
def test_other_parameters_are_adapted_as_plainly(encoder, variant, parameters):
    engine, texts = engine_of(encoder, double=True, **VARIANTS[variant]), segments()
    plan = AdaptPlan(passes=2, k=3, lr=0.01, parameters=parameters, batch=6)
    found = adapt(engine, texts, plan)
    for ours, theirs in zip(same_weights(engine, found, plan), naive(engine, texts, plan), strict=True):
        # Adam divides by the size of the gradient: where that is hardly above zero, rounding shows.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


def test_the_encoders_own_dropout_can_be_part_of_the_passes(encoder):
    engine = engine_of(encoder, double=True, **JOINT)
    texts = {name: [" ".join([text] * 2) for text in values] for name, values in segments(6).items()}
    # One batch, sorted as the encoder meets it, so that the plain version draws the same numbers.
    names = engine.config.texts
    plan = AdaptPlan(passes=3, k=4, lr=0.02, batch=6, dropout="all")
    sequences, _ = noisy._sequences(engine, {n: sorted_by_text(texts, names)[n] for n in names})
    sizes = np.array([len(sequence) for sequence in sequences])
    chosen = next(iter(noisy.token_batches(sizes, engine.batch_tokens)))
    assert len(chosen) == len(sequences) == 6

    estimator = deepcopy(engine.stepper.estimator)
    weights = learnt(estimator, plan.parameters)
    adam = PlainAdam(weights, plan.lr)
    ids, mask = batch_of([sequences[i] for i in chosen], engine.tokens.padding)
    place = np.argsort(chosen)  # of each sorted row among the encoder's
    (rows,) = in_batches(sorted_by_text(texts, names), names, plan)
    batch = Batch(ids, mask, {"joint": torch.from_numpy(place[rows])})
    for epoch in (1, 2, 3):
        scores = passes(estimator, batch, plan, epoch, 0)
        adam.step(torch.autograd.grad(scores.std(dim=0, correction=0).mean(), weights))
    found = adapt(engine, texts, plan)
    for ours, theirs in zip(same_weights(engine, found, plan), weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert not engine.stepper.estimator.encoder.training


def sorted_by_text(texts, names):
    rows = sorted(zip(*(texts[name] for name in names), strict=True))
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def test_uncertainty_is_the_spread_of_plain_passes_and_falls(encoder):
    engine, texts = engine_of(encoder, double=True, **SEPARATE), segments(20)
    plan = AdaptPlan(passes=5, k=8, lr=0.01, batch=20)
    found = adapt(engine, texts, plan)
    (rows,) = in_batches(texts, engine.config.texts, plan)
    estimator = deepcopy(engine.stepper.estimator)
    batch = whole_batch(engine, texts, engine.config.texts, rows)
    with torch.no_grad():
        expected = passes(estimator, batch, plan, 0, 0).numpy().std(axis=0)
    np.testing.assert_allclose(found.before[rows], expected, atol=1e-10)
    assert found.after.mean() < found.before.mean()


def test_the_model_is_left_as_it_was_and_scores_differ_only_inside(encoder):
    engine, texts = engine_of(encoder, **SEPARATE), segments()
    plain = engine.score(texts).score
    found = adapt(engine, texts, PLAN)
    np.testing.assert_array_equal(engine.score(texts).score, plain)
    with using(engine, found):
        inside = engine.score(texts).score
        np.testing.assert_allclose(Segments.of(engine, texts, PLAN).outputs()["score"], inside, atol=1e-6)
    assert np.abs(inside - plain).max() > 1e-3
    np.testing.assert_array_equal(engine.score(texts).score, plain)
    np.testing.assert_allclose(Segments.of(engine, texts, PLAN).outputs()["score"], plain, atol=1e-6)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_an_error_or_ctrl_c_leaves_nothing_behind(encoder, monkeypatch, error, parameters):
    engine, texts = engine_of(encoder, **SEPARATE), segments()
    estimator = engine.stepper.estimator
    weights = {name: value.clone() for name, value in estimator.state_dict().items()}
    learns = {name: weight.requires_grad for name, weight in estimator.named_parameters()}
    random = torch.get_rng_state()
    plain, calls = Segments.drawn, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 3 + len(self.batches(PLAN)):  # some steps after measuring
            raise error
        return plain(self, *arguments)

    monkeypatch.setattr(Segments, "drawn", interrupted)
    with pytest.raises(error):
        adapt(engine, texts, AdaptPlan(passes=3, k=4, lr=0.02, batch=5, parameters=(parameters,)))

    def broken():
        raise error

    monkeypatch.undo()
    found = adapt(engine, texts, PLAN)
    with pytest.raises(error), using(engine, found):
        broken()
    assert all(torch.equal(value, weights[name]) for name, value in estimator.state_dict().items())
    assert {name: weight.requires_grad for name, weight in estimator.named_parameters()} == learns
    assert all(weight.grad is None for weight in estimator.parameters())
    assert not any(module.training for module in estimator.modules())
    assert torch.equal(torch.get_rng_state(), random)


def test_the_order_of_segments_does_not_matter(encoder):
    engine, texts = engine_of(encoder, **VARIANTS["with references"]), segments(17)
    order = np.random.default_rng(5).permutation(17)
    turned = {name: [values[i] for i in order] for name, values in texts.items()}
    one, other = adapt(engine, texts, PLAN), adapt(engine, turned, PLAN)
    assert all(torch.equal(one.values[name], other.values[name]) for name in one.values)
    np.testing.assert_array_equal(one.before[order], other.before)
    np.testing.assert_array_equal(one.after[order], other.after)


def test_systems_do_not_see_each_other(encoder):
    engine = engine_of(encoder, **SEPARATE)
    first, second = segments(9, seed=1), segments(8, seed=2)
    alone = adapt(engine, second, PLAN)
    adapt(engine, first, PLAN)
    again = adapt(engine, second, PLAN)
    assert all(torch.equal(alone.values[name], again.values[name]) for name in alone.values)
    # Rows of both, mixed; a third system stays as it is.
    third = segments(4, seed=3)
    systems = np.random.default_rng(0).permutation([0] * 9 + [1] * 8 + [2] * 4)
    rows = [np.flatnonzero(systems == number) for number in range(3)]
    texts = {name: [""] * len(systems) for name in ("src", "mt")}
    for part, places in zip((first, second, third), rows, strict=True):
        for name, values in texts.items():
            for place, text in zip(places, part[name], strict=True):
                values[place] = text
    together = with_systems(
        engine, [(rows[0], adapt(engine, first, PLAN)), (rows[1], alone), (rows[2], None)]
    ).score(texts)
    with using(engine, alone):
        np.testing.assert_array_equal(together.score[rows[1]], engine.score(second).score)
    np.testing.assert_array_equal(together.score[rows[2]], engine.score(third).score)


def test_states_that_are_shared_by_systems_give_the_same_adaptation(encoder):
    engine, texts = engine_of(encoder, double=True, **SEPARATE), segments(20)
    chosen = np.array([3, 4, 9, 11, 12, 17, 19])
    part = Segments.of(engine, texts, PLAN).take(chosen)
    own = adapt(engine, {name: [values[i] for i in chosen] for name, values in texts.items()}, PLAN)
    shared = adapt_segments(part, PLAN)
    for name, value in own.values.items():
        torch.testing.assert_close(shared.values[name], value, rtol=0, atol=1e-9)


def test_states_too_large_for_memory_lie_in_a_file(encoder, monkeypatch):
    engine, texts = engine_of(encoder, **SEPARATE), segments()
    expected = adapt(engine, texts, PLAN)
    monkeypatch.setattr(noisy, "_IN_MEMORY", 0)
    assert isinstance(Segments.of(engine, texts, PLAN).states, np.memmap)
    found = adapt(engine, texts, PLAN)
    assert all(torch.equal(found.values[name], expected.values[name]) for name in expected.values)


@pytest.mark.parametrize(
    ("options", "plan", "sentence"),
    [
        ({"inputs": "joint"}, {}, "the model has no layer mix"),
        (SEPARATE | {"dropout": 0.0, "layer_dropout": 0.0}, {}, "the model has no dropout"),
        (JOINT | {"outputs": "error"}, {}, "a model that gives error has no score"),
        (JOINT | {"uses": "src+mt+ref"}, {}, "reads a segment in three ways"),
        (SEPARATE, {"passes": 0}, "passes of an adaptation is at least 1"),
        (SEPARATE, {"k": 1}, "k of an adaptation is at least 2"),
        (SEPARATE, {"lr": 0.0}, "lr of an adaptation lies between 0 and 1"),
        (SEPARATE, {"parameters": ("encoder",)}, "parameters are some of layer-mix"),
        (SEPARATE, {"dropout": "none"}, "dropout is head or all"),
        (SEPARATE, {"dropout": "all", "parameters": ("layernorm",)}, "whose own dropout stays off"),
    ],
)
def test_what_cannot_be_adapted_is_said_in_one_sentence(encoder, options, plan, sentence):
    engine = engine_of(encoder, **options)
    with pytest.raises(InputError, match=sentence):
        adapt(engine, segments(), AdaptPlan(**plan))


def test_half_precision_other_runtimes_and_missing_texts_are_refused(encoder):
    model = new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(12, 8), **SEPARATE))
    with pytest.raises(InputError, match="half precision"):
        adapt(torch_engine(model, dtype="bfloat16"), segments())
    engine = engine_of(encoder, **SEPARATE)
    with pytest.raises(InputError, match="only the runtime 'torch'"):
        adapt(replace(engine, stepper=object()), segments())
    with pytest.raises(InputError, match="the model needs 'src'"):
        adapt(engine, {"mt": ["a"]})
    with pytest.raises(InputError, match="nothing to adapt to"):
        adapt(engine, {"mt": [], "src": []})


@given(
    st.builds(
        AdaptPlan,
        passes=st.integers(1, 9),
        k=st.integers(2, 99),
        lr=st.floats(1e-6, 0.5),
        parameters=st.lists(st.sampled_from(PARAMETERS), min_size=1, max_size=3, unique=True).map(tuple),
        batch=st.integers(1, 99),
        seed=st.integers(0, 9),
    )
)
def test_a_plan_is_read_as_it_is_written(plan):
    assert AdaptPlan.parse(str(plan), plan.seed) == plan


@pytest.mark.parametrize("text", ["passes", "passes=few", "speed=3", "passes=1;k=2"])
def test_a_plan_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="adaptation is"):
        AdaptPlan.parse(text)
