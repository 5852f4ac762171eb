"""The error heads, learnt anew where the model does not know the answers.

In training, a model predicts its errors on rows that it is learning by heart at the same time; those errors
are smaller and of another kind than the ones it makes later. So the last linear layer of each head gets a new
row of weights for ``error``, by ridge regression on rows that were not trained on. Scores stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from ridge import Array, ridge
from torch import nn

from doubtless.neural.checkpoint import Model
from doubtless.neural.engine import token_batches
from doubtless.neural.heads import combine
from doubtless.neural.runtime import torch_engine

PENALTY = 3000.0  # on standardised features; 1,000 does as well on dev, and 300 less well
FOLDS = 10
ERROR = 1  # its place in a head's outputs


def refit_errors(model: Model, texts: Mapping[str, Sequence[str]], human: Array) -> Array:
    """Give every exit a new error, and return what the rows' errors would be if each had not been seen.

    The second is (exits, rows): errors by weights that were fitted on the other folds, minus those by the
    weights that the model now has. Intervals are calibrated with it, for the model has now seen these rows.
    """
    hidden = head_inputs(model, texts)
    folds = np.random.default_rng(0).permutation(len(human)) % FOLDS
    moved = []
    sd, mean = model.config.score_sd, model.config.score_mean
    for head, features in zip(model.estimator.heads, hidden, strict=True):
        last = head.layers[-1]
        weights, bias = last.weight.detach().numpy(), last.bias.detach().numpy()
        raw = features @ weights.T + bias
        # What the old row lacks: it is a good guess already.
        lacking = np.abs(raw[:, 0] * sd + mean - human) / sd - raw[:, ERROR]
        row, constant = ridge(features, lacking, PENALTY)
        apart = np.empty(len(human))
        for fold in range(FOLDS):
            out = folds == fold
            part, start = ridge(features[~out], lacking[~out], PENALTY)
            apart[out] = features[out] @ part + start
        moved.append(sd * (apart - features @ row - constant))
        with torch.no_grad():
            last.weight[ERROR] += torch.as_tensor(row, dtype=last.weight.dtype)
            last.bias[ERROR] += constant
    return np.array(moved)


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
