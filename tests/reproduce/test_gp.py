"""The tables of Gaussian processes, on small made-up folds: which folds are averaged, and what a loss is."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from doubtless.decide.losses import Loss
from doubtless.errors import InputError
from doubtless.forecast import Gaussian
from doubtless.reproduce import Options, find, risk
from doubtless.reproduce.gp import Fold

GERMAN = "wmt16_en-de_ed2"


@pytest.fixture
def folds(tmp_path):
    """Split files as the authors wrote them: features, then the label, between spaces."""
    rng = np.random.default_rng(0)
    for fold in range(10):
        folder = tmp_path / "gp_qe" / "splits" / GERMAN / str(fold)
        folder.mkdir(parents=True)
        for part, rows in (("train", 24), ("test", 6)):
            x = rng.normal(size=(rows, 2))
            y = np.exp(0.5 * x[:, 0] + 0.3 * rng.normal(size=rows))
            np.savetxt(folder / part, np.column_stack([x, y]), fmt="%.5f")
    return str(tmp_path)


def test_the_fold_that_the_paper_seems_to_have_left_out(folds):
    options = Options(sets=(GERMAN,), models=("log-mat52",))
    ten, nine = find("gp-table1").run(folds, options)
    (one,) = find("gp-table1").run(folds, Options(sets=(GERMAN,), models=("log-mat52",), folds=(8,)))
    assert [row["folds"] for row in (ten, nine, one)] == [10, 9, 1]
    for figure in ("nll", "nlpd", "mae", "r"):
        assert 10 * ten[figure] == pytest.approx(9 * nine[figure] + one[figure])
    assert ten["paper_nll"] == 4054.39
    assert ten["paper_r"] == 0.363


def test_the_published_linex_is_a_mean_over_all_pairs():
    mean, sd, y = [1.0, 2.0], [0.5, 1.0], [1.5, 1.0]
    fold = Fold(Gaussian(mean, sd), np.array(y), 0.0)
    under = [m + 0.75 * s**2 / 2 for m, s in zip(mean, sd, strict=True)]
    pairs = [exp(0.75 * (t - d)) - 0.75 * (t - d) - 1 for d in under for t in y]
    loss = Loss("linex", 0.75, "under")
    assert risk.published_loss(fold, loss) == pytest.approx(sum(pairs) / 4)
    assert risk.mean_loss(fold, loss, "paper") == pytest.approx((pairs[0] + pairs[3]) / 2)
    quartile = 0.6744897501960817
    over = [m - quartile * s for m, s in zip(mean, sd, strict=True)]
    linear = [3 * (d - t) if d > t else t - d for d, t in zip(over, y, strict=True)]
    assert risk.published_loss(fold, Loss("al", 3, "over")) == pytest.approx(sum(linear) / 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (Options(sets=("en-de",)), r"^there is no set 'en-de', expected one of: wmt14_en-es, "),
        (Options(models=("log",)), r"^there is no model 'log', expected one of: none-rbf, "),
        (Options(folds=(0, 10)), r"^there is no fold 10, expected 0 to 9$"),
    ],
)
def test_parts_that_do_not_exist_are_refused(folds, options, sentence):
    with pytest.raises(InputError, match=sentence):
        find("gp-table1").run(folds, options)
