"""Pooling the two texts of a joint sequence apart."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tiny import write_encoder  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import load, new_model, save  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.encoder import batch_of  # noqa: E402
from doubtless.neural.exits import ExitRule  # noqa: E402
from doubtless.neural.model import Batch  # noqa: E402

PAIRS = [("Die Katze.", "The cat."), ("Niemand wurde verletzt.", "Nobody."), ("", "I do not know.")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_encoder(tmp_path_factory.mktemp("parts"))
    config = ModelConfig(
        encoder=str(folder),
        pooling="parts",
        exits="every",
        heads="each",
        outputs="score+error+change",
        hidden_sizes=(8,),
        auxiliary=("hter",),
        score_mean=0.5,
        score_sd=2.0,
    )
    made = new_model(config)
    made.estimator.eval()
    return made


def batch(model, pairs):
    joined = [model.tokens.join(model.tokens.encode(list(pair))) for pair in pairs]
    ids, mask = batch_of([sequence.ids for sequence in joined], model.tokens.padding)
    return Batch(ids, mask, {"joint": torch.arange(len(pairs))}), joined


@torch.no_grad()
def test_each_text_has_a_mean_of_its_own(model):
    given, joined = batch(model, PAIRS)
    state = model.estimator.advance(model.estimator.start(given), 2)
    for row, sequence in enumerate(joined):
        end = sequence.ids.index(model.tokens.end)
        hidden = state.hidden[row, : len(sequence.ids)]
        expected = torch.cat([hidden[:end].mean(dim=0), hidden[end:].mean(dim=0)])
        torch.testing.assert_close(state.pooled[row, 2], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_that_are_kept_read_as_before(model):
    given, _ = batch(model, PAIRS)
    state = model.estimator.advance(model.estimator.start(given), 1)
    kept = model.estimator.keep(state, torch.tensor([2, 0]))
    alone = model.estimator.read(model.estimator.advance(kept, 3))
    whole = model.estimator.read(model.estimator.advance(state, 3))
    for name, values in whole.items():
        torch.testing.assert_close(alone[name], values[[2, 0]], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_outputs_are_named_and_only_those_of_the_score_are_rescaled(model):
    given, _ = batch(model, PAIRS)
    found, _ = model.estimator(given)
    assert set(found) == {"score", "error", "change", "hter"}
    raw = model.estimator.heads[-1](
        torch.cat(
            [
                *(
                    halves := model.estimator.advance(model.estimator.start(given), 3)
                    .pooled[:, 3]
                    .chunk(2, 1)
                ),
                halves[0] * halves[1],
                (halves[0] - halves[1]).abs(),
            ],
            dim=1,
        )
    )
    torch.testing.assert_close(found["score"][-1], raw[:, 0] * 2 + 0.5)
    torch.testing.assert_close(found["change"][-1], raw[:, 2] * 2)
    torch.testing.assert_close(found["hter"][-1], raw[:, 3])


def test_saved_and_loaded_it_is_the_same(model, tmp_path):
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == model.config
    given, _ = batch(model, PAIRS)
    with torch.no_grad():
        torch.testing.assert_close(again.estimator(given)[0]["score"], model.estimator(given)[0]["score"])


def test_rows_leave_by_the_expected_change_where_a_model_has_one():
    outputs = {"score": np.zeros(2), "error": np.array([0.9, 0.1]), "change": np.array([0.1, 0.9])}
    leaves = ExitRule("confidence", 0.5).leaves(1, outputs, [outputs["score"]])
    assert leaves.tolist() == [True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": "separate"},
        {"uses": "src+mt+ref"},
        {"layer_mix": "softmax", "mix_norm": True},
        {"pooling": "mean", "outputs": "score+error+change"},
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(InputError, match="parts|change"):
        ModelConfig(**{"pooling": "parts", **wrong})
