from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from simulate import Rows

from doubtless import InputError
from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import CalibrationPlan, apply
from doubtless.conformal.store import Reading, load, save
from doubtless.segments import as_table

COLUMNS = ForecastColumns(score="s", error="e")
READINGS = {
    "split": Reading(COLUMNS),
    "grouped": Reading(COLUMNS, by=("lp",)),
    "two columns": Reading(COLUMNS, by=("lp", "system")),
    "binned": Reading(COLUMNS, bins="@score"),
    "weighted": Reading(COLUMNS, weights="w"),
    "ece": Reading(COLUMNS),
}


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    rows = Rows.draw(rng, n)
    return as_table(
        pl.DataFrame(
            {
                "src": [f"source {seed} {i}" for i in range(n)],
                "mt": [f"translation {i}" for i in range(n)],
                "lp": np.array(["en-de", "zh-en"])[rows.group],
                "system": rng.choice(["x", "y"], n),
                "s": rows.forecast.score,
                "e": rows.forecast.spread(0.1)[0],
                "w": rows.x + 0.1,
                "human": rows.human,
            }
        )
    )


@pytest.mark.parametrize("kind", READINGS)
@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (-9.0, 99.0)])
def test_a_saved_calibration_gives_the_same_intervals(tmp_path, kind, bounds):
    plan = CalibrationPlan(0.2, method="ece" if kind == "ece" else "conformal", bounds=bounds, bins=3)
    made = plan.calibrate(table(), READINGS[kind])
    save(made, tmp_path / "c.json")
    loaded = load(tmp_path / "c.json")
    new = table(50, seed=1)
    one, other = (c.intervals(new, c.forecast(new)) for c in (made, loaded))
    np.testing.assert_array_equal(one.lower, other.lower)
    np.testing.assert_array_equal(one.upper, other.upper)
    assert loaded.signature == made.signature
    assert json.loads((tmp_path / "c.json").read_text())["n"] == 300


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_sided_calibrations_are_saved_with_their_side(tmp_path, side):
    made = CalibrationPlan(0.2, side=side).calibrate(table(), Reading(COLUMNS))
    save(made, tmp_path / "c.json")
    new = table(20, seed=1)
    loaded = load(tmp_path / "c.json")
    found = loaded.intervals(new, loaded.forecast(new))
    assert np.isinf(found.upper if side == "lower" else found.lower).all()


def test_the_distribution_is_saved_when_asked_for(tmp_path):
    plan = CalibrationPlan(0.2, distribution=True)
    for kind in ("split", "grouped", "binned"):
        made = plan.calibrate(table(), READINGS[kind])
        save(made, tmp_path / "c.json")
        loaded, new = load(tmp_path / "c.json"), table(50, seed=1)
        forecast = made.forecast(new)
        np.testing.assert_array_equal(
            made.chance_below(new, forecast, 1.0), loaded.chance_below(new, forecast, 1.0)
        )
    bare = CalibrationPlan(0.2).calibrate(table(), READINGS["split"])
    with pytest.raises(InputError, match="^the calibration holds no predictive distribution"):
        bare.chance_below(table(5), bare.forecast(table(5)), 0.0)


def test_what_groups_borrow_is_in_the_file_and_the_signature(tmp_path):
    made = CalibrationPlan(0.2, borrow=0.25).calibrate(table(), READINGS["grouped"])
    save(made, tmp_path / "c.json")
    loaded = load(tmp_path / "c.json")
    assert (loaded.fitted.borrow, loaded.fitted.factors) == (0.25, made.fitted.factors)
    assert "|borrow:0.25|" in loaded.signature


def test_an_infinite_factor_survives_the_file(tmp_path):
    plan = CalibrationPlan(0.01)
    save(plan.calibrate(table(20), Reading(COLUMNS)), tmp_path / "c.json")
    assert load(tmp_path / "c.json").fitted.factor == np.inf


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe", "this is not a calibration file .not valid JSON."),
        (b"[1, 2]", "this is not a calibration file"),
        (b'{"format": "doubtless calibration", "version": 99}', "version 99 of the format, expected 1"),
        (
            b'{"format": "doubtless calibration", "version": 1}',
            "the calibration file is damaged .no 'range'.",
        ),
    ],
)
def test_files_that_are_no_calibrations_are_refused(tmp_path, content, sentence):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {sentence}$"):
        load(path)


@pytest.mark.parametrize(
    "key", ["kind", "alpha", "range", "columns", "by", "groups", "side", "unseen", "reference"]
)
@pytest.mark.parametrize("wrong", ["x", -1, [], [[]], {"x": 1}])
def test_every_damaged_calibration_is_refused_in_one_sentence(tmp_path, key, wrong):
    path = tmp_path / "c.json"
    save(CalibrationPlan(0.2).calibrate(table(60), READINGS["grouped"]), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: wrong}))
    if (key, wrong) in [("by", "x"), ("by", []), ("by", [[]]), ("groups", []), ("by", {"x": 1})]:
        return  # still a calibration, though perhaps of nothing
    with pytest.raises(InputError, match=rf"^{path}: [^\n]*$"):
        load(path)


def test_rows_of_the_calibration_are_recognised(tmp_path):
    save(CalibrationPlan(0.2).calibrate(table(), Reading(COLUMNS)), tmp_path / "c.json")
    loaded = load(tmp_path / "c.json")
    mixed = as_table(pl.concat([table(seed=1).frame, table().frame[:7]]))
    applied = apply(loaded, mixed, prefix="cal_")
    assert applied.warnings == [
        "7 of 307 rows took part in the calibration: the promised rate does not hold for them"
    ]


def test_a_shift_is_warned_of_by_inputs_and_by_errors():
    calibration = CalibrationPlan(0.2).calibrate(table(), Reading(COLUMNS))
    new = table(400, seed=1).frame
    moved = apply(calibration, as_table(new.with_columns(pl.col("s") + 2)))
    assert len(moved.warnings) == 1
    assert moved.warnings[0].startswith(
        "the scores of these rows do not look like those of the calibration rows"
    )
    worse = apply(calibration, as_table(new.with_columns(pl.col("human") + 6)), human="human")
    assert worse.warnings[0].startswith("the errors of these rows do not look like")
    assert worse.coverage < 0.6
    assert not apply(calibration, as_table(new), human="human").warnings


def test_rows_without_a_human_score_are_left_out_of_the_calibration():
    human = table(100).frame["human"].to_list()
    human[3] = None
    holed = as_table(table(100).frame.with_columns(pl.Series("human", human)))
    assert CalibrationPlan(0.2).calibrate(holed, Reading(COLUMNS)).fitted.n == 99


@pytest.mark.parametrize(
    ("plan", "reading", "sentence"),
    [
        ({"method": "magic"}, READINGS["split"], "unknown method 'magic', expected conformal or ece"),
        ({"method": "ece"}, READINGS["grouped"], "the ece method knows neither groups.*"),
        (
            {},
            Reading(COLUMNS, by=("lp",), bins="s"),
            "by and bins exclude each other: calibrate by one of them",
        ),
        (
            {"distribution": True, "borrow": 0.5},
            READINGS["grouped"],
            "groups that borrow have no predictive distribution of their own",
        ),
        ({"borrow": 0.5}, READINGS["split"], r"policies .* and borrowing, need groups \(--by\)"),
        (
            {"distribution": True},
            READINGS["weighted"],
            "a weighted calibration has no predictive distribution",
        ),
    ],
)
def test_plans_that_contradict_themselves_are_refused(plan, reading, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        CalibrationPlan(**plan).calibrate(table(), reading)


def test_a_column_that_is_there_already_is_not_overwritten():
    calibration = CalibrationPlan(0.2).calibrate(table(), Reading(COLUMNS))
    taken = as_table(table(10).frame.with_columns(lower=0.0))
    with pytest.raises(InputError, match="^the data: there is a column 'lower' already"):
        apply(calibration, taken)
    assert "cal_lower" in apply(calibration, taken, prefix="cal_").frame.columns


def test_flags_say_what_is_not_as_it_should_be():
    plan = CalibrationPlan(0.2, unseen="pooled", small="unbounded")
    calibration = plan.calibrate(table(), Reading(COLUMNS, by=("lp",)))
    new = table(3, seed=2).frame.with_columns(lp=pl.Series(["en-de", "fr-en", "fr-en"]))
    assert apply(calibration, as_table(new)).frame["flags"].to_list() == ["", "unseen-group", "unseen-group"]
    lonely = CalibrationPlan(0.01).calibrate(table(10), Reading(COLUMNS))
    applied = apply(lonely, as_table(table(2, seed=3).frame))
    assert applied.frame["flags"].to_list() == ["too-few-calibration-rows"] * 2
    assert applied.warnings[0] == "2 of 2 intervals are unbounded (their flags say why)"


def test_human_scores_outside_the_declared_range_are_refused():
    with pytest.raises(
        InputError, match=r"^the data, row \d+: 'human' is .*, outside the declared range 0 to 1$"
    ):
        CalibrationPlan(bounds=(0.0, 1.0)).calibrate(table(), Reading(COLUMNS))


def test_the_chance_respects_the_declared_range():
    made = CalibrationPlan(0.2, bounds=(-9.0, 99.0), distribution=True).calibrate(table(), Reading(COLUMNS))
    new = table(5, seed=1)
    assert made.chance_below(new, made.forecast(new), -9.0).tolist() == [0.0] * 5
    assert made.chance_below(new, made.forecast(new), 100.0).tolist() == [1.0] * 5


def test_nothing_is_said_of_the_chance_in_an_unseen_group():
    plan = CalibrationPlan(0.2, unseen="unbounded", distribution=True)
    made = plan.calibrate(table(), READINGS["grouped"])
    new = as_table(table(2, seed=2).frame.with_columns(lp=pl.Series(["en-de", "fr-en"])))
    applied = apply(made, new, below=[1.0])
    assert applied.frame["chance_below_1"].is_null().to_list() == [False, True]
    assert applied.frame["flags"].to_list() == ["", "unseen-group"]


def test_an_unseen_group_is_named_with_its_row_and_what_to_do():
    made = CalibrationPlan(0.2).calibrate(table(), READINGS["grouped"])
    new = as_table(table(2, seed=2).frame.with_columns(lp=pl.Series(["en-de", "fr-en"])))
    with pytest.raises(
        InputError, match=r"^the data, row 2: group 'fr-en' was not calibrated \(calibrate with --un"
    ):
        apply(made, new)


def test_a_new_mix_of_groups_is_no_drift_where_groups_are_calibrated():
    known, new = table(2_000), table(2_000, seed=5).frame
    shifted = new.with_columns(s=pl.when(pl.col("lp") == "zh-en").then(pl.col("s") + 3).otherwise("s"))
    moved = known.frame.with_columns(s=pl.when(pl.col("lp") == "zh-en").then(pl.col("s") + 3).otherwise("s"))
    mostly = as_table(shifted.filter((pl.col("lp") == "zh-en") | (pl.int_range(pl.len()) % 10 == 0)))
    grouped = CalibrationPlan(0.2).calibrate(as_table(moved), READINGS["grouped"])
    assert not apply(grouped, mostly).warnings
    split = CalibrationPlan(0.2).calibrate(as_table(moved), READINGS["split"])
    assert any("scores of these rows" in warning for warning in apply(split, mostly).warnings)


def test_a_sorted_table_is_no_drift():
    made = CalibrationPlan(0.2).calibrate(table(), Reading(COLUMNS))
    assert not apply(made, as_table(table(500, seed=3).frame.sort("s"))).warnings


def test_a_small_group_has_the_chances_of_its_intervals():
    frame = table(300).frame
    few = frame.with_columns(lp=pl.Series(["few"] * 2 + ["many"] * 298))
    plan = CalibrationPlan(0.1, small="pooled", distribution=True)
    made = plan.calibrate(as_table(few), Reading(COLUMNS, by=("lp",)))
    new = as_table(few[:1])
    pooled = CalibrationPlan(0.1, distribution=True).calibrate(as_table(few), Reading(COLUMNS))
    assert made.chance_below(new, made.forecast(new), 1.0) == pooled.chance_below(
        new, made.forecast(new), 1.0
    )


@pytest.mark.parametrize("bounds", [(0.0, np.inf), (-np.inf, 1.0)])
def test_a_range_with_one_end_is_valid_json(tmp_path, bounds):
    data = as_table(table(50).frame.with_columns(human=pl.lit(0.5)))
    save(CalibrationPlan(bounds=bounds).calibrate(data, Reading(COLUMNS)), tmp_path / "c.json")
    assert "Infinity" not in (tmp_path / "c.json").read_text()
    assert load(tmp_path / "c.json").fitted.bounds == bounds
