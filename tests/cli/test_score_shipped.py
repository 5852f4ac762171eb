"""``score`` with a folder that brings all that the bundled model brings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError, InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.texts import texts_of
from doubtless.segments import as_table

FULL_DEPTH = "the promise of these intervals was made for the full depth"
NO_PAIR = "rows is not known to the calibration"


@pytest.fixture
def bundled(shipped, monkeypatch):
    """Let the tiny folder stand in for the model that comes with the package."""
    monkeypatch.setattr("doubtless.bundled.folder", lambda: Path(shipped))
    return shipped


@pytest.fixture
def parallel(tmp_path):
    files = {
        "s": "Die Katze schläft.\nDer Hund\nKein Wort\n",
        "a": "The cat sleeps.\nDer Hund\nNo word\n",
        "b": "A cow\ndog\n\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return {name: str(tmp_path / name) for name in files}


def scored(path: str, *arguments: str) -> pl.DataFrame:
    out = str(Path(path).with_suffix(".scored.parquet"))
    assert main(["score", path, *arguments, "-o", out]) == 0
    return pl.read_parquet(out)


def test_two_files_are_enough(bundled, parallel, capsys):
    assert main(["score", "-s", parallel["s"], "-t", parallel["a"], "--lp", "de-en"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = ["src", "mt", "system", "seg", "lp", "score", "lower", "upper", "error", "layer", "flags"]
    assert lines[0].split("\t") == head
    rows = [dict(zip(head, line.split("\t"), strict=True)) for line in lines[1:]]
    assert [row["flags"] for row in rows] == ["", "copy", ""]
    assert all(float(row["lower"]) <= float(row["score"]) <= float(row["upper"]) for row in rows)


def test_without_a_bundled_model_one_must_be_named(table):
    from doubtless import bundled

    try:
        bundled.folder()
    except DoubtlessError:
        with pytest.raises(DoubtlessError, match="no model comes with this installation"):
            main(["score", table])
    else:
        pytest.skip("there is one")


def test_intervals_are_those_of_the_pair(bundled, table, capsys):
    of = {lp: scored(table, "--lp", lp) for lp in ("de-en", "zh-en", "ja-en")}
    unknown = scored(table)
    assert NO_PAIR in capsys.readouterr().err
    assert "lp" not in unknown.columns
    assert (of["de-en"]["lp"] == "de-en").all()
    assert not of["de-en"]["flags"].str.contains("unseen-group").any()
    for frame in (of["ja-en"], unknown):
        assert frame["flags"].to_list()[-2:] == ["copy unseen-group", "empty unseen-group"]
        assert frame["flags"].str.contains("unseen-group").all()
    # Nothing is guessed: without a pair the model is not told a language either.
    assert not np.allclose(of["de-en"]["score"], unknown["score"], atol=1e-6)
    assert (unknown["upper"] - unknown["lower"] > 0).all()


def test_some_rows_may_lack_their_pair(bundled, tmp_path, capsys):
    path = tmp_path / "t.tsv"
    path.write_text("lp\tsrc\tmt\nde-en\tHund\tdog\n\tHund\tdog\nde_en\tHund\tdog\n")
    frame = scored(str(path))
    assert frame["flags"].to_list() == ["", "unseen-group", "unseen-group"]
    assert frame["lp"].to_list() == ["de-en", "", "de_en"]
    assert "2 of 3 " + NO_PAIR in capsys.readouterr().err


def test_languages_are_told_where_they_are_known():
    table = as_table([{"src": "Hund", "mt": "dog", "lp": "de-en"}, {"src": "Hund", "mt": "dog", "lp": None}])
    config = ModelConfig(uses="src+mt")
    assert list(texts_of(table, config)["lp"]) == ["de-en", ""]
    assert "lp" not in texts_of(as_table([{"src": "Hund", "mt": "dog"}]), config)
    with pytest.raises(InputError, match="column 'lp' holds List"):
        texts_of(as_table([{"src": "Hund", "mt": "dog", "lp": ["de"]}]), config)


def test_alpha_chooses_a_calibration(bundled, table, capsys):
    def summary(*arguments):
        assert main(["score", table, "--lp", "de-en", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    assert summary()["alpha"] == 0.1
    assert summary("--alpha", "0.2")["alpha"] == 0.2
    assert summary("--alpha", "0.2")["width"] <= summary()["width"]
    assert "alpha" not in summary("--no-intervals")


def test_the_models_own_exit_has_its_own_calibration(bundled, table, capsys):
    def warnings(*arguments):
        assert main(["score", table, "--lp", "de-en", "--json", *arguments]) == 0
        found = json.loads(capsys.readouterr().out)
        return found["layers"], " ".join(found["warnings"])

    assert warnings("--exit", "auto")[0] == 1
    assert FULL_DEPTH not in warnings("--exit", "auto")[1]
    assert FULL_DEPTH not in warnings("--exit", "1000000000")[1]
    layers, said = warnings("--exit", "constant:2")
    assert layers == 2
    assert FULL_DEPTH in said


def test_other_doubts_than_the_models_have_no_intervals(bundled, models, table, capsys):
    assert main(["score", table, "--uncertainty", "none"]) == 0
    out, err = capsys.readouterr()
    assert "lower" not in out.splitlines()[0].split("\t")
    assert "the model's calibration is for its own uncertainty: no intervals" in err
    assert main(["score", table, "--uncertainty", "instant", "--lp", "de-en"]) == 0
    assert "lower" in capsys.readouterr().out.splitlines()[0].split("\t")


def test_unfinished_translations(bundled, table, models, capsys):
    whole, part = scored(table, "--lp", "de-en"), scored(table, "--lp", "de-en", "--partial")
    assert "made for whole translations" in capsys.readouterr().err
    assert not np.allclose(whole["score"], part["score"], atol=1e-6)
    with pytest.raises(DoubtlessError, match="not trained on unfinished translations"):
        main(["score", table, "-m", str(models / "plain"), "--partial"])


def test_words_are_marked_in_text_and_listed_in_data(bundled, tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    texts = ["The cat sleeps on the roof.", "央行上调了利率。", "cafe\u0301 👍🏽 noir", "", "[cow]"]
    path.write_text("".join(json.dumps({"src": "x", "mt": mt}) + "\n" for mt in texts), encoding="utf-8")
    assert main(["score", str(path), "--words"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split("\t")[lines[0].split("\t").index("words")] for line in lines[1:]]
    frame = scored(str(path), "--words")
    rows = frame.to_dicts()
    for text, row, marks in zip(texts, rows, shown, strict=True):
        assert all(text[word["start"] : word["end"]] == word["text"] for word in row["words"])
        assert all(0.4 < word["probability"] <= 1 for word in row["words"])
        if text != "[cow]":
            assert re.findall(r"\[(.*?)\]", marks) == [word["text"] for word in row["words"]]
            assert re.sub(r"[\[\]]", "", marks) == text
    assert any(row["words"] for row in rows)
    for row in rows:
        for word in row["words"]:
            assert not word["text"].startswith(("\u0301", "🏽", " "))


def test_systems_are_compared(bundled, parallel, tmp_path, capsys):
    out = str(tmp_path / "systems.tsv")
    named = ["-t", parallel["a"], "-t", parallel["b"]]
    assert main(["score", "-s", parallel["s"], *named, "--systems", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    table = pl.read_csv(out, separator="\t")
    assert set(table["system"]) == {parallel["a"], parallel["b"]}
    assert table["mean"].to_list() == sorted(table["mean"], reverse=True)
    assert [row["system"] for row in found["systems"]] == table["system"].to_list()
    assert len(found["comparisons"]) == 1
    assert found["comparisons"][0]["p_value"] >= 0.25  # three segments prove nothing
    assert found["mean"] == pytest.approx(table["mean"].mean())
    assert found["mean_interval"][0] <= found["mean"] <= found["mean_interval"][1]


def test_systems_are_compared_within_their_pair(bundled, tmp_path, capsys):
    path = tmp_path / "t.tsv"
    rows = [f"{lp}\t{s}\tHund {i}\tdog {s} {i}" for lp in ("de-en", "zh-en") for s in "ab" for i in range(4)]
    path.write_text("\n".join(["lp\tsystem\tsrc\tmt", *rows[:-1], ""]))
    assert main(["score", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["systems"]
    assert [(row["lp"], row["n"], row["missing"]) for row in found][:2] == [("de-en", 4, 0)] * 2
    assert sorted((row["system"], row["n"], row["missing"]) for row in found[2:]) == [
        ("a", 4, 0),
        ("b", 3, 1),
    ]


def test_the_table_for_people(bundled, parallel, capsys):
    named = ["-t", parallel["a"], "-t", parallel["b"], "--lp", "de-en"]
    assert main(["score", "-s", parallel["s"], *named, "--pretty", "--words", "--rows", "4"]) == 0
    out = capsys.readouterr().out
    assert "●" in out
    assert "… and 2 more rows" in out
    assert "Systems, de-en" in out
    assert re.search(r"\d of 6 segments are worth a human look \(!\): flagged, or lower end below -?\d", out)
    assert "mean score" in out
    assert "90% intervals" in out


def test_words_are_red_on_a_terminal(bundled, parallel, monkeypatch):
    from io import StringIO

    from rich.console import Console

    screen = StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=110)
    monkeypatch.setattr("doubtless.cli.score_view.new_console", lambda: console)
    assert main(["score", "-s", parallel["s"], "-t", parallel["a"], "--words", "--pretty"]) == 0
    assert re.search(r"\x1b\[30;48;2;255;\d+;\d+m(The|cat|sleeps)\x1b", screen.getvalue())
    assert "[" not in re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())


def test_what_is_worth_a_look(bundled, table, capsys):
    def count(*arguments):
        assert main(["score", table, "--lp", "de-en", "--json", *arguments]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["share_worth_a_look"] == found["worth_a_look"] / found["n"]
        return found["worth_a_look"]

    assert count("--look", "-1e9") == 2  # the copy and the empty one
    assert count("--look", "1e9") == 32
    assert 2 <= count() <= 32


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--lp", "German"], "a language pair is two codes such as en-de, found 'German'"),
        (["--alpha", "0.05"], "the model brings no calibration for alpha 0.05, only for 0.1, 0.2"),
        (["-m", "PLAIN", "--alpha", "0.1"], "the model brings no calibration for alpha 0.1$"),
        (["-m", "PLAIN", "--exit", "auto"], "the model names no exit of its own"),
        (["--no-intervals", "--alpha", "0.1"], "--no-intervals excludes --calibration and --alpha"),
        (["--calibration", "CAL", "--alpha", "0.2"], "the calibration is for alpha 0.1, not for 0.2"),
        (["--words", "--exit", "auto"], "--words reads the last layer, which rows that leave early"),
        (["-m", "PLAIN", "--words"], "nothing marks errors here: --words needs"),
        (["--systems", "systems.tsv"], "--systems needs several systems"),
        (["--uncertainty", "bt"], "it needs a model that is told no language"),
    ],
)
def test_what_cannot_be_done_is_said(bundled, models, table, arguments, sentence):
    places = {"PLAIN": "plain", "WHOLE": "whole", "CAL": "whole/calibration.json"}
    given = [str(models / places[word]) if word in places else word for word in arguments]
    with pytest.raises(DoubtlessError, match=sentence):
        main(["score", table, *given])


def test_two_statements_about_the_pair_are_one_too_many(bundled, tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("lp\tsrc\tmt\nde-en\tHund\tdog\n")
    with pytest.raises(DoubtlessError, match="there is a column 'lp' already"):
        main(["score", str(path), "--lp", "de-en"])


def test_an_exported_model_gives_the_same_table(shipped, table, tmp_path):
    pytest.importorskip("onnxruntime")
    from shutil import copy

    from doubtless.neural.checkpoint import load
    from doubtless.neural.export import export

    folder = tmp_path / "exported"
    export(load(shipped), folder, quantise=False)
    for file in Path(shipped).glob("calibration*.json"):
        copy(file, folder)
    for options in (["--words"], ["--exit", "constant:2"], ["--partial"]):
        ours = scored(table, "-m", shipped, "--lp", "de-en", *options)
        theirs = scored(table, "-m", str(folder), "--lp", "de-en", *options)
        assert theirs.columns == ours.columns
        for name in ("score", "lower", "upper", "error"):
            assert theirs[name].to_list() == pytest.approx(ours[name].to_list(), abs=1e-4)
        assert theirs["flags"].to_list() == ours["flags"].to_list()
