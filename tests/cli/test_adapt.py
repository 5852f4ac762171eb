from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from doubtless.cli.main import main
from doubtless.errors import InputError

PLAN = "passes=2,k=4,lr=0.02,batch=8"


@pytest.fixture(scope="module")
def mixed(models) -> str:
    """A model with a layer mix and a calibration."""
    from doubtless.neural.checkpoint import new_model, save
    from doubtless.neural.config import ModelConfig

    options = {"layer_mix": "softmax", "outputs": "score+error", "hidden_sizes": (12, 8)}
    folder, rated, scored = models / "mixed", str(models / "mixed.tsv"), str(models / "mixed-scored.tsv")
    save(new_model(ModelConfig(encoder=str(models / "encoder"), **options), name="mixed"), folder)
    rows = [f"Katze {i % 9}\tcat {i % 7}\t{(i % 7) / 7}" for i in range(120)]
    with open(rated, "w", encoding="utf-8") as file:
        file.write("\n".join(["src\tmt\thuman", *rows, ""]))
    assert main(["score", rated, "-m", str(folder), "-o", scored]) == 0
    options = ["--score", "score", "--error", "error", "--alpha", "0.2", "--floor", "0.01"]
    assert main(["calibrate", scored, *options, "-o", str(folder / "calibration.json")]) == 0
    return str(folder)


def write(path, systems: dict[str, list[tuple[str, str]]]) -> str:
    rows = [f"{name}\t{src}\t{mt}" for name, texts in systems.items() for src, mt in texts]
    path.write_text("\n".join(["system\tsrc\tmt", *rows, ""]), encoding="utf-8")
    return str(path)


USUAL = [(f"Katze {i % 9}", f"cat {i % 7}") for i in range(40)]
STRANGE = [(f"Die Preise {i} stiegen im Mai", "Prices rose by 3.5 % in May, the bank") for i in range(80)]


def scored(arguments, tmp_path) -> pl.DataFrame:
    out = str(tmp_path / "out.parquet")
    assert main(["score", *arguments, "-o", out]) == 0
    return pl.read_parquet(out)


def test_each_system_is_adapted_alone_and_said_so(mixed, tmp_path, capsys):
    both = write(tmp_path / "both.tsv", {"a": USUAL, "b": STRANGE})
    plain = scored([both, "-m", mixed, "--no-intervals"], tmp_path)
    together = scored([both, "-m", mixed, "--adapt", PLAN], tmp_path)
    said = capsys.readouterr().err
    assert "a: adapted, uncertainty" in said
    assert "b: adapted, uncertainty" in said
    assert "no intervals: a calibration made without adaptation" in said
    assert together["adapted"].str.contains("passes=").all()
    assert "lower" not in together.columns
    assert (together["score"] - plain["score"]).abs().max() > 1e-3
    alone = scored([write(tmp_path / "b.tsv", {"b": STRANGE[::-1]}), "-m", mixed, "--adapt", PLAN], tmp_path)
    expected = together.filter(pl.col("system") == "b")["score"].to_numpy()[::-1]
    np.testing.assert_allclose(alone["score"], expected, atol=1e-7)


def test_json_tells_before_and_after(mixed, tmp_path, capsys):
    file = write(tmp_path / "t.tsv", {"a": USUAL})
    assert main(["score", file, "-m", mixed, "--adapt", PLAN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (system,) = found["adaptation"]
    assert system["system"] == "a"
    assert system["n"] == 40
    assert system["adapted"]
    assert 0 < system["after"] < system["before"]
    assert (
        f"adapt:{PLAN.replace('batch=8', 'parameters=layer-mix,batch=8,dropout=head')}" in found["signature"]
    )


def test_auto_leaves_what_looks_like_the_calibration_rows_and_keeps_its_intervals(mixed, tmp_path, capsys):
    file = write(tmp_path / "t.tsv", {"a": USUAL})
    plain = scored([file, "-m", mixed], tmp_path)
    auto = scored([file, "-m", mixed, "--adapt", f"auto,{PLAN}"], tmp_path)
    assert "a: not adapted, the forecasts look like those of the calibration rows" in capsys.readouterr().err
    assert auto["adapted"].is_null().all()
    assert auto.drop("adapted").equals(plain)


def test_auto_judges_every_system_by_itself_in_whatever_order(mixed, tmp_path, capsys):
    reports = []
    for order in (1, -1):
        file = write(tmp_path / "t.tsv", {"a": USUAL[::order], "b": STRANGE[::order], "c": STRANGE[:9]})
        assert main(["score", file, "-m", mixed, "--adapt", f"auto,{PLAN}", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out)["adaptation"])
    assert reports[0] == reports[1]
    usual, strange, few = reports[0]
    assert (usual["adapted"], few["adapted"]) == (False, False)
    assert few["reason"] == "9 segments are too few to tell, 32 are needed"
    assert strange["reason"] != usual["reason"]  # the drift was seen


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-m", "MIXED", "--adapt", "often"], "an adaptation is auto or passes="),
        (["-m", "MIXED", "--adapt", PLAN, "--alpha", "0.2"], "promises nothing for adapted scores"),
        (["-m", "MIXED", "-m", "MIXED", "--adapt", PLAN], "--adapt needs one model"),
        (["-m", "MIXED", "--adapt", PLAN, "--dtype", "bfloat16"], "too small for half precision"),
        (["-m", "PLAIN", "--adapt", PLAN], "the model has no layer mix"),
        (["-m", "PLAIN", "--adapt", "auto"], "the model brings no calibration"),
    ],
)
def test_what_cannot_be_done_is_said(mixed, models, tmp_path, arguments, sentence):
    file = write(tmp_path / "t.tsv", {"a": USUAL})
    places = {"MIXED": mixed, "PLAIN": str(models / "plain")}
    with pytest.raises(InputError, match=sentence):
        main(["score", file, *(places.get(word, word) for word in arguments)])


def test_a_calibration_refuses_scores_that_were_adapted_otherwise(mixed, tmp_path):
    file = write(tmp_path / "t.tsv", {"a": USUAL})
    plain = scored([file, "-m", mixed, "--no-intervals"], tmp_path)
    adapted = scored([file, "-m", mixed, "--adapt", PLAN], tmp_path)
    other = scored([file, "-m", mixed, "--adapt", PLAN.replace("passes=2", "passes=1")], tmp_path)
    assert other["adapted"][0] != adapted["adapted"][0]
    tables = {"plain": plain, "adapted": adapted, "other": other}
    for name, frame in tables.items():
        frame.with_columns(human=pl.col("score") + 0.1).write_csv(tmp_path / f"{name}.tsv", separator="\t")
        command = ["calibrate", str(tmp_path / f"{name}.tsv"), "--score", "score", "--error", "error"]
        assert main([*command, "-o", str(tmp_path / f"{name}.json")]) == 0
    for made in tables:
        for used in tables:
            files = [str(tmp_path / f"{made}.json"), str(tmp_path / f"{used}.tsv")]
            command = ["apply", *files, "--prefix", "c_", "-o", str(tmp_path / "applied.tsv")]
            if made == used:
                assert main(command) == 0
            else:
                with pytest.raises(InputError, match=rf"{used}.tsv:2: the score is .*adapted"):
                    main(command)
    with pytest.raises(InputError, match="the score is not adapted"):
        main(["score", file, "-m", mixed, "--calibration", str(tmp_path / "adapted.json")])


def test_rows_calibrated_and_scored_with_the_same_adaptation_keep_the_promise(mixed, tmp_path, capsys):
    """Calibration rows and new ones of one kind, both adapted: `apply` covers at the rate asked for."""
    rng = np.random.default_rng(0)
    words = ["Katze", "Dach", "Bank", "Preise", "Mai", "Straße", "frei", "schläft"]

    def rows(count: int) -> str:
        texts = [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(2 * count)]
        lines = [f"{a}\t{b}\t{rng.normal():.6f}" for a, b in zip(texts[:count], texts[count:], strict=True)]
        path = tmp_path / f"{count}.tsv"
        path.write_text("\n".join(["src\tmt\thuman", *lines, ""]), encoding="utf-8")
        return str(path)

    made = {}
    for count in (400, 600):
        made[count] = str(tmp_path / f"{count}-scored.tsv")
        options = ["-m", mixed, "--adapt", "passes=1,k=3,lr=0.02,batch=100", "--no-intervals"]
        assert main(["score", rows(count), *options, "-o", made[count]]) == 0
    calibration = str(tmp_path / "c.json")
    options = ["--score", "score", "--error", "error", "--alpha", "0.2", "--floor", "0.01"]
    assert main(["calibrate", made[400], *options, "-o", calibration]) == 0
    capsys.readouterr()
    assert main(["apply", calibration, made[600], "--human", "human", "--prefix", "c_", "--json"]) == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    # The share of 600 rows, given 400: beta-binomial, of standard deviation sqrt(0.16 / 600 + 0.16 / 400).
    assert abs(coverage - 0.8) < 3 * np.sqrt(0.16 / 600 + 0.16 / 400)
