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
    assert found["metrics"][0].startswith("metric:chrF|")
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
    assert {m["metric"] for m in found["overall"]} == {"good", "mine", "poor"}
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
