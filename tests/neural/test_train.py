"""Training on a tiny encoder: it learns, it can be interrupted, and every option does what it says."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.torch import load_file  # noqa: E402
from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import DoubtlessError, InputError  # noqa: E402
from doubtless.metaeval.correlation import pearson  # noqa: E402
from doubtless.neural import corpus, data, optimise  # noqa: E402
from doubtless.neural.cache import cached_states  # noqa: E402
from doubtless.neural.checkpoint import load, new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.model import Batch  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402
from doubtless.neural.schedule import TrainingConfig, plan_of, rate_factor, read_plan  # noqa: E402
from doubtless.neural.train import _set_up, _step, train  # noqa: E402
from doubtless.segments import as_table  # noqa: E402

WORDS = sorted({word for text in TEXTS for word in text.split()})
QUICK = {
    "learning_rate": 3e-3,
    "encoder_learning_rate": 2e-3,
    "batch_size": 32,
    "frozen_epochs": 0,
    "threads": 1,
}
SMALL = {"encoder": "encoder", "hidden_sizes": [32, 16], "pooling": "mean"}


def segments(count, seed=0):
    """Translations in which some words became 'Katze'; the human score is the share that did not."""
    drawn = random.Random(seed)
    rows = []
    for _ in range(count):
        words = [drawn.choice(WORDS) for _ in range(drawn.randint(3, 8))]
        chance = drawn.random()
        tags = ["BAD" if drawn.random() < chance else "OK" for _ in words]
        mt = ["Katze" if tag == "BAD" else word for word, tag in zip(words, tags, strict=True)]
        human = tags.count("OK") / len(tags)
        rows.append(
            {
                "lp": drawn.choice(["en-de", "de-en"]),
                "src": " ".join(words),
                "mt": " ".join(mt),
                "ref": " ".join(words).upper(),
                "human": human,
                "score": human + 0.1 + drawn.random() * human,
                "mt_tags": " ".join(tags),
            }
        )
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("training")
    write_encoder(path / "encoder")
    segments(320).write_parquet(path / "train.parquet")
    segments(80, seed=1).write_parquet(path / "dev.parquet")
    return path


def content(output, model=None, given=None, **training):
    return {
        "model": {**SMALL, **(model or {})},
        "data": {"train": "train.parquet", "dev": "dev.parquet", **(given or {})},
        "training": {"output": str(output), **QUICK, **training},
    }


def make(folder, output, model=None, given=None, **training):
    return plan_of(content(output, model, given, **training), folder)


def lines(output):
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def weights(output):
    return load_file(output / "model" / "model.safetensors")


def assert_same(one, other):
    assert set(one) == set(other)
    for name in one:
        assert torch.equal(one[name], other[name]), name


# Learning


def test_a_model_learns_what_is_in_the_data(folder, tmp_path):
    model = {"outputs": "score+error", "exits": "every"}
    result = train(make(folder, tmp_path / "run", model, epochs=6, log_every=5, standardise=True))
    losses = [line["loss"] for line in lines(tmp_path / "run")]
    assert losses[-1] < 0.7 * losses[0]
    assert result.figures["pearson"] > 0.5
    assert len(result.figures["pearson_by_exit"]) == 3
    # The saved model says the same, on the scale of the humans.
    saved = load(result.model)
    frame = segments(80, seed=1)
    rows = data.rows_of(frame, saved.config, saved.tokens)
    layout = data.lay_out(rows, saved.config, saved.tokens)
    batch = data.assemble(rows, layout, np.arange(80), saved.tokens.padding)
    with torch.no_grad():
        outputs, _ = saved.estimator(batch.start)
    score = outputs["score"][-1].numpy()
    assert pearson(score, frame["human"]) == pytest.approx(result.figures["pearson"], abs=1e-5)
    assert np.abs(score - frame["human"].to_numpy()).mean() == pytest.approx(result.figures["mae"], abs=1e-5)
    assert "Trained on 320 rows of train.parquet" in saved.card
    assert saved.config.encoder == "encoder"


VARIANTS = {
    "score": {},
    "separate": {"inputs": "separate", "uses": "src+mt+ref", "layer_mix": "softmax"},
    "instant": {"outputs": "score+error"},
    "exits": {"outputs": "score+error", "exits": "every", "error_target": "last", "layer_mix": "sparsemax"},
    "heads": {"exits": "every", "heads": "each", "first_exit": 0},
    "heteroscedastic": {"outputs": "mean+variance"},
    "quantiles": {"outputs": "quantiles"},
    "error": {"outputs": "error", "bottleneck": 8},
    "three passes": {"uses": "src+mt+ref"},
    "tags": {"word_tags": ["OK", "BAD"]},
    "partial": {"partial": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_trains(folder, tmp_path, variant):
    plan = make(folder, tmp_path / "run", VARIANTS[variant], epochs=4, max_steps=30, log_every=1)
    result = train(plan)
    assert result.steps == 30
    losses = [line["loss"] for line in lines(tmp_path / "run")]
    assert len(losses) == 30
    assert np.mean(losses[-6:]) < np.mean(losses[:6])
    assert load(result.model).config.outputs == plan.model.outputs
    if variant == "tags":
        assert result.figures["tags_mcc"] > 0.2


def test_half_precision_trains(folder, tmp_path):
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    try:
        result = train(make(folder, tmp_path / "run", epochs=1, max_steps=3, precision="bf16"))
        assert np.isfinite(result.figures["loss"])
        with pytest.raises(DoubtlessError, match="precision no cannot be had"):
            train(make(folder, tmp_path / "other", epochs=1, max_steps=3))
    finally:
        AcceleratorState._reset_state()


def test_an_error_model_learns_the_distance_of_the_other_score(folder):
    plan = make(folder, "run", {"outputs": "error"})
    frame = corpus.segments_of(as_table(segments(20)), plan)
    tokens = new_model(plan.resolved_model).tokens
    rows = data.rows_of(frame, plan.model, tokens)
    np.testing.assert_allclose(rows.target, np.abs(frame["score"] - frame["human"]))
    np.testing.assert_allclose(rows.scaled(0.5, 2.0).target, rows.target / 2)


# Reproducibility


def test_the_seed_decides_everything(folder, tmp_path):
    def run(name, seed):
        train(make(folder, tmp_path / name, epochs=1, seed=seed, given={"dev": []}))
        return weights(tmp_path / name)

    first = run("a", 1)
    assert_same(first, run("b", 1))
    other = run("c", 2)
    assert not torch.equal(first["heads.0.layers.0.weight"], other["heads.0.layers.0.weight"])


KILLED = """
import json, os, signal, sys
from pathlib import Path
from doubtless.neural.schedule import plan_of
from doubtless.neural.train import train

steps = 0
def watch(stage, share):
    global steps
    steps += stage == "training"
    if steps == 8:
        os.kill(os.getpid(), signal.SIGKILL)
train(plan_of(json.loads(sys.argv[2]), Path(sys.argv[1])), watch=watch)
"""


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({"outputs": "score+error", "layer_mix": "softmax"}, {"frozen_epochs": 0.6, "warmup_steps": 4}),
        ({"exits": "every"}, {"freeze": 1, "cache_states": True, "gradient_accumulation": 2}),
    ],
    ids=["plain", "cached"],
)
def test_a_killed_run_resumes_exactly(folder, tmp_path, model, training):
    training = {"epochs": 3, "batch_tokens": 700, "checkpoint_every": 3, "validate_every": 4, **training}

    def settings(name):
        made = content(tmp_path / name, model, **training)
        del made["training"]["batch_size"]
        return made

    train(plan_of(settings("whole"), folder))
    command = [sys.executable, "-c", KILLED, str(folder), json.dumps(settings("killed"))]
    assert subprocess.run(command, capture_output=True).returncode == -9
    assert not (tmp_path / "killed" / "model").exists()
    said = []
    train(plan_of(settings("killed"), folder), say=said.append)
    assert "resumed from step 6" in said[-1]
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    final = [optimise.last_point(tmp_path / name / "checkpoints") for name in ("whole", "killed")]
    assert final[0].name == final[1].name
    assert_same(*(load_file(point / "model.safetensors") for point in final))
    told = [[{**line, "seconds": 0} for line in lines(tmp_path / name)] for name in ("whole", "killed")]
    assert told[0] == told[1]


def test_prefix_training_resumes_exactly_and_can_be_made_longer(folder, tmp_path):
    model = {"partial": True}
    train(make(folder, tmp_path / "whole", model, epochs=2))
    train(make(folder, tmp_path / "parts", model, epochs=2, max_steps=7))
    train(make(folder, tmp_path / "parts", model, epochs=2))
    points = [tmp_path / name / "checkpoints" / "step-20" for name in ("whole", "parts")]
    assert_same(*(load_file(point / "model.safetensors") for point in points))


def test_a_run_with_other_settings_is_not_resumed(folder, tmp_path):
    train(make(folder, tmp_path / "run", max_steps=2))
    with pytest.raises(DoubtlessError, match=r"made with another learning_rate \(--fresh starts over\)"):
        train(make(folder, tmp_path / "run", max_steps=2, learning_rate=0.1))
    with pytest.raises(DoubtlessError, match="made with another training rows"):
        train(make(folder, tmp_path / "run", given={"where": "lp = 'en-de'"}, max_steps=2))
    result = train(make(folder, tmp_path / "run", max_steps=3, learning_rate=0.1), fresh=True)
    assert result.steps == 3
    assert [line["step"] for line in lines(tmp_path / "run")] == [3]


def test_only_two_checkpoints_are_kept(folder, tmp_path):
    train(make(folder, tmp_path / "run", max_steps=7, checkpoint_every=2, validate_every=2))
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert [name for name in kept if name.startswith("step")] == ["step-6", "step-7"]
    assert len(kept) == 3  # and the best weights


# What learns, and how fast


def changed(folder, output, **options):
    """Names of the weights that training changed."""
    plan = make(folder, output, **options)
    before = new_model(plan.resolved_model, plan.training.seed).estimator.state_dict()
    result = train(plan)
    after = load(result.model).estimator.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_the_frozen_warm_up_freezes_the_encoder_and_ends(folder, tmp_path):
    names = changed(folder, tmp_path / "cold", max_steps=5, frozen_epochs=0.5)
    assert names
    assert all(name.startswith("heads") for name in names)
    names = changed(folder, tmp_path / "warm", max_steps=6, frozen_epochs=0.5)
    assert any("layer.0" in name for name in names)
    assert not any("embeddings" in name for name in names)
    names = changed(folder, tmp_path / "all", max_steps=1, freeze_embeddings=False)
    assert any("embeddings" in name for name in names)


def test_frozen_layers_stay_as_they_are_and_lose_their_dropout(folder, tmp_path):
    names = changed(folder, tmp_path / "run", max_steps=2, freeze=2)
    assert any("layer.2" in name for name in names)
    assert not any("layer.0" in name or "layer.1" in name or "embeddings" in name for name in names)
    estimator = new_model(make(folder, "run").resolved_model).estimator
    optimise.set_learning(estimator, TrainingConfig(freeze=2), encoder_rests=False)
    layers = estimator.encoder.layers
    assert [layer.attention.self.dropout.training for layer in layers] == [False, False, True]
    assert not estimator.encoder.model.embeddings.dropout.training


def test_each_layer_has_its_learning_rate(folder):
    estimator = new_model(make(folder, "run").resolved_model).estimator
    training = TrainingConfig(learning_rate=1.0, encoder_learning_rate=0.5, layerwise_decay=0.5)
    groups = optimise.parameter_groups(estimator, replace(training, freeze_embeddings=False))
    assert [(group["layer"], group["lr"]) for group in groups] == [
        (4, 1.0),
        (3, 0.5),
        (2, 0.25),
        (1, 0.125),
        (0, 0.0625),
    ]
    sizes = [sum(weight.numel() for weight in group["params"]) for group in groups]
    assert sum(sizes) == sum(weight.numel() for weight in estimator.parameters())
    assert sizes[1] == sizes[2] == sizes[3]
    assert [
        group["layer"] for group in optimise.parameter_groups(estimator, replace(training, freeze=1))
    ] == [
        4,
        3,
        2,
    ]


def test_early_exits_send_a_share_of_their_gradient_into_the_encoder(folder):
    plan = make(folder, "run", {"exits": "every", "heads": "each", "inputs": "joint", "uses": "src+mt"})
    made = new_model(plan.resolved_model)
    estimator = made.estimator.eval()
    rows = data.rows_of(corpus.segments_of(as_table(segments(8)), plan), plan.model, made.tokens)
    layout = data.lay_out(rows, plan.model, made.tokens)
    batch = data.assemble(rows, layout, np.arange(8), made.tokens.padding).start

    def gradients(share, exits):
        estimator.zero_grad()
        found, _ = estimator.read_exits(estimator.start(batch), early_gradient=share)
        (found["score"][exits] ** 2).sum().backward()
        parts = {"encoder": estimator.encoder, "heads": estimator.heads}
        return {
            name: torch.cat([p.grad.flatten().clone() for p in part.parameters() if p.grad is not None])
            for name, part in parts.items()
        }

    none, some, all_of_it = (gradients(share, slice(None)) for share in (0.0, 0.25, 1.0))
    alone = gradients(1.0, slice(-1, None))
    torch.testing.assert_close(none["encoder"], alone["encoder"])
    torch.testing.assert_close(some["encoder"], 0.75 * none["encoder"] + 0.25 * all_of_it["encoder"])
    assert (none["encoder"] - all_of_it["encoder"]).abs().max() > 1e-3
    for other in (none, some):
        torch.testing.assert_close(other["heads"], all_of_it["heads"])


def test_rates_rise_and_fall():
    training = TrainingConfig(warmup_steps=10, epochs=4, decay="linear")
    assert rate_factor(training, 4, 0.0) == 0.5
    assert rate_factor(training, 99, 3.0) == 0.25
    assert rate_factor(replace(training, max_steps=100), 90, 0.1) == pytest.approx(0.1)
    assert rate_factor(TrainingConfig(), 0, 0.0) == 1


def test_accumulated_batches_are_one_step(folder, tmp_path, monkeypatch):
    # Adam makes steps of one size from gradients of any, also from those that are nothing but rounding.
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, weight_decay: torch.optim.SGD(groups))
    rates, found = {"learning_rate": 0.1, "encoder_learning_rate": 0.1}, []
    for name, cuts in (("one", [[0, 1, 2, 3, 4]]), ("two", [[0, 1, 2], [3, 4]])):
        run = _set_up(
            make(folder, tmp_path / name, {"dropout": 0.0}, freeze=3, **rates), print, lambda *_: None
        )
        _step(run, run.whole, [np.array(cut) for cut in cuts], 0, 0.0)
        found.append({k: v.clone() for k, v in run.model.estimator.state_dict().items()})
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], atol=1e-6, rtol=1e-5)


def test_a_loss_that_is_no_number_ends_the_run(folder, tmp_path):
    with pytest.raises(DoubtlessError, match="the loss of step 2 is not a number"):
        train(make(folder, tmp_path / "run", learning_rate=1e30, clip=0))


def test_training_stops_when_nothing_gets_better(folder, tmp_path):
    options = {"epochs": 50, "validate_every": 1, "patience": 3, "metric": "mae"}
    result = train(make(folder, tmp_path / "run", learning_rate=0.0, encoder_learning_rate=0.0, **options))
    assert result.stopped_early
    assert (result.steps, result.best_step) == (4, 1)


def test_the_best_weights_are_saved_not_the_last(folder, tmp_path, monkeypatch):
    figures = iter([0.1, 0.5, 0.2])
    monkeypatch.setattr("doubtless.neural.train.evaluate", lambda run: {"pearson": next(figures)})
    options = {"max_steps": 9, "validate_every": 3, "checkpoint_every": 3, "freeze_embeddings": False}
    result = train(make(folder, tmp_path / "run", **options))
    assert (result.best, result.best_step, result.steps) == (0.5, 6, 9)
    assert_same(weights(tmp_path / "run"), load_file(tmp_path / "run/checkpoints/step-6/model.safetensors"))


# Cached states


@pytest.mark.parametrize(
    "model",
    [
        {"exits": "every", "outputs": "score+error", "layer_mix": "softmax", "mix_norm": True},
        {"inputs": "separate", "pooling": "cls"},
        {"word_tags": ["OK", "BAD"], "word_layer": 2},
        {"pooling": "parts", "exits": "every", "outputs": "score+error+change"},
    ],
    ids=["exits", "separate", "tags", "parts"],
)
def test_cached_states_are_those_of_the_encoder(folder, tmp_path, model):
    plan = make(folder, "run", model)
    made = new_model(plan.resolved_model)
    estimator = made.estimator.eval()
    rows = data.rows_of(corpus.segments_of(as_table(segments(30)), plan), plan.model, made.tokens)
    layout = data.lay_out(rows, plan.model, made.tokens)
    for layer in (1, 2, 3):
        if layer == 3 and plan.model.word_tags:
            continue
        said = []
        for _ in range(2):
            arguments = (layout.sequences, made.tokens.padding, layer, tmp_path, "weights")
            states = cached_states(estimator, *arguments, said.append)
        assert len(said) == 1  # the second time they are read
        assert (states.hidden is None) == (layer == 3)
        index = np.array([4, 0, 17])
        both = [data.assemble(rows, layout, index, made.tokens.padding, kept) for kept in (None, states)]
        assert isinstance(both[0].start, Batch)
        with torch.no_grad():
            fresh, end = estimator.read_exits(estimator.start(both[0].start))
            cached, other = estimator.read_exits(both[1].start)
        for name in fresh:
            torch.testing.assert_close(fresh[name], cached[name], atol=4e-3, rtol=4e-3)
        if plan.model.word_tags:
            real = end.mask[end.rows["joint"]]
            both_words = [estimator.read_words(state).detach()[real] for state in (end, other)]
            torch.testing.assert_close(*both_words, atol=4e-3, rtol=4e-3)


@pytest.mark.parametrize("freeze", [1, 3])
def test_training_from_cached_states_is_training(folder, tmp_path, freeze):
    model = {"exits": "every", "layer_mix": "softmax"}
    results = []
    for name, cached in (("plain", False), ("cached", True)):
        options = {"epochs": 1, "freeze": freeze, "cache_states": cached}
        results.append(train(make(folder, tmp_path / name, model, **options)))
    assert results[0].figures["loss"] == pytest.approx(results[1].figures["loss"], rel=2e-2)
    plain, cached = weights(tmp_path / "plain"), weights(tmp_path / "cached")
    for name, value in plain.items():
        torch.testing.assert_close(value, cached[name], atol=5e-3, rtol=5e-2)


def test_states_of_prefixes_that_change_are_not_cached(folder, tmp_path):
    with pytest.raises(InputError, match="give the rows a column 'unfinished' that says"):
        train(make(folder, tmp_path / "run", {"partial": True}, freeze=1, cache_states=True))


def test_states_of_rows_that_are_said_to_be_unfinished_are_cached(folder, tmp_path):
    marks = {"all": pl.lit(True), "none": pl.lit(False)}
    for name, mark in marks.items():
        rows = pl.read_parquet(folder / "train.parquet").with_columns(unfinished=mark)
        rows.write_parquet(folder / f"{name}.parquet")
    found = {}
    for name, cached in (("all", False), ("all", True), ("none", True)):
        options = {"epochs": 1, "freeze": 1, "cache_states": cached}
        output = tmp_path / f"{name}-{cached}"
        train(make(folder, output, {"partial": True}, given={"train": f"{name}.parquet"}, **options))
        found[name, cached] = weights(output)
    for name, value in found["all", False].items():
        torch.testing.assert_close(value, found["all", True][name], atol=5e-3, rtol=5e-2)
    # Unless the mark of unfinished translations was read, these would be one run.
    assert any(
        not torch.equal(value, found["none", True][name]) for name, value in found["all", True].items()
    )


# Batches, prefixes, tags


@pytest.fixture(scope="module")
def tokenized(folder):
    plan = make(folder, "run", {"partial": True}, fertility={"en-de": 1.2, "de-en": 0.8})
    tokens = new_model(plan.resolved_model).tokens
    rows = data.rows_of(corpus.segments_of(as_table(segments(300)), plan), plan.model, tokens)
    return plan, tokens, rows, data.lay_out(rows, plan.model, tokens)


@pytest.mark.parametrize(("size", "budget"), [(16, None), (None, 400)])
def test_batches_hold_every_row_once_in_an_order_of_seed_and_epoch(tokenized, size, budget):
    layout = tokenized[3]
    found = data.batches(layout, 1, 0, size, budget)
    assert sorted(np.concatenate(found)) == list(range(300))
    again, next_epoch = data.batches(layout, 1, 0, size, budget), data.batches(layout, 1, 1, size, budget)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    assert {tuple(sorted(batch)) for batch in found} != {tuple(sorted(batch)) for batch in next_epoch}
    padded = [len(batch) * layout.lengths[batch].max() for batch in found]
    assert max(len(batch) for batch in found) <= (size or 300)
    assert max(padded) <= (budget or np.inf)
    assert sum(padded) < 1.15 * layout.lengths.sum()  # of similar length: little padding


def test_every_process_has_as_many_batches():
    groups = data.grouped([np.array([i]) for i in range(7)], accumulation=2, processes=2)
    assert [[int(i) for i in np.concatenate(group)] for group in groups] == [[0, 1, 2, 3], [4, 5, 6, 0]]


def test_prefixes_are_shares_of_the_source_times_fertility(tokenized):
    plan, tokens, rows, whole = tokenized
    shares = data.prefix_shares(300, seed=0, epoch=0)
    counts = [int((shares == share).sum()) for share in data.SHARES]
    assert min(counts) > 50
    assert not np.array_equal(shares, data.prefix_shares(300, 0, 1))
    layout = data.lay_out(rows, plan.model, tokens, shares)
    for row in range(300):
        mt, src = (rows.texts[rows.which[name][row]].ids for name in ("mt", "src"))
        allowed = max(1, int(shares[row] * rows.fertility[row] * (len(src) - 2)))
        whole_one = shares[row] == 1 or allowed >= len(mt) - 2
        expected = mt if whole_one else [*mt[: allowed + 1], tokens.more, mt[-1]]
        sequence = layout.sequences[layout.rows["joint"][row, 0]]
        assert list(sequence[: len(expected)]) == expected
        assert layout.first[layout.rows["joint"][row, 0]] == len(expected)
        assert len(sequence) <= whole.lengths[row]
    assert layout.lengths.sum() < whole.lengths.sum()


def test_tags_of_words_become_labels_of_tokens(folder):
    plan = make(folder, "run", {"word_tags": ["OK", "BAD"]})
    tokens = new_model(plan.resolved_model).tokens
    rows = [
        {"src": "a", "mt": "Katze, Dach", "human": 1.0, "mt_tok": "Katze , Dach", "mt_tags": "BAD OK BAD"},
        {"src": "b", "mt": "Die Katze", "human": 1.0, "mt_tok": "Die Katze", "mt_tags": "OK BAD"},
        {"src": "c", "mt": "Die Katze", "human": 1.0, "mt_tok": "Der Hund", "mt_tags": "OK BAD"},
    ]
    notes = []
    made = data.rows_of(corpus.segments_of(as_table(rows), plan, notes), plan.model, tokens)
    assert "the tags of 1 row do not fit" in notes[0]
    for row, (text, truth) in enumerate((("Katze, Dach", "111110 1111"), ("Die Katze", "000 11111"))):
        offsets = tokens.encode([text])[0].offsets
        covered = [truth[start:end].strip() for start, end in offsets]
        assert made.labels[row] == [int(max(marks)) if marks else data.NO_LABEL for marks in covered]
        assert made.labels[row][0] == made.labels[row][-1] == data.NO_LABEL
        assert {0, 1} < set(made.labels[row])
    assert set(made.labels[2]) == {data.NO_LABEL}
    rows[0]["mt_tags"] = "BAD OK"
    with pytest.raises(InputError, match="row 1: 2 tags for 3 tokens"):
        corpus.segments_of(as_table(rows), plan)


def test_rows_without_tags_teach_the_score_alone(folder):
    plan = make(folder, "run", {"word_tags": ["OK", "BAD"]})
    tokens = new_model(plan.resolved_model).tokens
    some = segments(4).with_columns(
        mt_tags=pl.when(pl.int_range(pl.len()) == 1).then(None).otherwise("mt_tags")
    )
    rows = data.rows_of(corpus.segments_of(as_table(some), plan), plan.model, tokens)
    assert set(rows.labels[1]) == {data.NO_LABEL}
    assert set(rows.labels[0]) != {data.NO_LABEL}


def test_unfinished_translations_are_told_from_whole_ones(folder):
    plan = make(folder, "run", {"partial": True})
    tokens = new_model(plan.resolved_model).tokens
    twice = pl.concat([segments(1), segments(1)]).with_columns(unfinished=pl.Series([False, True]))
    rows = data.rows_of(corpus.segments_of(as_table(twice), plan), plan.model, tokens)
    layout = data.lay_out(rows, plan.model, tokens)
    whole, begun = (layout.sequences[layout.rows["joint"][row, 0]] for row in (0, 1))
    assert rows.fertility is None  # the rows say it: nothing is drawn
    assert tokens.more not in whole
    end = list(begun).index(tokens.more)
    assert [token for token in begun if token != tokens.more] == list(whole)
    assert begun[end + 1] == tokens.end


def test_an_auxiliary_number_is_learnt_where_it_is_known(folder, tmp_path):
    extra = segments(320).with_columns(
        hter=pl.when(pl.int_range(pl.len()) % 2 == 0).then(1 - pl.col("human")).otherwise(None)
    )
    extra.write_parquet(tmp_path / "train.parquet")
    extra.head(80).write_parquet(tmp_path / "dev.parquet")
    model = {"auxiliary": ["hter"], "encoder": str(folder / "encoder")}
    plan = plan_of(content(tmp_path / "run", model, epochs=8), tmp_path)
    train(plan)
    engine = torch_engine(load(tmp_path / "run" / "model"))
    found = engine.score({name: extra[name].to_list() for name in ("src", "mt")}).outputs
    assert pearson(found["hter"], 1 - extra["human"].to_numpy()) > 0.7
    assert found["hter"].shape == found["score"].shape


def test_a_run_starts_from_an_earlier_model(folder, tmp_path):
    first = make(folder, tmp_path / "one", epochs=2)
    trained = train(first).figures["pearson"]
    second = make(
        folder, tmp_path / "two", start=str(tmp_path / "one" / "model"), max_steps=1, learning_rate=0
    )
    again = make(folder, tmp_path / "three", max_steps=1, learning_rate=0, encoder_learning_rate=0)
    resting = replace(second, training=replace(second.training, encoder_learning_rate=0))
    assert train(resting).figures["pearson"] == pytest.approx(trained, abs=1e-4)
    assert train(again).figures["pearson"] != pytest.approx(trained, abs=1e-2)
    with pytest.raises(InputError, match="another one"):
        train(make(folder, tmp_path / "four", {"hidden_sizes": [8]}, start=str(tmp_path / "one" / "model")))
    with pytest.raises(InputError, match="not a model to start from"):
        train(make(folder, tmp_path / "five", start="nowhere"))


def test_figures_are_means_over_groups(folder):
    plan = make(folder, "run", given={"group": "lp"})
    tokens = new_model(plan.resolved_model).tokens
    rows = data.rows_of(corpus.segments_of(as_table(segments(60)), plan), plan.model, tokens)
    random_scores = np.random.default_rng(0).normal(size=60)
    found = optimise.agreement(plan.model, {"score": random_scores[None]}, rows)
    pairs = segments(60)["lp"].to_numpy()
    parts = [pearson(random_scores[pairs == lp], rows.human[pairs == lp]) for lp in ("en-de", "de-en")]
    assert found["pearson"] == pytest.approx(np.mean(parts))


def test_sources_are_held_out_with_all_their_translations():
    frame = pl.concat([segments(100), segments(100).with_columns(mt=pl.lit("x"))])
    kept, out = corpus.held_out(frame, seed=0)
    assert not set(kept["src"]) & set(out["src"])
    assert len(out) == 10


def test_what_is_done_to_the_rows_is_said(folder, tmp_path):
    frame = segments(60).with_columns(human=pl.when(pl.col("lp") == "en-de").then("human"))
    frame.write_parquet(tmp_path / "some.parquet")
    plan = make(folder, "run", given={"train": str(tmp_path / "some.parquet"), "dev": [], "sample": 20})
    kept, out, notes = corpus.read_segments(plan)
    assert len(kept) == 20
    assert "without a human score left out" in notes[0]
    assert f"5 % of the sources, {len(out)} of" in notes[1]
    plan = make(folder, "run", given={"dev": "train.parquet"})
    assert corpus.read_segments(plan)[2] == ["320 of 320 validation rows are also rows to train on"]


# The configuration file and the command


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"learning_rat": 1.0}}, r"\[training\] has no option 'learning_rat', did you mean"),
        ({"model": {"encodr": "x"}}, r"\[model\] has no option 'encodr', did you mean 'encoder'"),
        ({"trainin": {}}, r"there is no table \[trainin\], did you mean 'training'"),
        ({"training": {"epochs": "two"}}, r"epochs in \[training\] is a whole number, found 'two'"),
        ({"training": {"metric": "bleu"}}, r"metric in \[training\] is one of pearson, spearman"),
        ({"training": {"batch_size": 1, "batch_tokens": 9}}, "batch_size or batch_tokens, not both"),
        ({"training": {"cache_states": True}}, "cache_states needs frozen layers"),
        ({"training": {"freeze": -1}}, "freeze is at least 0, found -1"),
        ({"training": {"early_gradient": 1.5}}, "early_gradient lies between 0 and 1, found 1.5"),
        ({"model": {"outputs": "error"}, "data": {"train": 3}}, r"train in \[data\] is a list, each a text"),
        ({"model": {"hidden_sizes": [2.5]}}, r"hidden_sizes in \[model\] is a list, each a whole number"),
        ({"model": {"layer_mix": "mean"}}, r"layer_mix in \[model\] is one of softmax, sparsemax, none"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(change, message):
    made = {"model": {"encoder": "x"}, "data": {"train": "t"}, "training": {"output": "o"}}
    for table, options in change.items():
        made[table] = {**made.get(table, {}), **options}
    with pytest.raises(InputError, match=message) as caught:
        plan_of(made, Path())
    assert "\n" not in str(caught.value)


def test_more_frozen_layers_than_there_are(folder):
    with pytest.raises(InputError, match="freeze = 4, but the encoder has 3 layers"):
        train(make(folder, "run", freeze=4))


def test_the_example_configuration_can_be_read():
    plan = read_plan(Path(__file__).parents[2] / "examples" / "train.toml")
    assert isinstance(plan.model, ModelConfig)
    assert all((plan.folder / path).is_file() for path in plan.data.train)


def test_the_command_trains_and_prints(folder, tmp_path, capsys, monkeypatch):
    from doubtless.cli.train import train as command

    config = folder / "config.toml"
    config.write_text(
        '[model]\nencoder = "encoder"\nhidden_sizes = [8]\n'
        '[data]\ntrain = "train.parquet"\n[training]\noutput = "unused"\nmax_steps = 1\n'
    )
    command(str(config), output=str(tmp_path / "run"), json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["steps"] == 1
    assert "are held out" in printed.err
    command(str(config), output=str(tmp_path / "run"))
    assert "by pearson" in capsys.readouterr().out
    assert not (folder / "unused").exists()
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(DoubtlessError, match=r"training needs PyTorch: pip install 'doubtless\[torch\]'"):
        command(str(config))
