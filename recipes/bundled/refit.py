"""The last layer of each head, learnt anew where the model does not know the answers.

In training, a model predicts its errors on rows that it is learning by heart at the same time; those errors
are smaller and of another kind than the ones it makes later. So the last linear layer of each exit's head
gets new weights for them, by ridge regression on rows that were not trained on: the old weights are the
guess, and the regression learns what they lack. Of scores only the constant is learnt anew: more takes from
the agreement with people. The encoder stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ridge import Array, ridge
from torch import nn

from doubtless.neural.checkpoint import Model
from doubtless.neural.heads import combine
from doubtless.neural.rows import token_batches
from doubtless.neural.runtime import torch_engine

# On standardised features, by output, in the order in which a head gives them. Three times more or less does
# about as well on dev for errors; for scores, nothing but the constant is best.
PENALTIES = {"score": 1e9, "error": 3000.0, "change": 3000.0}
FOLDS = 10


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
    config, exits, made = model.config, model.estimator.exits, []
    for exit_layer, head, features, target in zip(exits, model.estimator.heads, hidden, wanted, strict=True):
        share = config.own_share(exit_layer, model.estimator.encoder.depth)
        before = made[exits.index(config.restart)] if share < 1 else None
        place, penalty = list(PENALTIES).index(name), PENALTIES[name]
        made.append(fit(head.layers[-1], place, features, target, folds, penalty, share, before))
    return Given(np.array([given.seen for given in made]), np.array([given.unseen for given in made]))


def fit(
    layer: nn.Linear,
    place: int,
    features: Array,
    wanted: Array,
    folds: Array,
    penalty: float,
    share: float = 1.0,
    before: Given | None = None,
) -> Given:
    """Give one output of a linear layer new weights; if its share is not all, the rest is ``before``."""
    weights, bias = layer.weight.detach().numpy()[place], float(layer.bias.detach()[place])
    seen = unseen = share * (features @ weights + bias)
    if before is not None:
        seen, unseen = seen + (1 - share) * before.seen, unseen + (1 - share) * before.unseen
    more, constant = ridge(features, wanted - unseen, penalty)
    apart = unseen.copy()
    for fold in np.unique(folds):
        out = folds == fold
        part, start = ridge(features[~out], (wanted - unseen)[~out], penalty)
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
