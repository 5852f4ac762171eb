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


DEPTH = 6


@pytest.fixture(
    scope="module", params=[(3, 0), (2, 0), (4, 2), (2, 1)], ids=lambda pair: f"{pair[0]},{pair[1]}"
)
def model(request, tmp_path_factory):
    folder = write_encoder(tmp_path_factory.mktemp("restart"), layers=DEPTH)
    branches = dict(zip(("restart", "trunk"), request.param, strict=True))
    return new_model(ModelConfig(encoder=str(folder), hidden_sizes=(6,), **branches, **KINDS))


def batch(model):
    sequences = [[0, *range(5, 5 + size), 2, 2, *range(9, 9 + size // 2), 2] for size in (8, 3, 5, 12)]
    ids, mask = batch_of(sequences, padding=1)
    return Batch(ids, mask, {"joint": torch.arange(len(sequences))})


@torch.no_grad()
def test_branches_begin_where_the_trunk_ends_and_count_alike(model):
    estimator, whole = model.estimator.eval(), batch(model)
    config, state = model.config, estimator.start(whole)
    begin, padding, own = state.hidden, state.padding, []
    for number in range(1, config.trunk + 1):
        begin = estimator.encoder.layer(number, begin, padding)
    ends = config.branch_ends(DEPTH)
    assert ends[-1] == DEPTH
    for end in ends:
        hidden = begin
        for number in range(end - config.restart + config.trunk + 1, end + 1):
            hidden = estimator.encoder.layer(number, hidden, padding)
        state = estimator.advance(state, end)
        torch.testing.assert_close(state.hidden, hidden)
        vectors = {"joint": estimator._pool(hidden, state.mask, state.first)}
        own.append(estimator.head_outputs(vectors, estimator.exits.index(end), None)["score"])
        torch.testing.assert_close(estimator.read(state)["score"], torch.stack(own).mean(dim=0))
    assert state.again is None


@torch.no_grad()
@pytest.mark.parametrize("layer", [0, 1, 2, 3, 4, 5])
def test_rows_that_part_and_meet_again_get_the_same(model, layer):
    estimator, whole = model.estimator.eval(), batch(model)
    expected, _ = estimator(whole)
    state = estimator.advance(estimator.start(whole), layer)
    parts = [estimator.keep(state, torch.tensor(rows)) for rows in ([1], [3, 0], [2])]
    joined = estimator.advance(estimator.join(parts), DEPTH)
    found = estimator.read(joined)["score"]
    torch.testing.assert_close(found, expected["score"][-1][[1, 3, 0, 2]], atol=1e-5, rtol=1e-5)


def test_all_branches_learn_from_the_last_exit(model):
    outputs, _ = model.estimator.train()(batch(model))
    outputs["score"][-1].sum().backward()
    for layer in model.estimator.encoder.layers:
        assert float(layer.output.dense.weight.grad.abs().sum()) > 0
    model.estimator.zero_grad()


def test_the_folder_remembers(model, tmp_path):
    save(model, tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.config == model.config
    found, expected = (torch_engine(one).trace(PAIRS)["score"] for one in (again, model))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"exits": "last", "outputs": "score"},
        {"heads": "shared"},
        {"first_exit": 4},
        {"outputs": "quantiles"},
        {"trunk": 3},
    ],
)
def test_what_cannot_start_again_is_refused(options):
    with pytest.raises(InputError, match="restart needs"):
        ModelConfig(restart=3, **(KINDS | options))


@pytest.mark.parametrize(("restart", "trunk"), [(6, 0), (4, 0), (5, 3)])
def test_branches_that_do_not_use_all_layers_are_refused(restart, trunk, tmp_path):
    encoder = str(write_encoder(tmp_path / "encoder", layers=DEPTH))
    wrong = f"restart is {restart} and trunk {trunk}, but the encoder has 6 layers"
    with pytest.raises(InputError, match=wrong):
        new_model(ModelConfig(encoder=encoder, restart=restart, trunk=trunk, **KINDS))


def test_cached_states_do_not_hold_what_branches_begin_with():
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
