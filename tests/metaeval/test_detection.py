import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef

from doubtless.errors import InputError
from doubtless.metaeval.detection import detection_curve

items = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40)


@given(items)
def test_equal_to_scikit_learn(pairs):
    suspicion = np.array([value for value, _ in pairs], dtype=float)
    wrong = np.array([bad for _, bad in pairs])
    if not wrong.any():
        assert np.isnan(detection_curve(suspicion, wrong).average_precision)
        return
    curve = detection_curve(suspicion, wrong)
    assert curve.average_precision == pytest.approx(average_precision_score(wrong, suspicion), abs=1e-12)
    for place, threshold in enumerate(curve.threshold):
        flagged = suspicion >= threshold
        assert curve.f1[place] == pytest.approx(f1_score(wrong, flagged), abs=1e-12)
        if wrong.all():  # nothing to tell apart
            assert curve.matthews[place] == 0
            continue
        assert curve.matthews[place] == pytest.approx(matthews_corrcoef(wrong, flagged), abs=1e-9)


def test_a_perfect_order_has_all():
    curve = detection_curve([3.0, 2.0, 1.0], [True, True, False])
    assert curve.average_precision == 1.0
    assert curve.best(curve.matthews) == (1.0, 2.0)


@pytest.mark.parametrize("suspicion", [[], [1.0], [np.nan, 1.0]])
def test_bad_input_is_one_sentence(suspicion):
    with pytest.raises(InputError):
        detection_curve(suspicion, [True, False])


@given(items, st.integers(-1, 8))
def test_figures_at_a_threshold_are_those_of_its_flags(pairs, threshold):
    suspicion = np.array([value for value, _ in pairs], dtype=float)
    wrong = np.array([bad for _, bad in pairs])
    found = detection_curve(suspicion, wrong).at(threshold - 0.5)
    flags = suspicion >= threshold - 0.5
    hits = (flags & wrong).sum()
    expected = {
        "precision": hits / flags.sum() if flags.any() else np.nan,
        "recall": hits / wrong.sum() if wrong.any() else np.nan,
        "f1": 2 * hits / max(flags.sum() + wrong.sum(), 1),
        "matthews": 0.0 if len({*flags}) == 1 or len({*wrong}) == 1 else np.corrcoef(flags, wrong)[0, 1],
    }
    assert found == pytest.approx(expected, nan_ok=True, abs=1e-9)


def test_a_thinned_curve_keeps_its_ends_and_points():
    rng = np.random.default_rng(0)
    wrong = rng.random(500) < 0.3
    curve = detection_curve(rng.normal(size=500) + wrong, wrong)
    thin = curve.thinned(10)
    assert set(zip(thin.threshold, thin.found, thin.false, strict=True)) <= set(
        zip(curve.threshold, curve.found, curve.false, strict=True)
    )
    assert len(thin.threshold) == 11
    assert (thin.found[0], thin.recall[-1]) == (1, 1.0)
    assert detection_curve([1.0, 2.0], [False, False]).thinned(5).found.tolist() == [0.0]
