from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError
from doubtless.gp.store import load

FORECASTS = str(Path(__file__).parents[2] / "examples" / "forecasts.tsv")
SAMPLES = "chrf2,chrf4,chrf6,chrfpp,ter100"


@pytest.fixture
def times(tmp_path) -> str:
    path = tmp_path / "times.tsv"
    path.write_text("minutes\tsd\tlow\thigh\ttrue\n40\t4\t30\t50\t45\n40\t20\t10\t80\t\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def calibration(tmp_path) -> str:
    path = str(tmp_path / "calibration.json")
    arguments = ["--samples", SAMPLES, "--where", "split = 'calibration'", "--range", "0,100"]
    assert main(["calibrate", FORECASTS, *arguments, "--alpha", "0.2", "--distribution", "-o", path]) == 0
    return path


def test_a_decision_is_added_and_told(times, tmp_path, capsys):
    out = str(tmp_path / "out.csv")
    assert main(["risk", times, "--w", "3", "--score", "minutes", "--sd", "sd", "-o", out]) == 0
    frame = pl.read_csv(out)
    assert frame.columns == ["minutes", "sd", "low", "high", "true", "decision"]
    np.testing.assert_allclose(frame["decision"], 40 + stats.norm.ppf(0.75) * np.array([4, 20]))
    said = capsys.readouterr().out
    assert "decision (al, w 3, too low costs more): 8.094 above the score on average" in said


def test_the_table_goes_to_standard_output_and_the_sentence_does_not(times, capsys):
    arguments = [
        "--w",
        "1,3",
        "--score",
        "minutes",
        "--sd",
        "sd",
        "--name",
        "quote",
        "--scenario",
        "optimistic",
    ]
    assert main(["risk", times, *arguments]) == 0
    found = capsys.readouterr()
    lines = found.out.splitlines()
    assert lines[0].split("\t")[-2:] == ["quote_1", "quote_3"]
    assert len(lines) == 3
    assert "quote_3 (al, w 3, too high costs more): 8.094 below the score on average" in found.err


@pytest.mark.parametrize(("better", "sign"), [("lower", 1), ("higher", -1)])
def test_a_pessimist_is_careful_whatever_the_scale(times, capsys, better, sign):
    arguments = ["--loss", "linex", "--w", "0.5", "--score", "minutes", "--sd", "sd", "--better", better]
    assert main(["risk", times, *arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["costly"] == ("under" if sign == 1 else "over")
    assert figures["decisions"][0]["mean_change"] == pytest.approx(sign * (4 + 100) / 2)


def test_human_scores_tell_what_decisions_would_have_cost(times, capsys):
    arguments = ["--w", "3", "--score", "minutes", "--sd", "sd", "--human", "true"]
    assert main(["risk", times, *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["decisions"][0]
    assert found["n"] == 1
    assert found["loss_of_score"] == 15
    assert found["loss_of_oracle"] == 0
    assert found["loss_of_decision"] == pytest.approx(3 * (5 - 4 * stats.norm.ppf(0.75)))
    assert main(["risk", times, *arguments]) == 0
    assert "of the best shift in hindsight 0.000" in capsys.readouterr().err


def test_a_calibration_brings_its_columns_distribution_and_range(calibration, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    arguments = [
        "--calibration",
        calibration,
        "--where",
        "split = 'new'",
        "--better",
        "higher",
        "--human",
        "human",
    ]
    assert main(["risk", FORECASTS, "--w", "1,9", *arguments, "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["decisions"]
    frame = pl.read_parquet(out)
    assert (frame["decision_9"] <= frame["decision_1"]).all()
    assert frame["decision_9"].is_between(0, 100).all()
    for line in found:
        assert line["loss_of_oracle"] <= line["loss_of_score"]
    for loss in ("aq", "linex"):
        assert main(["risk", FORECASTS, "--w", "0.1", "--loss", loss, *arguments, "--json"]) == 0
        capsys.readouterr()


def test_samples_quantiles_and_logarithms(times, tmp_path, capsys):
    assert main(["risk", FORECASTS, "--w", "3", "--samples", SAMPLES, "--assume", "samples", "--json"]) == 0
    ends = ["--lower", "low", "--upper", "high", "--level", "0.5"]
    assert main(["risk", times, "--w", "3", *ends, "--name", "d", "-o", str(tmp_path / "d.csv")]) == 0
    assert pl.read_csv(tmp_path / "d.csv")["d"].to_list() == [50, 80]
    logs = tmp_path / "logs.csv"
    logs.write_text("m,s\n0,0.5\n", encoding="utf-8")
    warped = ["--score", "m", "--sd", "s", "--warp", "log", "--loss", "linex", "--w", "1"]
    assert main(["risk", str(logs), *warped, "--range", "0,20", "--json"]) == 0
    with pytest.raises(DoubtlessError, match="the expected linex loss of row 1 is infinite"):
        main(["risk", str(logs), *warped])
    capsys.readouterr()


def test_a_gaussian_process_brings_its_whole_distribution(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    frame = pl.DataFrame({"x": x, "human": np.exp(0.5 * x + 0.3 * rng.normal(size=60))})
    table, model, out = (str(tmp_path / name) for name in ("t.csv", "model", "out.csv"))
    frame.write_csv(table)
    fit = ["gp", "fit", table, "--columns", "x", "--warp", "log", "--restarts", "1", "-o", model]
    assert main(fit) == 0
    arguments = ["risk", table, "--w", "3", "--model", model]
    assert main([*arguments, "--human", "human", "-o", out]) == 0
    forecast = load(model).fitted.forecast(x[:, None])
    np.testing.assert_allclose(pl.read_csv(out)["decision"], forecast.quantile(0.75))
    # Exactly, not by the formula for normal distributions.
    linex = ["--loss", "linex", "--scenario", "optimistic", "-o", out, "--name"]
    assert main([*arguments, *linex, "exact"]) == 0
    assert (pl.read_csv(out)["exact"] < forecast.mean).all()
    for option, sentence in (
        (["--sd", "x"], "--sd and --model exclude each other"),
        (["--calibration", "c"], "--model and --calibration exclude each other"),
    ):
        with pytest.raises(DoubtlessError, match=sentence):
            main([*arguments, *option])
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--score", "minutes", "--sd", "sd"], "missing option '--w'"),
        (
            ["--w", "x", "--score", "minutes", "--sd", "sd"],
            "weights are numbers separated by commas, found 'x'",
        ),
        (
            ["--w", ",", "--score", "minutes", "--sd", "sd"],
            "weights are numbers separated by commas, found ','",
        ),
        (["--w", "-3", "--score", "minutes", "--sd", "sd"], "a weight is a positive number, found -3"),
        (["--w", "1e300", "--score", "minutes", "--sd", "sd"], r"weight 1e\+300 is too large"),
        (
            ["--w", "1e300", "--loss", "aq", "--score", "minutes", "--sd", "sd"],
            r"weight 1e\+300 is too large",
        ),
        (
            ["--w", "3", "--score", "minutes", "--sd", "sd", "--range", "9,0"],
            "from a lower to a higher number",
        ),
        (["--w", "3,3.0", "--score", "minutes", "--sd", "sd"], "a weight is given twice"),
        (["--w", "3", "--loss", "mse", "--score", "minutes", "--sd", "sd"], "there is no loss 'mse'"),
        (
            ["--w", "3", "--scenario", "x", "--score", "minutes", "--sd", "sd"],
            "expected pessimistic or optimistic",
        ),
        (["--w", "3", "--score", "minutes"], "a score alone says nothing about mistakes"),
        (["--w", "3", "--score", "minutes", "--sd", "sd", "--features", "f"], "--features needs --model"),
        (["--w", "3", "--score", "minutes", "--error", "sd"], "an estimated error is not a distribution"),
        (
            ["--w", "3", "--score", "minutes", "--sd", "sd", "--name", "true"],
            "there is a column 'true' already",
        ),
        (["--w", "30", "--lower", "low", "--upper", "high"], "lies outside the known levels"),
        (
            ["--w", "3", "--score", "minutes", "--sd", "sd", "--calibration", "c"],
            "--score and --calibration exclude",
        ),
        (
            ["--w", "3", "--score", "minutes", "--sd", "sd", "--where", "sd > 9", "--human", "true"],
            "no row has a",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(times, arguments, sentence):
    with pytest.raises(DoubtlessError, match=sentence) as caught:
        main(["risk", times, *arguments])
    assert "\n" not in str(caught.value)


def test_a_calibration_without_a_distribution_is_refused(tmp_path):
    path = str(tmp_path / "bare.json")
    assert main(["calibrate", FORECASTS, "--samples", SAMPLES, "-o", path]) == 0
    with pytest.raises(DoubtlessError, match="holds no predictive distribution"):
        main(["risk", FORECASTS, "--w", "3", "--calibration", path])
