"""``doubtless defer`` from the command line."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError


@pytest.fixture
def scored(tmp_path) -> str:
    """Two pairs of languages, four systems each, as `doubtless score` writes them, with human scores."""
    rng = np.random.default_rng(0)
    rows = []
    for lp in ("en-de", "en-cs"):
        for number, system in enumerate(("north", "south", "east", "west")):
            for seg in range(40):
                human, error = 0.3 * number + rng.normal(), rng.uniform(0.1, 1.5)
                score = human + error * rng.normal()
                rows.append(
                    {
                        "lp": lp,
                        "system": system,
                        "seg": seg,
                        "src": f"Satz {seg}",
                        "mt": "word " * rng.integers(1, 30),
                        "human": human,
                        "score": score,
                        "lower": score - 2 * error,
                        "upper": score + 2 * error,
                        "error": error,
                    }
                )
    path = tmp_path / "scored.tsv"
    pl.DataFrame(rows).write_csv(path, separator="\t")
    return str(path)


def run(capsys, *arguments: str) -> dict:
    assert main(["defer", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_least_confident_fifth_is_marked_with_reason_and_cost(scored, tmp_path, capsys):
    out = str(tmp_path / "out.tsv")
    assert main(["defer", scored, "-o", out]) == 0
    assert "64 of 320 segments chosen for people (confidence): 20.0 %" in capsys.readouterr().out
    frame = pl.read_csv(out, separator="\t")
    chosen = frame.filter(pl.col("defer"))
    assert len(chosen) == 64
    assert chosen["error"].min() > frame.filter(~pl.col("defer"))["error"].max()
    assert sorted(chosen["defer_rank"]) == list(range(1, 65))
    assert chosen["defer_cost"].to_list() == [1.0] * 64
    assert chosen["defer_reason"].str.starts_with("uncertainty ").all()
    assert frame.filter(~pl.col("defer"))["defer_reason"].null_count() == 256


def test_the_table_goes_on_and_the_sentence_does_not(scored, capsys):
    assert main(["defer", scored, "--only", "--budget", "10"]) == 0
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 11
    assert "10 of 320 segments" in found.err


@pytest.mark.parametrize("rule", ["confidence", "score", "width", "chance", "loss", "random"])
def test_a_budget_in_words_or_money_is_kept(scored, capsys, rule):
    arguments = ["--rule", rule, "--threshold", "0", "--budget", "300"]
    words = run(capsys, scored, *arguments, "--unit", "words")
    assert 270 < words["cost"] <= 300
    money = run(capsys, scored, *arguments, "--budget", "50", "--per-word", "0.1", "--per-segment", "0.5")
    assert 45 < money["cost"] <= 50
    assert money["unit"] == "cost"


def test_every_system_is_seen(scored, tmp_path):
    out = str(tmp_path / "out.parquet")
    arguments = ["--rule", "score", "--budget", "10%", "--by", "lp,system", "-o", out]
    assert main(["defer", scored, *arguments]) == 0
    counts = pl.read_parquet(out).group_by("lp", "system").agg(pl.col("defer").sum())
    assert counts["defer"].to_list() == [4] * 8


def test_chances_that_stand_in_the_table_are_used(scored, tmp_path):
    marked, out = str(tmp_path / "marked.parquet"), str(tmp_path / "out.parquet")
    frame = pl.read_csv(scored, separator="\t").with_columns(chance_below_0=pl.int_range(pl.len()) / 1000)
    frame.write_parquet(marked)
    assert main(["defer", marked, "--rule", "chance", "--threshold", "0", "--budget", "1", "-o", out]) == 0
    assert pl.read_parquet(out)["defer"].arg_max() == 319
    assert pl.read_parquet(out)["defer_reason"][319] == "chance to be below 0.0: 0.319"


def test_a_calibration_gives_the_chances(scored, tmp_path, capsys):
    calibration = str(tmp_path / "calibration.json")
    columns = ["--score", "score", "--error", "error"]
    assert main(["calibrate", scored, *columns, "--by", "lp", "--distribution", "-o", calibration]) == 0
    capsys.readouterr()
    for rule in ("chance", "loss"):
        found = run(capsys, scored, "--rule", rule, "--threshold", "0", "--calibration", calibration)
        assert found["deferred"] == 64


def test_drawn_segments_give_means_with_intervals(scored, tmp_path, capsys):
    drawn = str(tmp_path / "drawn.tsv")
    assert main(["defer", scored, "--draw", "--budget", "40%", "--seed", "3", "-o", drawn]) == 0
    frame = pl.read_csv(drawn, separator="\t")
    np.testing.assert_allclose(frame["defer_chance"].sum(), 0.4 * 320)
    # People score what was drawn, and nothing else.
    empty = pl.when(pl.col("defer")).then("human")
    frame.with_columns(empty).write_csv(drawn, separator="\t")
    capsys.readouterr()
    rows = run(capsys, drawn, "--estimate", "--human", "human")
    truth = {
        key: part["human"].mean()
        for key, part in pl.read_csv(scored, separator="\t").group_by("lp", "system")
    }
    assert len(rows) == 8
    assert sum(row["lower"] <= truth[row["lp"], row["system"]] <= row["upper"] for row in rows) >= 6
    assert all(row["n"] == 40 and 14 <= row["scored"] <= 18 for row in rows)
    assert main(["defer", drawn, "--estimate", "--human", "human"]) == 0
    said = capsys.readouterr().out
    assert "Systems, en-cs" in said
    assert "people scored 64 of 160 segments" in said


def test_an_estimate_writes_a_score_for_every_segment(scored, tmp_path, capsys):
    drawn, out = str(tmp_path / "drawn.tsv"), str(tmp_path / "out.parquet")
    assert main(["defer", scored, "--draw", "--budget", "40%", "-o", drawn]) == 0
    capsys.readouterr()
    assert main(["defer", drawn, "--estimate", "--human", "human", "-o", out]) == 0
    assert "people scored 64 of 160 segments" in capsys.readouterr().out
    frame = pl.read_parquet(out)
    rows = run(capsys, drawn, "--estimate", "--human", "human", "-o", out)
    was_drawn = pl.read_csv(drawn, separator="\t")["defer"].to_numpy()
    human, score, combined = (
        frame[name].cast(pl.Float64).to_numpy() for name in ("human", "score", "defer_combined")
    )
    np.testing.assert_array_equal(combined[was_drawn], human[was_drawn])
    # The rest is the metric on the human scale: a line a system, with the slope of its language pair.
    for row in rows:
        of_system = frame.select((pl.col("lp") == row["lp"]) & (pl.col("system") == row["system"]))
        own = of_system.to_series().to_numpy() & ~was_drawn
        np.testing.assert_allclose(np.diff(combined[own]), row["slope"] * np.diff(score[own]), atol=1e-9)
    assert main(["defer", drawn, "--estimate", "--human", "human", "-o", "-"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 321
    assert printed[0].endswith("\tdefer_combined")
    with pytest.raises(DoubtlessError, match="there is a column 'defer_combined' already"):
        main(["defer", out, "--estimate", "--human", "human"])


def test_drawing_by_a_column_keeps_systems_apart(scored, tmp_path):
    """Each system gets its share of each group: the estimate rests on systems drawn by themselves."""
    marked, drawn = str(tmp_path / "marked.parquet"), str(tmp_path / "drawn.parquet")
    frame = pl.read_csv(scored, separator="\t").with_columns(doc=pl.col("seg") // 20)
    frame.write_parquet(marked)
    assert main(["defer", marked, "--draw", "--budget", "25%", "--by", "doc", "-o", drawn]) == 0
    groups = pl.read_parquet(drawn).group_by("lp", "system", "doc")
    counts = groups.agg(pl.col("defer").sum(), pl.col("defer_chance").sum())
    assert len(counts) == 16
    np.testing.assert_allclose(counts["defer_chance"], 5)
    assert counts["defer"].is_between(4, 6).all()


def test_human_scores_of_segments_that_were_not_drawn_do_not_count(scored, tmp_path, capsys):
    drawn = str(tmp_path / "drawn.tsv")
    assert main(["defer", scored, "--draw", "-o", drawn]) == 0
    capsys.readouterr()
    rows = run(capsys, drawn, "--estimate", "--human", "human")
    assert sum(row["scored"] for row in rows) == 64


def test_the_curve_is_drawn(scored, capsys):
    arguments = [scored, "--simulate", "--human", "human", "--resamples", "10"]
    found = run(capsys, *arguments, "--unit", "words")
    assert (found["n"], found["pairs"], found["unit"]) == (320, 2, "words")
    rules = list(dict.fromkeys(row["rule"] for row in found["curves"]))
    assert rules == ["random", "score", "confidence", "loss", "drawn", "oracle-score", "oracle-error"]
    assert all(row["spearman"] == 1 for row in found["curves"] if row["share"] == 1)
    assert main(["defer", *arguments, "--rules", "random,score"]) == 0
    said = capsys.readouterr().out
    assert "system-level Spearman against the share of segments" in said
    assert "score at 20%:" in said
    assert "└" in said


def test_the_curve_is_written_and_shares_are_given_by_groups(scored, tmp_path, capsys):
    arguments = ["--simulate", "--human", "human", "--resamples", "0", "--rules", "random,score,drawn"]
    out = str(tmp_path / "curve.tsv")
    plain = run(capsys, scored, *arguments, "-o", out)["curves"]
    frame = pl.read_csv(out, separator="\t")
    assert frame.columns[:3] == ["rule", "share", "spearman"]
    assert frame["spearman"].to_list() == pytest.approx([row["spearman"] for row in plain])
    assert frame.filter(pl.col("rule") == "random")["gain"].null_count() == 11
    by_system = run(capsys, scored, *arguments, "--by", "system")["curves"]
    moved = [a["rule"] for a, b in zip(plain, by_system, strict=True) if a["spearman"] != b["spearman"]]
    assert {"random", "score"} <= set(moved)
    assert "drawn" not in moved  # systems share alike there anyway
    assert main(["defer", scored, *arguments, "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("rule\tshare\tspearman")


@pytest.fixture
def unbounded(scored, tmp_path) -> str:
    """What `apply` writes if a group has too few calibration rows: no end on one side."""
    path = tmp_path / "unbounded.tsv"
    row = pl.int_range(pl.len())
    frame = pl.read_csv(scored, separator="\t").drop("error")
    ends = {"upper": pl.when(row == 7).then(float("inf")).otherwise("upper")}
    frame.with_columns(**ends).write_csv(path, separator="\t")
    return str(path)


def test_an_infinite_interval_is_the_widest_and_nothing_to_other_rules(unbounded, tmp_path):
    out = str(tmp_path / "out.parquet")
    assert main(["defer", unbounded, "--rule", "width", "--budget", "1", "-o", out]) == 0
    frame = pl.read_parquet(out)
    assert frame["defer"].arg_max() == 7
    assert frame["defer_reason"][7] == "interval inf wide"
    for rule in ("score", "random"):
        assert main(["defer", unbounded, "--rule", rule, "-o", out]) == 0
        assert pl.read_parquet(out)["defer"].sum() == 64
    with pytest.raises(DoubtlessError, match=r"unbounded.tsv:9: column 'upper' is inf"):
        main(["defer", unbounded, "--rule", "confidence"])
    with pytest.raises(DoubtlessError, match="finite"):
        main(["defer", unbounded, "--rule", "width", "--draw"])


@pytest.mark.parametrize("mode", [[], ["--draw"], ["--rule", "loss"]])
def test_an_error_below_zero_is_none(scored, tmp_path, mode):
    """The error of a regression may come out below zero."""
    path, out = tmp_path / "negative.tsv", tmp_path / "out.parquet"
    row = pl.int_range(pl.len())
    frame = pl.read_csv(scored, separator="\t")
    ranks = []
    for error in (0.0, -0.5):
        changed = frame.with_columns(error=pl.when(row == 3).then(error).otherwise("error"))
        changed.write_csv(path, separator="\t")
        assert main(["defer", str(path), *mode, "-o", str(out)]) == 0
        ranks.append(pl.read_parquet(out)["defer"].to_list())
    assert ranks[0] == ranks[1]


def test_words_of_lists_are_not_counted(tmp_path):
    path = tmp_path / "lists.jsonl"
    path.write_text('{"mt": ["a", "b"], "score": 1, "error": 2}\n', encoding="utf-8")
    with pytest.raises(DoubtlessError, match=r"column 'mt' holds List\(String\), expected text"):
        main(["defer", str(path), "--unit", "words"])


@pytest.mark.parametrize(
    ("mode", "option", "said"),
    [
        (
            ["--simulate"],
            ["--budget", "20%"],
            r"--budget has no meaning with --simulate \(every budget is shown",
        ),
        (["--simulate"], ["--rule", "loss"], "--rule has no meaning with --simulate .--rules names"),
        (["--simulate"], ["--only"], "--only has no meaning with --simulate"),
        (["--simulate"], ["--name", "x"], "--name has no meaning with --simulate"),
        (["--estimate"], ["--by", "system"], "--by has no meaning with --estimate"),
        (["--estimate"], ["--only"], "--only has no meaning with --estimate"),
        (["--estimate"], ["--budget", "3"], "--budget has no meaning with --estimate$"),
        (["--estimate"], ["--range", "0,1"], "--range has no meaning with --estimate"),
        (["--estimate"], ["--rules", "score"], "--rules has no meaning with --estimate"),
        ([], ["--even", "1"], "--even has no meaning without --draw or --simulate"),
        ([], ["--resamples", "9"], "--resamples has no meaning without --simulate"),
    ],
)
def test_options_that_would_be_ignored_are_refused(scored, mode, option, said):
    with pytest.raises(DoubtlessError, match=said):
        main(["defer", scored, *mode, "--human", "human", *option])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rule", "loss", "--range", "1,0"], "a range goes from a lower to a higher number, found '1,0'"),
        (["--rule", "loss", "--range", "1"], "a range is two numbers LOW,HIGH, found '1'"),
        (["-o", "marked.txt"], "unknown ending '.txt'"),
        (["--rule", "luck"], "there is no rule 'luck'"),
        (["--rule", "oracle-error"], "there is no rule 'oracle-error'"),
        (["--rule", "chance"], "needs a threshold"),
        (["--simulate"], "--simulate needs human scores"),
        (["--estimate"], "--estimate needs human scores"),
        (["--estimate", "--human", "human"], "no column 'defer_chance'"),
        (["--draw", "--simulate", "--human", "human"], "exclude each other"),
        (["--draw", "--rule", "score"], "chances follow the error to expect"),
        (["--budget", "half"], "a budget is a number"),
        (["--unit", "pages"], "a budget counts segments or words"),
        (["--per-word", "-1"], "prices are not negative"),
        (["--name", "score"], "there is a column 'score' already"),
        (["--score", "score"], "needs to know how uncertain scores are"),
    ],
)
def test_mistakes_are_said_in_one_sentence(scored, arguments, said):
    with pytest.raises(DoubtlessError, match=said):
        main(["defer", scored, *arguments])


def test_a_drawn_segment_without_a_human_score_is_named(scored, tmp_path):
    drawn = str(tmp_path / "drawn.tsv")
    assert main(["defer", scored, "--draw", "-o", drawn]) == 0
    pl.read_csv(drawn, separator="\t").with_columns(human=None).write_csv(drawn, separator="\t")
    with pytest.raises(DoubtlessError, match=r"drawn.tsv:\d+: the segment was drawn and has no human score"):
        main(["defer", drawn, "--estimate", "--human", "human"])
