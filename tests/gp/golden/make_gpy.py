"""Record what GPy says, so that the tests need no GPy: ``python make_gpy.py > gpy.json`` (GPy 1.15.0).

Thirty small models (every kernel and warping, one length-scale or three) at fixed parameters: their log
marginal likelihood, and for new rows the log predictive density and the median.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def problem(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).round(3)
    y = np.exp(0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.4 * rng.normal(size=n)).round(3)
    return x, y


def record(kernel: str, warp: str, ard: bool, seed: int) -> dict[str, Any]:
    import GPy

    rng = np.random.default_rng(seed)
    lengths = rng.uniform(0.5, 3, 3 if ard else 1).round(3)
    variance, noise = round(rng.uniform(0.5, 2), 3), round(rng.uniform(0.1, 1), 3)
    kind = {"rbf": GPy.kern.RBF, "mat32": GPy.kern.Matern32, "mat52": GPy.kern.Matern52}[kernel]
    covariance = kind(3, variance=variance, lengthscale=lengths, ARD=ard)
    (x, y), (new, truth) = problem(40, 7), problem(5, 8)
    psi = np.zeros((0, 3))
    if warp == "none":
        model = GPy.models.GPRegression(x, y[:, None], kernel=covariance)
    else:
        function = GPy.util.warping_functions.LogFunction()
        if warp != "log":
            terms = int(warp[-1])
            psi = np.column_stack([rng.uniform(0.3, 2, (terms, 2)), rng.uniform(-3, 0, terms)]).round(3)
            function = GPy.util.warping_functions.TanhFunction(n_terms=terms)
            function.psi[:] = psi
            function.d.constrain_fixed(1)
            function.rate = 0.5  # its default leaves the inverse unfinished
        model = GPy.models.WarpedGP(x, y[:, None], kernel=covariance, warping_function=function)
    model.likelihood.variance = noise
    median = model.predict(new)[0] if warp == "none" else model.predict(new, median=True)[0]
    return {
        "kernel": kernel,
        "warp": warp,
        "lengths": lengths.tolist(),
        "variance": variance,
        "noise": noise,
        "psi": psi.tolist(),
        "log_likelihood": float(np.squeeze(model.log_likelihood())),
        "log_density": np.ravel(model.log_predictive_density(new, truth[:, None])).tolist(),
        "median": np.ravel(median).tolist(),
    }


def main() -> None:
    names = [
        (kernel, warp, ard)
        for kernel in ("rbf", "mat32", "mat52")
        for warp in ("none", "log", "tanh1", "tanh2", "tanh3")
        for ard in (False, True)
    ]
    cases = [record(*name, seed) for seed, name in enumerate(names)]
    data = {"x": problem(40, 7), "new": problem(5, 8)}
    rows = {key: [part.tolist() for part in value] for key, value in data.items()}
    print(json.dumps({**rows, "cases": cases}))


if __name__ == "__main__":
    main()
