from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError

sys.path.insert(0, str(Path(__file__).parents[1] / "metaeval"))

QUICK = ["--draws", "50", "--resamples", "20", "--splits", "2"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for pair in ("en-de", "en-cs"):
        for s in range(5):
            for i in range(40):
                q = rng.normal() + 0.4 * s
                sd = float(rng.gamma(2.0, 0.3))
                rows.append(
                    {
                        "lp": pair,
                        "system": f"s{s}",
                        "seg": i,
                        "src": f"source {i}",
                        "mt": f"text {s} {i}",
                        "ref": f"text {i}",
                        "human": None if rng.random() < 0.05 else round(2 * q) / 2,
                        "good": q + 0.3 * rng.normal(),
                        "a": q + rng.normal(),
                        "b": q + rng.normal(),
                        "bad": 3 * rng.normal() - q,
                        "sd": sd,
                    }
                )
    path = tmp_path / "scores.jsonl"
    pl.DataFrame(rows).write_ndjson(path)
    return str(path)


def test_metrics_are_compared_on_both_levels_with_their_doubt(table, capsys):
    spec = "good,ens=a+b,sure=good:sd,-bad"
    assert main(["evaluate", table, "--levels", "segment,system", "--compare", spec, *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["missing"] > 0
    levels = {row["statistic"].split(":")[0] for row in found["comparisons"]}
    assert levels == {"segment", "system"}
    for row in found["comparisons"]:
        assert {m["metric"] for m in row["metrics"]} == {"good", "ens", "sure", "bad"}
        assert row["metrics"][0]["value"] >= row["metrics"][-1]["value"]
        assert set(row["metrics"][0]["pairs"]) == {"en-de", "en-cs"}
        assert "version:doubtless." in row["signature"]
    doubt = found["doubt"]
    assert doubt["good"]["ups"] is None
    assert doubt["ens"]["ups"] is not None
    for name in ("good", "ens", "sure", "bad"):
        assert doubt[name]["coverage"] == pytest.approx(0.9, abs=0.06)
    assert doubt["good"]["width"] < doubt["bad"]["width"]


def test_the_tables_for_people_show_figures_ranks_and_signatures(table, capsys):
    assert main(["evaluate", table, "--levels", "segment", "--compare", "good,ens=a+b", *QUICK]) == 0
    out = capsys.readouterr().out
    for word in ("coverage", "95 % interval", "stat:segment:acc_eq*/item", "en-cs", "(1)"):
        assert word in out


def test_baselines_join_in(table, capsys):
    pytest.importorskip("sacrebleu")
    arguments = [
        "--compare",
        "good",
        "--baselines",
        "chrF",
        "--statistics",
        "segment:pearson,system:accuracy",
    ]
    assert main(["evaluate", table, *arguments, *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"][1].startswith("metric:chrF|")
    assert {m["metric"] for m in found["comparisons"][0]["metrics"]} == {"good", "chrF"}


@pytest.mark.parametrize("year", ["wmt23", "wmt24"])
def test_the_rules_of_a_year_apply_to_tables(table, capsys, year):
    assert main(["evaluate", table, "--compare", "good,a", "--preset", year, *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["metric"] for m in found["overall"]] == ["good", "a"]
    assert main(["evaluate", table, "--compare", "good,a", "--preset", year, *QUICK]) == 0
    assert f"preset:{year}" in capsys.readouterr().out


def test_a_folder_of_the_metrics_task_is_evaluated(tmp_path, capsys):
    from testset import write_test_set

    root = tmp_path / "wmt24"
    write_test_set(root, "en-es")
    extra = root / "metric-scores" / "en-es" / "other-refB.seg.score"
    mine = tmp_path / "mine.seg.score"
    mine.write_bytes(extra.read_bytes())
    arguments = [str(root), "--preset", "wmt24", "--scores", str(mine), *QUICK, "--json"]
    assert main(["evaluate", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {m["metric"] for m in found["overall"]} == {"good", "mine", "poor[noref]"}
    assert main(["evaluate", str(root), "--reference", "refA", "--levels", "system", *QUICK]) == 0
    assert "system:spa" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--levels", "document", "--compare", "good"], "a level is segment or system, found 'document'"),
        (["--compare", "nothing"], "no column 'nothing'"),
        (["--levels", "segment"], "there are no metrics to compare"),
        (["--compare", "good,good"], "a metric is named twice"),
        (["--compare", "good", "--preset", "wmt99"], "there are no rules 'wmt99'"),
        (["--compare", "good", "--item", "lp"], "occurs more than once"),
    ],
)
def test_mistakes_are_one_sentence(table, arguments, sentence):
    with pytest.raises(DoubtlessError, match=sentence):
        main(["evaluate", table, *arguments, *QUICK])


def test_a_folder_with_a_choice_asks_for_it(tmp_path):
    from testset import write_test_set

    write_test_set(tmp_path)
    with pytest.raises(DoubtlessError, match="which references for en-de"):
        main(["evaluate", str(tmp_path), "--levels", "segment"])


@pytest.fixture
def annotated(table, tmp_path):
    """The table without its human scores, and MQM errors of most of its translations."""
    rows = pl.read_ndjson(table)
    scores = tmp_path / "metrics.jsonl"
    rows.drop("human").write_ndjson(scores)
    rated = rows.filter(pl.col("human").is_not_null())
    lines = ["lp\tsystem\tseg_id\trater\tseverity\tcategory"]
    for lp, system, seg, human in rated.select("lp", "system", "seg", "human").iter_rows():
        severity = "Major" if human < 0 else "Minor" if human < 1 else "no-error"
        lines.append(f"{lp}\t{system}\t{seg}\tr1\t{severity}\tStyle")
    lines.append("en-de\tunknown\t0\tr1\tMajor\tStyle")
    ratings = tmp_path / "mqm.tsv"
    ratings.write_text("\n".join(lines) + "\n")
    return str(scores), str(ratings), rated.height


def test_annotations_make_the_human_scores_of_a_table(annotated, capsys):
    scores, ratings, rated = annotated
    arguments = [scores, "--ratings", ratings, "--item", "seg=seg_id", "--compare", "good,bad", *QUICK]
    assert main(["evaluate", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["missing"] == found["without_human"] == 400 - rated
    assert f"{400 - rated} of 400 rows have no human score" in err
    assert f"1 of {rated + 1} rated translations are not in {scores}, the first is 'en-de unknown 0'" in err
    assert found["comparisons"][0]["metrics"][0]["metric"] == "good"
    assert "|human:mqm.tsv|" in found["comparisons"][0]["signature"]
    assert main(["evaluate", scores, "--ratings", ratings, "--item", "seg=seg_id", "--score", "good"]) == 0
    assert "human:mqm.tsv|alpha:0.1|splits:20" in capsys.readouterr().out


def test_scores_that_are_there_are_not_overwritten(table, annotated):
    arguments = ["--ratings", annotated[1], "--item", "seg=seg_id", "--compare", "good"]
    with pytest.raises(DoubtlessError, match="there is a column 'human' already"):
        main(["evaluate", table, *arguments])


def test_annotations_make_the_human_scores_of_a_folder(tmp_path, capsys):
    from testset import write_test_set

    human = write_test_set(tmp_path)[:3]
    lines = ["system,line,esa"]
    for system, row in zip("ABC", human, strict=True):
        lines += [f"{system},{i},{50 + 10 * score}" for i, score in enumerate(row) if not np.isnan(score)]
    ratings = tmp_path / "esa.csv"
    ratings.write_text("\n".join([*lines, "other,0,50"]) + "\n")
    common = [str(tmp_path), "--reference", "refA", "--statistics", "segment:kendall/item", *QUICK, "--json"]
    assert main(["evaluate", *common, "--ratings", str(ratings), "--item", "line"]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out)["comparisons"][0]
    assert "system 'other' is left out: it has human scores, but no system-outputs" in err
    assert main(["evaluate", *common]) == 0
    stored = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert made["metrics"] == stored["metrics"]
    assert "human:esa.csv|ref:refA" in made["signature"]
    with pytest.raises(DoubtlessError, match="--human and --ratings both name human scores"):
        main(["evaluate", *common, "--ratings", str(ratings), "--item", "line", "--human", "mqm"])


def test_every_metric_and_every_doubt_carries_a_signature(table, capsys):
    assert main(["evaluate", table, "--compare", "ens=a+b,sure=good:sd,-bad", *QUICK, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["metrics"]
    assert lines[:3] == [
        "metric:ens|samples:a+b",
        "metric:sure|score:good|sd:sd",
        "metric:bad|score:bad|negated",
    ]
    assert lines[3].startswith("doubt:ups.coverage.width|human:human|alpha:0.1|splits:2|")


def test_baselines_score_the_texts_of_a_folder(tmp_path, capsys):
    pytest.importorskip("sacrebleu")
    from testset import write_test_set

    write_test_set(tmp_path)
    arguments = [str(tmp_path), "--reference", "refA", "--baselines", "chrF", "--levels", "system", *QUICK]
    assert main(["evaluate", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "chrF" in {m["metric"] for m in found["comparisons"][0]["metrics"]}
    assert found["metrics"][0].startswith("metric:chrF|")


def test_williams_test_is_an_option(table, capsys):
    arguments = [table, "--compare", "good,a", "--statistics", "system:pearson", "--test", "williams", *QUICK]
    assert main(["evaluate", *arguments, "--where", "lp = 'en-de'", "--json"]) == 0
    assert "test:williams.1.exact" in json.loads(capsys.readouterr().out)["comparisons"][0]["signature"]
    with pytest.raises(DoubtlessError, match="Williams' test speaks of one language pair, there are 2"):
        main(["evaluate", *arguments])


def test_groups_without_a_correlation_can_count_as_zero(tmp_path, capsys):
    columns = {"system": list("ABAB"), "seg": [0, 0, 1, 1], "human": [1, 2, 3, 3], "m": [0.1, 0.2, 0.3, 0.4]}
    values = {}
    for undefined in ("drop", "zero"):
        arguments = ["--statistics", "segment:kendall/item", "--undefined", undefined]
        assert main([*odd(tmp_path, **columns), *arguments]) == 0
        found = json.loads(capsys.readouterr().out)["comparisons"][0]
        assert f"|undefined:{undefined}|" in found["signature"]
        assert found["metrics"][0]["pairs"]["all"]["undefined"] == 1
        values[undefined] = found["metrics"][0]["value"]
    assert values == {"drop": 1.0, "zero": 0.5}


def odd(tmp_path, **columns):
    path = tmp_path / "odd.jsonl"
    pl.DataFrame(columns).write_ndjson(path)
    return ["evaluate", str(path), "--compare", "m", *QUICK, "--json"]


@pytest.mark.parametrize(
    ("columns", "defined"),
    [
        # One system: nothing to compare within an item, nor between systems.
        ({"system": ["A"] * 8, "seg": list(range(8)), "human": list(range(8))}, {"segment:pearson"}),
        # One segment: its systems are still compared.
        (
            {"system": list("ABCDEFGH"), "seg": [0] * 8, "human": list(range(8))},
            {
                "segment:pearson",
                "segment:kendall/item",
                "segment:acc_eq*/item",
                "system:pearson",
                "system:spearman",
                "system:accuracy",
                "system:spa",
            },
        ),
        # All humans alike: no correlation, but agreement on ties.
        (
            {"system": list("AABBCCDD"), "seg": [0, 1] * 4, "human": [1] * 8},
            {"segment:acc_eq*/item", "system:accuracy", "system:spa"},
        ),
    ],
)
def test_figures_that_are_not_defined_are_null_and_listed(tmp_path, capsys, columns, defined):
    scores = [0.3, 0.1, 0.4, 0.15, 0.9, 0.2, 0.6, 0.5]
    assert main(odd(tmp_path, **columns, m=scores)) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"]
    assert len(found) == 7
    assert {row["statistic"] for row in found if row["metrics"][0]["value"] is not None} == defined
    assert all(row["metrics"][0]["metric"] == "m" for row in found)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"system": ["A", "A"], "seg": [0, 0]}, "odd.jsonl:1: 'all A 0' occurs more than once"),
        ({"system": ["A", None], "seg": [0, 0]}, "odd.jsonl:2: column 'system' is empty"),
        ({"seg": [0, 1]}, "no column 'system'"),
        (
            {"system": ["A", "B"], "seg": [0, 0], "human": [None, None]},
            "no row has a number in column 'human'",
        ),
    ],
)
def test_odd_tables_are_said(tmp_path, columns, sentence):
    with pytest.raises(DoubtlessError, match=sentence):
        main(odd(tmp_path, **{"human": [1, 2], "m": [1.0, 2.0], **columns}))


def _empty(root):
    for file in (root / "human-scores").iterdir():
        file.unlink()


def _truncate(root):
    file = root / "human-scores" / "en-de.mqm.seg.score"
    file.write_text("".join(file.read_text().splitlines(True)[:-1]))


def _truncate_metric(root):
    file = root / "metric-scores" / "en-de" / "good-refA.seg.score"
    file.write_text("".join(file.read_text().splitlines(True)[1:]))


def _no_metrics(root):
    for file in (root / "metric-scores" / "en-de").iterdir():
        file.unlink()


def _fewer_documents(root):
    (root / "documents" / "en-de.docs").write_text("news d1\n")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_empty, "no language pair in the folder human-scores"),
        (_truncate, "en-de.mqm.seg.score: 29 scores for 'refB', expected 30"),
        (_truncate_metric, "good-refA.seg.score: 29 scores for 'A', expected 30"),
        (_no_metrics, "no metric has scores in every language pair"),
        (_fewer_documents, "en-de.docs: 1 line, the source has 30"),
    ],
)
def test_spoilt_folders_are_said(tmp_path, spoil, sentence):
    from testset import write_test_set

    write_test_set(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DoubtlessError, match=sentence):
        main(["evaluate", str(tmp_path), "--preset", "wmt22", *QUICK])


def test_line_endings_of_another_system_change_nothing(tmp_path, capsys):
    from testset import write_test_set

    write_test_set(tmp_path)
    arguments = ["evaluate", str(tmp_path), "--reference", "refA", "--levels", "segment", *QUICK, "--json"]
    assert main(arguments) == 0
    before = capsys.readouterr().out
    for file in tmp_path.rglob("*.*"):
        if file.is_file():
            file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert main(arguments) == 0
    assert capsys.readouterr().out == before


def test_a_metric_that_a_pair_lacks_is_left_out_and_named(tmp_path, capsys):
    from testset import write_test_set

    for pair in ("en-de", "en-cs"):
        write_test_set(tmp_path, pair)
    for level in ("seg", "sys"):
        (tmp_path / "metric-scores" / "en-cs" / f"good-refA.{level}.score").unlink()
    (tmp_path / "metric-scores" / "en-de" / "unnamed.seg.score").write_text("A 1\n")
    assert main(["evaluate", str(tmp_path), "--reference", "refA", "--levels", "segment", *QUICK]) == 0
    err = capsys.readouterr().err
    assert "metric 'good' is left out: no scores for en-cs" in err
    assert "en-de: metric 'unnamed' is left out: its name does not end in -src, -all or a reference" in err


def test_scores_of_your_own_say_which_language_pair(tmp_path, capsys):
    from testset import write_test_set

    for pair in ("en-de", "en-cs"):
        write_test_set(tmp_path, pair)
    mine = tmp_path / "mine.seg.score"
    mine.write_bytes((tmp_path / "metric-scores" / "en-de" / "good-refA.seg.score").read_bytes())
    arguments = ["evaluate", str(tmp_path), "--reference", "refA", "--levels", "segment", *QUICK, "--json"]
    with pytest.raises(DoubtlessError, match="which of en-cs, en-de"):
        main([*arguments, "--scores", str(mine)])
    with pytest.raises(DoubtlessError, match="no language pair 'en-xx'"):
        main([*arguments, "--scores", f"en-xx={mine}"])
    assert main([*arguments, "--scores", f"en-cs={mine}", "--scores", f"en-de={mine}"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert "mine" in {m["metric"] for m in found["metrics"]}


def test_options_that_would_do_nothing_are_refused(table, tmp_path):
    with pytest.raises(DoubtlessError, match="--reference belongs to a folder"):
        main(["evaluate", table, "--compare", "good", "--reference", "refA"])
    with pytest.raises(DoubtlessError, match="--where belongs to a table"):
        main(["evaluate", str(tmp_path), "--where", "seg > 3"])
