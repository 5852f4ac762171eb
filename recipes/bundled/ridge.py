"""Ridge regression, for parts of the recipe that have few features."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def ridge(features: Array, target: Array, penalty: float) -> tuple[Array, float]:
    """Weights and constant of a ridge regression on standardised features."""
    centre, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    scaled = (features - centre) / spread
    gram = scaled.T @ scaled + penalty * np.eye(scaled.shape[1])
    weights = np.linalg.solve(gram, scaled.T @ (target - target.mean())) / spread
    return weights, float(target.mean() - centre @ weights)
