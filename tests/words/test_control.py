"""Thresholds meet their targets, and what is promised about missed words holds in simulations."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, ttest_1samp

from doubtless.errors import InputError
from doubtless.words.control import (
    as_json,
    choose_threshold,
    control_missed,
    from_json,
    load,
    missed_shares,
    save,
)

words = st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.integers(0, 5)), min_size=1, max_size=30)


def recall(wrong, flags):
    return Fraction(int((wrong & flags).sum()), int(wrong.sum()))


def precision(wrong, flags):
    return Fraction(int((wrong & flags).sum()), int(flags.sum()))


def columns(rows):
    values, wrong, segment = zip(*rows, strict=True)
    return np.array(values, dtype=float), np.array(wrong), np.array(segment)


@given(words, st.sampled_from([0.2, 0.5, 0.8, 1.0]))
def test_a_recall_is_met_and_no_higher_threshold_meets_it(rows, level):
    values, wrong, _ = columns(rows)
    if not wrong.any():
        return
    control = choose_threshold(values, wrong, "recall", level)
    assert recall(wrong, control.flags(values)) >= Fraction(str(level))
    above = values[values > control.threshold]
    if len(above):
        assert recall(wrong, values >= above.min()) < Fraction(str(level))


@given(words, st.sampled_from([0.2, 0.5, 0.8]))
def test_a_precision_is_met_by_the_lowest_threshold_that_can(rows, level):
    values, wrong, _ = columns(rows)
    if not wrong.any():
        return
    possible = [t for t in set(values) if precision(wrong, values >= t) >= Fraction(str(level))]
    if not possible:
        with pytest.raises(InputError, match="no threshold has a precision of"):
            choose_threshold(values, wrong, "precision", level)
        return
    assert choose_threshold(values, wrong, "precision", level).threshold == min(possible)


def by_hand(values, wrong, segment, alpha, clean):
    """The definition of conformal risk control, tried at every threshold that could matter."""
    segments = [s for s in set(segment) if clean or wrong[segment == s].any()]
    best = -inf
    for threshold in [*sorted(set(values)), inf]:
        losses = []
        for s in segments:
            bad = values[(segment == s) & wrong]
            losses.append(Fraction(int((bad < threshold).sum()), len(bad)) if len(bad) else Fraction(0))
        if (sum(losses) + 1) / (len(segments) + 1) <= Fraction(str(alpha)):
            best = threshold
    return best


@given(words, st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.7]), st.booleans())
def test_the_threshold_is_the_highest_that_the_definition_allows(rows, alpha, clean):
    values, wrong, segment = columns(rows)
    if not wrong.any():
        return
    control = control_missed(values, wrong, segment, alpha, clean=clean)
    expected = by_hand(values, wrong, segment, alpha, clean)
    # Between two wrong words every threshold loses as much: what counts is which wrong words are flagged.
    assert (values[wrong] >= control.threshold).tolist() == (values[wrong] >= expected).tolist()
    assert control.threshold >= expected


def test_the_sum_is_exact_where_floats_are_not():
    # 99 segments, alpha 0.29: losses may add up to 100 * 0.29 - 1 = 28, in floats a little less.
    assert 100 * 0.29 - 1 < 28
    assert control_missed(np.arange(99.0), [True] * 99, range(99), 0.29).threshold == 28.0
    # Three thirds make a whole: 1/3 + 1/3 + 1/3 must not exceed a budget of 1.
    values = [0.1, 0.2, 0.3, *[9.0] * 8]
    segment = [0, 0, 0, *range(1, 9)]
    assert control_missed(values, [True] * 11, segment, 0.2).threshold == 9.0


def test_too_few_segments_flag_everything_and_rare_errors_nothing():
    assert control_missed([0.5, 0.6], [True, True], [0, 1], 0.1).threshold == -inf
    values, wrong = np.arange(100.0), np.arange(100) < 2
    assert control_missed(values, wrong, range(100), 0.1, clean=True).threshold == inf
    assert control_missed(values, wrong, range(100), 0.1).threshold == -inf


def simulated(rng, segments):
    """Words of segments: hard segments have more errors, and errors that are harder to see."""
    hard = rng.random(segments)
    sizes = rng.integers(1, 15, size=segments)
    segment = np.repeat(np.arange(segments), sizes)
    wrong = rng.random(len(segment)) < 0.4 * hard[segment]
    suspicion = rng.normal(size=len(segment)) + wrong * (2 - hard[segment])
    return np.round(suspicion, 1), wrong, segment


@pytest.mark.parametrize(("alpha", "clean"), [(0.1, False), (0.3, False), (0.1, True)])
def test_the_expected_share_missed_is_below_alpha_and_not_far_below(alpha, clean):
    rng = np.random.default_rng(1)
    risks = []
    for _ in range(400):
        calibration, new = simulated(rng, 60), simulated(rng, 60)
        control = control_missed(*calibration, alpha, clean=clean)
        shares = missed_shares(control.flags(new[0]), *new[1:])
        n = len(set(new[2])) if clean else len(shares)
        risks.append(shares.sum() / n)
    # Not above alpha beyond what 400 draws explain, and tight: alpha - 2/(n + 1) is the lower bound.
    assert ttest_1samp(risks, alpha, alternative="greater").pvalue > 0.001
    used = np.mean([(np.bincount(s[2][s[1]]) > 0).sum() for s in [simulated(rng, 60) for _ in range(50)]])
    n = 60 if clean else used
    # The bound for losses without ties is alpha - 2/(n + 1); scores are rounded here, ties cost a little.
    assert np.mean(risks) > alpha - 2 / (n + 1) - 0.01


def test_a_promise_with_confidence_fails_as_rarely_as_it_says():
    rng = np.random.default_rng(2)
    alpha, confidence, draws = 0.2, 0.8, 200
    large = simulated(rng, 20_000)
    truth = np.sort(np.round(np.unique(large[0]), 1))
    risk = {t: missed_shares(large[0] >= t, *large[1:]).mean() for t in truth}
    failures, missed = 0, []
    for _ in range(draws):
        control = control_missed(*simulated(rng, 80), alpha, confidence=confidence)
        true = 0.0 if control.threshold == -inf else risk[min(risk, key=lambda t: abs(t - control.threshold))]
        failures += true > alpha
        missed.append(true)
    assert failures <= binom.ppf(0.999, draws, 1 - confidence)
    assert np.mean(missed) > alpha / 3  # not by flagging everything


def test_confidence_asks_for_more_flags_than_expectation():
    sample = simulated(np.random.default_rng(3), 200)
    plain, sure, surer = (control_missed(*sample, 0.1, confidence=c).threshold for c in (None, 0.9, 0.99))
    assert surer <= sure < plain


@pytest.mark.parametrize("rule", ["f1", "precision", "missed", "everything"])
def test_a_stored_threshold_is_the_same_again(rule, tmp_path):
    sample = simulated(np.random.default_rng(4), 50)
    if rule == "missed":
        control = control_missed(*sample, 0.1, confidence=0.9, clean=True)
    elif rule == "everything":
        control = control_missed([0.5], [True], [0], 0.1)
    else:
        control = choose_threshold(*sample[:2], rule, None if rule == "f1" else 0.4)
    path = tmp_path / "threshold.json"
    save(control, path)
    assert load(path) == control
    named = replace(control, signal="tagger", made_with="weights:0123abcd")
    save(named, path)
    assert load(path) == named
    assert json.loads(path.read_text())["promise"] == control.promise


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "this is not a word threshold"),
        ('{"format": "doubtless word threshold", "version": 9}', "version 9 of the format"),
        ('{"format": "doubtless word threshold", "version": 1}', r"damaged \(no 'rule'\)"),
    ],
)
def test_other_files_are_refused_in_one_sentence(content, message, tmp_path):
    path = tmp_path / "threshold.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load(path)


def test_damage_is_named():
    data = as_json(choose_threshold([1.0], [True], "f1"))
    with pytest.raises(ValueError, match="unknown rule"):
        from_json(data | {"rule": "luck"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: choose_threshold([1.0], [False], "f1"), "no calibration word is wrong"),
        (lambda: choose_threshold([], [], "f1"), "no calibration word is wrong"),
        (lambda: choose_threshold([1.0], [True], "recall"), "with a level"),
        (lambda: choose_threshold([1.0], [True], "recall", 1.5), "a recall lies above 0"),
        (lambda: control_missed([1.0], [False], [0], 0.1), "nothing to promise"),
        (lambda: control_missed([1.0], [True], [0], 1.0), "between 0 and 1"),
        (lambda: control_missed([1.0], [True], [0, 1], 0.1), "same length"),
        (lambda: control_missed([np.nan], [True], [0], 0.1), "not a number"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
