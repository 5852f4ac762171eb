"""One evaluation of the likelihood and its gradient beside GPy's WarpedGP and scikit-learn's plain process.

    python benchmarks/gp.py [--rows 2500] [--rounds 5] [--peers-python PATH]

Matern 5/2 with a length-scale for each of 17 features; three tanh terms for us and for GPy, no warping for
scikit-learn, which has none. Every program runs in a process of its own and is asked for one evaluation at a
time, turn by turn; CPU seconds are the median over the rounds. Before that the values at the same parameters
are compared. GPy and scikit-learn may live in another environment: name its Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

FEATURES = 17
VARIANCE, NOISE = 1.3, 0.7
LENGTHS = np.linspace(1.5, 6.0, FEATURES)
PSI = np.array([[1.2, 0.8, -1.0], [0.7, 1.5, -2.0], [0.4, 0.6, -3.0]])


def problem(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, FEATURES))
    return x, np.exp(0.3 * np.sin(x[:, 0]) + 0.2 * x[:, 1] + 0.4 * rng.normal(size=rows))


def ours(rows: int) -> Callable[[float], float]:
    from doubtless.gp.kernels import find_kernel
    from doubtless.gp.likelihood import Likelihood, Parameters
    from doubtless.gp.warping import Warping

    psi = np.column_stack([np.log(PSI[:, :2]), PSI[:, 2]]).ravel()
    start = Parameters(np.log(VARIANCE), np.log(LENGTHS), np.log(NOISE), psi).vector
    likelihood = Likelihood(*problem(rows), find_kernel("mat52"), Warping.parse("tanh3"), FEATURES)
    return lambda shift: likelihood(start + shift)[0]


def gpy(rows: int) -> Callable[[float], float]:
    import GPy

    x, y = problem(rows)
    kernel = GPy.kern.Matern52(FEATURES, variance=VARIANCE, lengthscale=LENGTHS, ARD=True)
    warp = GPy.util.warping_functions.TanhFunction(n_terms=3)
    warp.psi[:] = PSI
    warp.d.constrain_fixed(1)
    model = GPy.models.WarpedGP(x, y[:, None], kernel=kernel, warping_function=warp)
    model.likelihood.variance = NOISE
    start = model.optimizer_array.copy()

    def evaluate(shift: float) -> float:
        # What its optimisers call: value and gradient, as often as the parameters move.
        return float(np.squeeze(model._objective_grads(start + shift)[0]))

    return evaluate


def sklearn(rows: int) -> Callable[[float], float]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(VARIANCE) * Matern(LENGTHS, nu=2.5) + WhiteKernel(NOISE)
    model = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-8).fit(*problem(rows))
    start = model.kernel_.theta
    return lambda shift: -model.log_marginal_likelihood(start + shift, eval_gradient=True)[0]


def plain(rows: int) -> float:
    """Our value without a warping, to compare with scikit-learn's."""
    from doubtless.gp.kernels import find_kernel
    from doubtless.gp.likelihood import Likelihood, Parameters
    from doubtless.gp.warping import Warping

    start = Parameters(np.log(VARIANCE), np.log(LENGTHS), np.log(NOISE), np.zeros(0)).vector
    return Likelihood(*problem(rows), find_kernel("mat52"), Warping.parse("none"), FEATURES)(start)[0]


WHO = {"ours": ours, "gpy": gpy, "sklearn": sklearn}


def work(who: str, rows: int) -> None:
    """Answer each line of standard input, a shift of the parameters, with the value and CPU seconds."""
    evaluate = WHO[who](rows)
    for line in sys.stdin:
        start = time.process_time()
        value = evaluate(float(line))
        print(value, time.process_time() - start, flush=True)


class Worker:
    """A program in a process of its own."""

    def __init__(self, python: str, who: str, rows: int) -> None:
        command = [python, "-W", "ignore", __file__, "--work", who, "--rows", str(rows)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, shift: float) -> tuple[float, float]:
        """One evaluation: its value and its CPU seconds."""
        assert self.process.stdin
        assert self.process.stdout
        print(shift, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit("a peer failed: are GPy and scikit-learn installed where --peers-python says?")
        return float(answer[0]), float(answer[1])

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate()


def compare(rows: int, rounds: int, python: str, peers: list[str]) -> None:
    mine = Worker(sys.executable, "ours", rows)
    value, _ = mine.ask(0.0)
    for who in peers:
        other = Worker(python, who, rows)
        theirs, _ = other.ask(0.0)
        expected = plain(rows) if who == "sklearn" else value
        gap = abs(theirs - expected) / abs(expected)
        seconds: dict[str, list[float]] = {"ours": [], who: []}
        for i in range(rounds):
            # Another point each time, so that nothing is remembered.
            seconds["ours"].append(mine.ask(1e-3 * (i + 1))[1])
            seconds[who].append(other.ask(1e-3 * (i + 1))[1])
        other.close()
        us, them = median(seconds["ours"]), median(seconds[who])
        times = f"ours {us:6.3f} s   theirs {them:6.3f} s   ratio {them / us:5.1f}"
        print(f"{who:<8} {times}   relative gap of the values {gap:.1e}", flush=True)
    mine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--peers", default="gpy,sklearn", help="gpy, sklearn or both")
    parser.add_argument("--work", choices=WHO, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.rows)
        return
    print(f"{options.rows:,} rows, {FEATURES} features, one evaluation with gradient, CPU seconds")
    compare(options.rows, options.rounds, options.peers_python, options.peers.split(","))


if __name__ == "__main__":
    main()
