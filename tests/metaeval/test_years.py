"""The rules of a year give what mt-metrics-eval gives; golden/years.py says how its figures were recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testset import YEARS, write_year

from doubtless.cli.main import main
from doubtless.metaeval.presets import preset

GOLDEN = json.loads((Path(__file__).parent / "golden" / "years.json").read_text())


@pytest.mark.parametrize("year", ["wmt22", "wmt23", "wmt24"])
def test_a_whole_year_is_equal(tmp_path, capsys, year):
    write_year(tmp_path / year, year)
    arguments = [str(tmp_path / year), "--preset", year, "--draws", "0", "--resamples", "0", "--json"]
    assert main(["evaluate", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    theirs = GOLDEN[year]
    assert {task["task"] for task in found["tasks"]} == set(theirs["tasks"])
    for task in found["tasks"]:
        expected = theirs["tasks"][task["task"]]
        assert task["weight"] == pytest.approx(expected["weight"], abs=1e-12)
        values = {row["metric"]: row["value"] for row in task["metrics"]}
        assert values == pytest.approx(expected["figures"], abs=1e-9), task["task"]
    overall = {row["metric"]: row["value"] for row in found["overall"]}
    assert overall == pytest.approx(theirs["overall"], abs=1e-9)
    assert list(overall) == list(theirs["overall"])


@pytest.mark.parametrize("year", ["wmt22", "wmt23", "wmt24"])
def test_the_standards_of_all_language_pairs_are_equal(year):
    rules = preset(year)
    for pair, (gold, reference, outliers) in GOLDEN[year]["standards"].items():
        found = rules.rules_of(pair)
        assert (found.gold, found.reference, list(found.outliers)) == (gold, reference, outliers), pair
    assert {*rules.rules, *rules.more} == set(GOLDEN[year]["standards"])


def test_the_standard_of_a_pair_is_in_the_signature(tmp_path, capsys):
    write_year(tmp_path, "wmt24")
    assert main(["evaluate", str(tmp_path), "--preset", "wmt24", "--draws", "0", "--resamples", "0"]) == 0
    out = capsys.readouterr().out
    assert "human:mqm|ref:refB" in out
    assert set(YEARS["wmt24"]) == {"en-de", "en-es", "ja-zh"}
