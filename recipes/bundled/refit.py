"""The last layer of each head, learnt anew where the model does not know the answers; and the tagger.

In training, a model predicts its errors on rows that it is learning by heart at the same time; those errors
are smaller and of another kind than the ones it makes later. And its scores follow the annotators of the
training rows, who are fewer and in part other ones than those of dev and test. So the last linear layer of
each exit's head gets new weights, by ridge regression on rows that were not trained on: the old weights are
the guess, and the regression learns what they lack. The encoder stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from ridge import Array, ridge
from torch import nn

from doubtless.neural import data
from doubtless.neural.checkpoint import Model
from doubtless.neural.corpus import segments_of
from doubtless.neural.engine import token_batches
from doubtless.neural.heads import combine
from doubtless.neural.model import Batch
from doubtless.neural.runtime import torch_engine
from doubtless.neural.schedule import DataConfig, Plan, TrainingConfig
from doubtless.segments import as_table

PENALTY = 3000.0  # on standardised features; three times more or less does about as well on dev
OUTPUTS = ("score", "error", "change")  # in the order in which a head gives them
FOLDS = 10

TAGGED_ROWS, TAG_WEIGHTS, TAG_PENALTY = 3000, (1.0, 1.5), 1e-4
BATCH_TOKENS = 2048


def refit(model: Model, texts: Mapping[str, Sequence[str]], human: Array) -> dict[str, Array]:
    """Give every exit new weights, and return what the rows' outputs would be if each had not been seen.

    The second is (exits, rows) for each output: by weights that were fitted on the other folds, minus those
    by the weights that the model now has. All that is chosen or calibrated on these rows takes it into
    account, for the model has now seen them.
    """
    hidden = head_inputs(model, texts)
    folds = np.random.default_rng(0).permutation(len(human)) % FOLDS
    target = (human - model.config.score_mean) / model.config.score_sd
    found = {"score": refit_output(model, "score", hidden, np.tile(target, (len(hidden), 1)), folds)}
    score = found["score"].unseen
    found["error"] = refit_output(model, "error", hidden, np.abs(score - target), folds)
    found["change"] = refit_output(model, "change", hidden, np.abs(score - score[-1]), folds)
    return {name: model.config.score_sd * (given.unseen - given.seen) for name, given in found.items()}


@dataclass(frozen=True)
class Given:
    """What the exits give to the rows that they were fitted on: as they are, and had they not been."""

    seen: Array
    unseen: Array


def refit_output(model: Model, name: str, hidden: Array, wanted: Array, folds: Array) -> Given:
    """Give one output of every exit new weights, so that it comes near to what is wanted of it."""
    restart, made = model.config.restart, []
    for exit_layer, head, features, target in zip(
        model.estimator.exits, model.estimator.heads, hidden, wanted, strict=True
    ):
        before = made[model.estimator.exits.index(restart)] if 0 < restart < exit_layer else None
        made.append(fit(head.layers[-1], OUTPUTS.index(name), features, target, folds, before))
    return Given(np.array([given.seen for given in made]), np.array([given.unseen for given in made]))


def fit(
    layer: nn.Linear, place: int, features: Array, wanted: Array, folds: Array, before: Given | None = None
) -> Given:
    """Give one output of a linear layer new weights; ``before`` is what it is averaged with, if anything."""
    weights, bias = layer.weight.detach().numpy()[place], float(layer.bias.detach()[place])
    own = features @ weights + bias
    share = 1.0 if before is None else 0.5
    seen, unseen = (own, own) if before is None else ((own + before.seen) / 2, (own + before.unseen) / 2)
    more, constant = ridge(features, wanted - unseen, PENALTY)
    apart = unseen.copy()
    for fold in np.unique(folds):
        out = folds == fold
        part, start = ridge(features[~out], (wanted - unseen)[~out], PENALTY)
        apart[out] += features[out] @ part + start
    with torch.no_grad():
        layer.weight[place] += torch.as_tensor(more / share, dtype=layer.weight.dtype)
        layer.bias[place] += constant / share
    return Given(seen + features @ more + constant, apart)


@torch.inference_mode()
def head_inputs(model: Model, texts: Mapping[str, Sequence[str]]) -> Array:
    """What the last linear layer of each exit's head sees (exits, rows, features)."""
    engine = torch_engine(model)
    rows, estimator = engine.rows({name: list(values) for name, values in texts.items()}), model.estimator
    found = np.empty((len(estimator.exits), len(rows.sizes), model.config.hidden_sizes[-1]))
    for batch in token_batches(rows.sizes, engine.batch_tokens):
        state = engine.stepper.start(rows.batch(batch)).state
        for number, layer in enumerate(estimator.exits):
            state = estimator.advance(state, layer)
            features = combine(model.config, estimator.features(state))
            inner: nn.Sequential = estimator.heads[number].layers[:-1]
            found[number, batch] = inner(features).numpy()
    return found[:, rows.origin]


def refit_tagger(model: Model, rows: pl.DataFrame) -> None:
    """Learn the tagger anew, by logistic regression: it may read another layer than it was trained on."""
    tagger = model.estimator.tagger
    assert tagger is not None
    states, labels = tagged_tokens(model, rows.sample(min(TAGGED_ROWS, len(rows)), seed=0))
    loss_of = nn.CrossEntropyLoss(torch.tensor(TAG_WEIGHTS))
    optimiser = torch.optim.LBFGS(tagger.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss: torch.Tensor = loss_of(tagger(states), labels) + TAG_PENALTY * tagger.weight.square().sum()
        loss.backward()
        return loss

    for parameter in tagger.parameters():
        parameter.requires_grad_()
    optimiser.step(closure)  # type: ignore[no-untyped-call]


@torch.no_grad()
def tagged_tokens(model: Model, rows: pl.DataFrame) -> tuple[torch.Tensor, torch.Tensor]:
    """What the tagger sees of each token that has a tag, and the number of the tag."""
    estimator = model.estimator.eval()
    plan = Plan(model.config, DataConfig(train=("rows",)), TrainingConfig(output="nowhere"))
    examples = data.rows_of(segments_of(as_table(rows), plan), model.config, model.tokens)
    layout = data.lay_out(examples, model.config, model.tokens)
    states, labels = [], []
    for index in data.batches(layout, 0, 0, None, BATCH_TOKENS):
        batch = data.assemble(examples, layout, index, model.tokens.padding)
        assert isinstance(batch.start, Batch)
        assert batch.labels is not None
        state = estimator.advance(estimator.start(batch.start), estimator.word_layer)
        assert state.words is not None
        known = batch.labels != data.NO_LABEL
        states.append(state.words[state.rows["joint"]][known])
        labels.append(batch.labels[known])
    return torch.cat(states), torch.cat(labels)
