from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import load, new_model, save  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.encoder import batch_of  # noqa: E402
from doubtless.neural.model import Batch  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402
from doubtless.neural.schedule import DataConfig, Plan, TrainingConfig  # noqa: E402
from doubtless.neural.weights import half_bytes, table_rows  # noqa: E402

KINDS = {"pooling": "parts", "exits": "every", "heads": "each", "outputs": "score+error+change"}
PAIRS = {"src": TEXTS[:-1], "mt": TEXTS[1:]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_encoder(tmp_path_factory.mktemp("restart"), layers=5)
    return new_model(ModelConfig(encoder=str(folder), hidden_sizes=(6,), restart=3, **KINDS))


def batch(model):
    sequences = [[0, *range(5, 5 + size), 2, 2, *range(9, 9 + size // 2), 2] for size in (8, 3, 5, 12)]
    ids, mask = batch_of(sequences, padding=1)
    return Batch(ids, mask, {"joint": torch.arange(len(sequences))})


@torch.no_grad()
def test_the_second_half_begins_at_the_embeddings(model):
    estimator, whole = model.estimator.eval(), batch(model)
    state = estimator.start(whole)
    half = estimator.advance(state, 3)
    found = estimator.advance(half, 4)
    expected = estimator.encoder.layer(4, state.hidden, state.padding)
    torch.testing.assert_close(found.hidden, expected)
    assert found.again is None
    for layer, share in ((4, 0.25), (5, 0.5)):
        state = estimator.advance(half, layer)
        own = estimator.head_outputs(estimator.features(state), layer - 1, None)["score"]
        mixed = share * own + (1 - share) * estimator.read(half)["score"]
        torch.testing.assert_close(estimator.read(state)["score"], mixed)


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 2, 3, 4])
def test_rows_that_part_and_meet_again_get_the_same(model, layer):
    estimator, whole = model.estimator.eval(), batch(model)
    expected, _ = estimator(whole)
    state = estimator.advance(estimator.start(whole), layer)
    parts = [estimator.keep(state, torch.tensor(rows)) for rows in ([1], [3, 0], [2])]
    joined = estimator.advance(estimator.join(parts), 5)
    found = estimator.read(joined)["score"]
    torch.testing.assert_close(found, expected["score"][-1][[1, 3, 0, 2]], atol=1e-5, rtol=1e-5)


def test_both_halves_learn_from_the_last_exit(model):
    outputs, _ = model.estimator.train()(batch(model))
    outputs["score"][-1].sum().backward()
    for number in range(1, 6):
        layer = model.estimator.encoder.layers[number - 1]
        assert float(layer.output.dense.weight.grad.abs().sum()) > 0
    model.estimator.zero_grad()


def test_the_folder_remembers(model, tmp_path):
    save(model, tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.config.restart == 3
    found, expected = (torch_engine(one).trace(PAIRS)["score"] for one in (again, model))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"exits": "last", "outputs": "score"}, {"heads": "shared"}, {"first_exit": 4}, {"outputs": "quantiles"}],
)
def test_what_cannot_start_again_is_refused(options):
    with pytest.raises(InputError, match="restart needs"):
        ModelConfig(restart=3, **(KINDS | options))


def test_a_restart_behind_the_last_layer_is_refused(model):
    with pytest.raises(InputError, match="restart is 5, but the encoder has 5 layers"):
        new_model(ModelConfig(encoder=model.config.encoder, restart=5, **KINDS))


def test_cached_states_do_not_hold_the_embeddings():
    config = ModelConfig(encoder="somewhere", restart=3, **KINDS)
    with pytest.raises(InputError, match="cache_states cannot be used with restart"):
        Plan(config, DataConfig(train=("a",)), TrainingConfig(output="b", freeze=1, cache_states=True))


@given(st.integers(0, 10**6), st.integers(1, 200), st.sampled_from([32, 64, 96]))
def test_half_bytes_give_back_what_was_made_of_them(seed, rows, size):
    rng = np.random.default_rng(seed)
    whole = rng.integers(-8, 8, (rows, size // 32, 32))
    whole[:, :, seed % 32] = -8  # in files of such numbers the largest of each block is -8
    scale = rng.normal(0, 1, (rows, size // 32, 1)).astype(np.float16)
    table = (whole * scale.astype(np.float32)).reshape(rows, size).astype(np.float32)
    data, factors = half_bytes(table)
    assert (data.shape, data.dtype, factors.dtype) == ((rows, size // 2), np.uint8, np.float16)
    some = rng.integers(0, rows, (3, 4))
    np.testing.assert_array_equal(table_rows(data, factors, some), table[some])


@given(st.integers(0, 10**6))
def test_tables_that_are_not_made_of_half_bytes_are_left_alone(seed):
    rng = np.random.default_rng(seed)
    assert half_bytes(rng.normal(size=(20, 64))) is None
    assert half_bytes(np.zeros((3, 40))) is None


def test_a_few_rows_may_be_rounded():
    rng = np.random.default_rng(0)
    table = rng.integers(-8, 8, (300, 64)).astype(np.float32)
    table[:, ::32] = -8
    table[17] = rng.normal(size=64)
    found = table_rows(*half_bytes(table), slice(None))
    assert np.abs(found - table).max(axis=1).argmax() == 17
    assert np.abs(found[17] - table[17]).max() < np.abs(table[17]).max() / 8
    assert np.abs(np.delete(found - table, 17, axis=0)).max() == 0
