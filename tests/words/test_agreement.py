"""Figures by annotator against scikit-learn, alpha against its author's example, simulated annotators."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, spearmanr, t
from sklearn.metrics import average_precision_score, f1_score

from doubtless.errors import InputError
from doubtless.metaeval.detection import Ranking, detection_curve
from doubtless.words import agreement
from doubtless.words.agreement import (
    annotator_agreement,
    edit_count_correlations,
    judge,
    krippendorff_alpha,
    precision_recall,
    try_thresholds,
)
from doubtless.words.difference import differences
from doubtless.words.judged import Judged

NAN = np.nan

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability": four observers, twelve units.
EXAMPLE = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
]


def test_alpha_of_the_published_example():
    assert krippendorff_alpha(EXAMPLE, "nominal") == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(EXAMPLE, "interval") == pytest.approx(0.849, abs=5e-4)


def alpha_by_pairs(ratings, distance):
    """The definition: mean distance of pairs within units over that of all pairs of pairable values."""
    units = [[x for x in column if not np.isnan(x)] for column in np.array(ratings, dtype=float).T]
    units = [unit for unit in units if len(unit) > 1]
    values = [x for unit in units for x in unit]
    n = len(values)
    if not n:
        return NAN
    within = sum(distance(a, b) / (len(unit) - 1) for unit in units for a, b in permutations(unit, 2)) / n
    between = sum(distance(a, b) for a, b in permutations(values, 2)) / (n * (n - 1))
    return 1 - within / between if between else NAN


ratings = st.integers(2, 4).flatmap(
    lambda raters: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.5, NAN]), min_size=raters, max_size=raters),
        min_size=1,
        max_size=8,
    )
)


@given(ratings)
def test_alpha_is_what_all_pairs_give(columns):
    table = np.array(columns).T
    distances = {"nominal": lambda a, b: float(a != b), "interval": lambda a, b: (a - b) ** 2}
    for scale, distance in distances.items():
        expected = alpha_by_pairs(table, distance)
        assert krippendorff_alpha(table, scale) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_alpha_of_labels_does_not_depend_on_the_scale():
    labels = (np.random.default_rng(0).random((3, 50)) < 0.3).astype(float)
    assert krippendorff_alpha(labels, "nominal") == pytest.approx(krippendorff_alpha(labels, "interval"))


def test_alpha_of_strangers_is_about_zero_and_of_twins_one():
    rng = np.random.default_rng(1)
    labels = (rng.random((3, 20_000)) < 0.2).astype(float)
    assert abs(krippendorff_alpha(labels)) < 0.02
    assert krippendorff_alpha(labels[[0, 0]]) == 1.0
    assert np.isnan(krippendorff_alpha(np.zeros((3, 5))))
    assert np.isnan(krippendorff_alpha([[1.0, NAN], [NAN, 1.0]]))


def annotated(rng, segments=60, size=8, annotators=3, groups=("de", "it"), habit=0.3, missing=0.0):
    """Words with a hidden badness that annotators mark with noise and thresholds of their own."""
    n = segments * size
    badness = rng.normal(size=n)
    labels = {}
    for a in range(annotators):
        marks = (badness + 0.7 * rng.normal(size=n) > 1 + habit * rng.normal()).astype(float)
        labels[f"t{a}"] = np.where(np.repeat(rng.random(segments), size) < missing, NAN, marks)
    scores = {"good": badness + rng.normal(size=n), "weak": badness + 3 * rng.normal(size=n)}
    group = [groups[i % len(groups)] for i in range(segments)]
    return Judged(scores, labels, np.repeat(np.arange(segments), size), group)


def find(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_figures_are_those_of_scikit_learn_averaged_over_annotators_then_groups(missing):
    judged = annotated(np.random.default_rng(2), missing=missing)
    rows = judge(judged)
    means = []
    for group in judged.groups:
        inside = np.array([g == group for g in judged.group])[judged.segment]
        by_annotator = []
        for name, labels in judged.labels.items():
            words = inside & ~np.isnan(labels)
            expected = average_precision_score(labels[words] == 1, judged.scores["good"][words])
            (row,) = find(rows, group=group, annotator=name, metric="good")
            assert row["ap"] == pytest.approx(expected, abs=1e-12)
            (chance,) = find(rows, group=group, annotator=name, metric="random")
            share = labels[words].mean()
            assert chance["ap"] == pytest.approx(share)
            assert chance["f1"] == pytest.approx(f1_score(labels[words], np.ones(words.sum())))
            by_annotator.append(expected)
        (row,) = find(rows, group=group, annotator="mean", metric="good")
        assert row["ap"] == pytest.approx(np.mean(by_annotator))
        means.append(np.mean(by_annotator))
    (row,) = find(rows, group="mean", metric="good")
    assert row["ap"] == pytest.approx(np.mean(means))


def test_humans_are_judged_by_each_other():
    judged = annotated(np.random.default_rng(3), groups=("de",))
    rows = judge(judged)
    for name, labels in judged.labels.items():
        others = [
            average_precision_score(labels, marks) for other, marks in judged.labels.items() if other != name
        ]
        found = {
            kind: find(rows, annotator=name, metric=f"human {kind}")[0]["ap"]
            for kind in ("min", "mean", "max")
        }
        assert found == pytest.approx({"min": min(others), "mean": np.mean(others), "max": max(others)})


def test_a_threshold_from_other_words_is_no_better_than_the_best():
    rng = np.random.default_rng(4)
    judged, calibration = annotated(rng, habit=0), annotated(rng, habit=0)
    for rows in (judge(judged), judge(judged, calibration)):
        for row in find(rows, metric="good"):
            assert 0.6 * row["f1"] < row["f1_calibrated"] <= row["f1"] + 1e-12


def test_calibrated_f1_is_that_of_the_flags():
    rng = np.random.default_rng(5)
    judged, calibration = annotated(rng, groups=("de",)), annotated(rng, groups=("de",))
    labels, suspicion = calibration.labels["t0"], calibration.scores["good"]
    wrong = labels == 1
    best = max(
        np.unique(suspicion),
        key=lambda x: 2 * (wrong & (suspicion >= x)).sum() / ((suspicion >= x).sum() + wrong.sum()),
    )
    expected = f1_score(judged.labels["t0"], judged.scores["good"] >= best)
    (row,) = find(judge(judged, calibration), annotator="t0", metric="good")
    assert row["f1_calibrated"] == pytest.approx(expected)


def test_an_annotator_without_marks_has_no_figures_and_nobody_is_refused():
    words = {"m": np.arange(4.0)}, np.array([0, 0, 1, 1]), ["de", "de"]
    labels = {"a": np.array([0.0, 0, 0, 1]), "b": np.zeros(4)}
    rows = judge(Judged(words[0], labels, *words[1:]))
    assert {row["annotator"] for row in rows} == {"a", "mean"}
    with pytest.raises(InputError, match="nothing to detect"):
        judge(Judged(words[0], {"b": np.zeros(4)}, *words[1:]))


def test_curves_are_points_of_the_whole_curve():
    judged = annotated(np.random.default_rng(6), groups=("de",))
    rows = find(precision_recall(judged, points=20), annotator="t1", metric="good")
    curve = detection_curve(judged.scores["good"], judged.labels["t1"] == 1)
    points = set(zip(curve.threshold, curve.precision, curve.recall, strict=True))
    assert {(row["threshold"], row["precision"], row["recall"]) for row in rows} <= points
    assert 15 <= len(rows) <= 21
    assert rows[-1]["recall"] == 1.0


def test_promises_are_reported_with_what_other_words_kept():
    rng = np.random.default_rng(7)
    calibration, judged = (annotated(rng, segments=300, habit=0) for _ in range(2))
    controls, rows = try_thresholds(judged, calibration, "missed", 0.2)
    for row in rows:
        assert row["threshold"] == controls[row["metric"]][row["annotator"]].threshold
        assert row["missed"] < 0.2 + 5 * row["standard_error"]
    flagged = {metric: np.mean([r["flagged"] for r in find(rows, metric=metric)]) for metric in controls}
    assert flagged["good"] < flagged["weak"]


def test_thresholds_meet_their_target_where_they_were_chosen_and_are_counted_elsewhere():
    rng = np.random.default_rng(8)
    calibration, judged = (annotated(rng, segments=60, habit=0) for _ in range(2))
    for rule, level in (("recall", 0.7), ("precision", 0.25), ("f1", None)):
        _, here = try_thresholds(calibration, calibration, rule, level)
        assert all(row[rule] >= level for row in here if level is not None)
        for row in try_thresholds(judged, calibration, rule, level)[1]:
            seen, bad = judged.seen(row["annotator"])
            flags = judged.scores[row["metric"]][seen] >= row["threshold"]
            assert row["precision"] == pytest.approx(bad[flags].mean())
            assert row["recall"] == pytest.approx(flags[bad].mean())
            assert row["flagged"] == pytest.approx(flags.mean())


# Subsets of annotators -------------------------------------------------------------------------------------


def test_subset_correlations_are_those_of_all_subsets():
    judged = annotated(np.random.default_rng(8), annotators=4, groups=("de",))
    rows = edit_count_correlations(judged)
    for size in range(1, 5):
        expected = [
            spearmanr(judged.scores["good"], sum(judged.labels[name] for name in subset)).statistic
            for subset in combinations(judged.labels, size)
        ]
        (row,) = find(rows, metric="good", annotators=size)
        assert row["subsets"] == len(expected)
        assert row["median"] == pytest.approx(np.median(expected))
        assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))


def test_more_annotators_show_more_of_a_metric_and_agree_more():
    judged = annotated(np.random.default_rng(9), segments=200, annotators=6, groups=("de",))
    rows = find(edit_count_correlations(judged), metric="good")
    medians = [row["median"] for row in rows]
    assert medians == sorted(medians)
    assert rows[-1]["low"] == rows[-1]["high"]
    widths = [row["high"] - row["low"] for row in rows]
    assert widths[0] > widths[2] > widths[4]


def test_words_that_one_of_a_subset_did_not_see_are_left_out():
    judged = annotated(np.random.default_rng(10), missing=0.5, annotators=2, groups=("de",))
    marks = judged.marks
    both = ~np.isnan(marks).any(axis=1)
    expected = spearmanr(judged.scores["good"][both], marks[both].sum(axis=1)).statistic
    (row,) = find(edit_count_correlations(judged), metric="good", annotators=2)
    assert row["median"] == pytest.approx(expected)


def test_many_subsets_are_sampled(monkeypatch):
    monkeypatch.setattr(agreement, "MOST_SUBSETS", 5)
    judged = annotated(np.random.default_rng(11), annotators=5, groups=("de",))
    assert [row["subsets"] for row in find(edit_count_correlations(judged), metric="good")] == [5, 5, 5, 5, 1]


def test_agreement_of_words_and_of_counts():
    judged = annotated(np.random.default_rng(12), groups=("de", "it"), missing=0.2)
    rows = annotator_agreement(judged)
    part = judged.of_group("it")
    assert rows[1]["alpha_words"] == krippendorff_alpha(part.marks.T)
    counts = [
        [labels[part.segment == s].sum() for s in range(len(part.group))] for labels in part.labels.values()
    ]
    assert rows[1]["alpha_counts"] == pytest.approx(krippendorff_alpha(counts, "interval"))


# Differences -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3)), min_size=1, max_size=20))
def test_weighted_figures_are_those_of_repeated_units(rows):
    values, wrong, unit = (np.array(column) for column in zip(*rows, strict=True))
    weights = np.array([2.0, 0.0, 1.0, 3.0])
    times = weights[unit].astype(int)
    found = tuple(float(values[0]) for values in Ranking.of(values, wrong, unit).figures(weights))
    if not np.repeat(wrong, times).any():
        assert np.isnan(found).all()
        return
    curve = detection_curve(np.repeat(values, times), np.repeat(wrong, times))
    assert found == pytest.approx((curve.average_precision, curve.best(curve.f1)[0]))


def test_the_value_is_the_difference_of_the_averages():
    judged = annotated(np.random.default_rng(13))
    means = {row["metric"]: row for row in find(judge(judged), group="mean")}
    for figure in ("ap", "f1"):
        (found,) = differences(judged, figure, resamples=50)
        assert found.value == pytest.approx(means["good"][figure] - means["weak"][figure])
        assert found.low < found.value < found.high
        assert (found.annotators, found.segments) == (3, 60)


def test_a_clear_difference_is_seen_and_identical_metrics_are_not_told_apart():
    judged = annotated(np.random.default_rng(14), segments=200)
    scores = {**judged.scores, "same": judged.scores["good"]}
    found = differences(Judged(scores, judged.labels, judged.segment, judged.group), resamples=200)
    by_pair = {(f.first, f.second): f for f in found}
    assert by_pair["good", "weak"].p_holm < 0.01
    assert by_pair["good", "same"].p == 1.0
    assert all(f.p <= f.p_holm for f in found)


def test_more_annotators_who_differ_widen_the_doubt_that_one_cannot_show():
    judged = opinionated(np.random.default_rng(15), annotators=4, segments=300)
    alone = Judged(judged.scores, {"t0": judged.labels["t0"]}, judged.segment, judged.group)
    (one,), (four,) = differences(alone, resamples=200), differences(judged, resamples=200)
    assert one.annotator_share == 0
    assert four.annotator_share > 0.5
    assert four.error > one.error


def test_one_annotator_is_compared_with_the_segments_students_t():
    judged = annotated(np.random.default_rng(18), annotators=1)
    (found,) = differences(judged, resamples=50)
    assert found.p == pytest.approx(2 * t.sf(abs(found.value) / found.error, 59))
    assert found.high - found.value == pytest.approx(found.error * t.ppf(0.975, 59))


@pytest.mark.parametrize("annotators", [1, 3])
def test_one_segment_a_group_says_nothing_about_chance(annotators):
    rng = np.random.default_rng(19)
    judged = annotated(rng, segments=2, annotators=annotators)
    segment, group = np.unique(judged.group, return_index=True)[1], judged.groups
    alone = judged.of_segments(np.isin(np.arange(len(judged.group)), segment))
    assert len(alone.group) == len(alone.groups) == len(group)
    (found,) = differences(alone, resamples=50)
    assert np.isfinite(found.value)
    assert np.isnan([found.p, found.p_holm, found.low, found.high, found.error]).all()


def test_a_difference_that_no_draw_moves_is_of_unknown_error():
    # Each segment has one wrong word; one metric always puts it first, the other always last.
    wrong = np.tile([1.0, 0.0], 5)
    judged = Judged({"m": wrong, "n": -wrong}, {"a": wrong}, np.arange(10) // 2, ["de"] * 5)
    (found,) = differences(judged, resamples=50)
    assert found.value == pytest.approx(0.5)
    assert np.isnan([found.p, found.low, found.high]).all()


def opinionated(rng, annotators, segments, size=8):
    """Two equally good metrics of two kinds of errors; annotators care more about one kind or the other."""
    n = segments * size
    kinds = rng.normal(size=(2, n))
    labels = {}
    for a in range(annotators):
        angle = np.pi / 4 + 0.5 * rng.normal()
        care = np.cos(angle) * kinds[0] + np.sin(angle) * kinds[1]
        labels[f"t{a}"] = (care + 0.5 * rng.normal(size=n) > 1).astype(float)
    scores = {"first": kinds[0] + rng.normal(size=n), "second": kinds[1] + rng.normal(size=n)}
    return Judged(scores, labels, np.repeat(np.arange(segments), size), ["de"] * segments)


@pytest.mark.parametrize("annotators", [3, 6])
def test_equal_metrics_are_rarely_found_different_whatever_annotators_prefer(annotators):
    rng = np.random.default_rng(16)
    draws, level = 120, 0.05
    false = sum(
        differences(opinionated(rng, annotators, 30), resamples=80, seed=i)[0].p < level for i in range(draws)
    )
    assert false <= binom.ppf(0.999, draws, level)


# Bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ({"m": [1.0]}, {}, "no annotators"),
        ({"m": [1.0]}, {"a": [1.0, 0.0]}, "1 values of 'm' for 2 words"),
        ({"m": [1.0, NAN]}, {"a": [1.0, 0.0]}, "a suspicion of 'm' is missing"),
        ({"m": [1.0, 2.0]}, {"a": [1.0, 0.5]}, "neither 0 nor 1"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(scores, labels, message):
    arrays = ({k: np.array(v) for k, v in part.items()} for part in (scores, labels))
    with pytest.raises(InputError, match=message):
        Judged(*arrays, np.array([0, 0]), ["de"])


def test_bad_wishes_are_refused_in_one_sentence():
    judged = annotated(np.random.default_rng(17))
    with pytest.raises(InputError, match="no group 'it'"):
        judge(judged, annotated(np.random.default_rng(17), groups=("de",)))
    with pytest.raises(InputError, match="ap or f1"):
        differences(judged, "luck")
    with pytest.raises(InputError, match="nominal or interval"):
        krippendorff_alpha([[1.0]], "ordinal")
