"""``doubtless words evaluate`` on tables of all shapes, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import InputError
from doubtless.segments import as_table, write
from doubtless.words.agreement import judge
from doubtless.words.control import control_missed, load
from doubtless.words.judged import Judged
from doubtless.words.tables import judged_words


def segments(count=40, seed=0):
    """Segments with two metrics, one of them as spans, and two annotators, one of them as spans."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = [f"w{j}" for j in range(int(rng.integers(2, 9)))]
        wrong = rng.random((2, len(words))) < 0.3
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        places = [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]
        suspicion = (wrong.mean(axis=0) + rng.normal(size=len(words))).round(3)
        rows.append(
            {
                "lp": ["en-de", "en-it"][i % 2],
                "mt": " ".join(words),
                "words": words,
                "plain": suspicion.tolist(),
                "noise": rng.normal(size=len(words)).round(3).tolist(),
                "spans": [
                    {"start": a, "end": b, "probability": float(x)}
                    for (a, b), x in zip(places, suspicion, strict=True)
                ],
                "tags": ["BAD" if bad else "OK" for bad in wrong[0]],
                "numbers": wrong[0].astype(int).tolist(),
                "marks": [
                    {"start": a, "end": b} for (a, b), bad in zip(places, wrong[1], strict=True) if bad
                ],
                "starts": [a for (a, _), bad in zip(places, wrong[1], strict=True) if bad],
                "ends": [b for (_, b), bad in zip(places, wrong[1], strict=True) if bad],
                "wrong": wrong,
            }
        )
    return rows


def expected(rows, scores=("plain", "noise")):
    wrong = np.concatenate([row["wrong"] for row in rows], axis=1).astype(float)
    values = {name: np.concatenate([row[name] for row in rows]) for name in scores}
    segment = np.repeat(np.arange(len(rows)), [len(row["words"]) for row in rows])
    return Judged(values, {"tags": wrong[0], "marks": wrong[1]}, segment, [row["lp"] for row in rows])


def frame(rows):
    return pl.DataFrame([{k: v for k, v in row.items() if k != "wrong"} for row in rows])


def as_words(rows):
    made = []
    for i, row in enumerate(rows):
        for j, word in enumerate(row["words"]):
            own = {name: row[name][j] for name in ("plain", "noise", "tags")}
            made.append({"row": i, "lp": row["lp"], "word": word, **own, "marks": int(row["wrong"][1][j])})
    return pl.DataFrame(made)


def same(one, other):
    assert one.group == other.group
    assert one.segment.tolist() == other.segment.tolist()
    for name in other.labels:
        np.testing.assert_array_equal(one.labels[name], other.labels[name])
    for name in other.scores:
        np.testing.assert_allclose(one.scores[name], other.scores[name])


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "tsv", "csv"])
def test_lists_and_spans_are_read_from_every_format(ending, tmp_path):
    from doubtless.segments import read

    rows = segments()
    made = frame(rows)
    if ending in ("tsv", "csv"):
        cells = {
            c: [json.dumps(row[c]) for row in rows] for c in made.columns if c not in ("lp", "mt", "tags")
        }
        made = made.with_columns(
            **{n: pl.Series(v) for n, v in cells.items()}, tags=pl.col("tags").list.join(" ")
        )
    path = tmp_path / f"segments.{ending}"
    write(made, path)
    table = read(path)
    wanted = expected(rows)
    same(judged_words(table, ["plain", "noise"], ["tags", "marks"]), wanted)
    same(judged_words(table, ["noise"], ["tags", "marks=starts+ends"]), expected(rows, ["noise"]))
    found = judged_words(table, ["spans"], ["numbers"], words="words")
    np.testing.assert_allclose(found.scores["spans"], np.concatenate([row["plain"] for row in rows]))
    np.testing.assert_array_equal(found.labels["numbers"], wanted.labels["tags"])


@pytest.mark.parametrize("ending", ["parquet", "tsv"])
def test_tables_with_one_row_a_word_are_read(ending, tmp_path):
    from doubtless.segments import read

    rows = segments()
    path = tmp_path / f"words.{ending}"
    write(as_words(rows), path)
    same(judged_words(read(path), ["plain", "noise"], ["tags", "marks"]), expected(rows))


def test_an_empty_cell_is_unseen_and_an_empty_list_is_all_right():
    rows = [
        {"mt": "a b", "m": [1.0, 2.0], "x": None, "y": []},
        {"mt": "c", "m": [0.5], "x": [{"start": 0, "end": 1}], "y": []},
    ]
    found = judged_words(as_table(rows), ["m"], ["x", "y"])
    np.testing.assert_array_equal(found.labels["x"], [np.nan, np.nan, 1.0])
    np.testing.assert_array_equal(found.labels["y"], [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"m": [1.0], "a": ["OK", "BAD"]}, "row 2: 'm' has 1 word, 'a' has 2"),
        ({"m": [1.0, 2.0], "a": ["OK", "GOOD"]}, "row 2: column 'a': 'GOOD' is no label"),
        ({"m": None, "a": ["OK", "BAD"]}, "row 2: column 'm': the cell is empty"),
        ({"m": [1.0, None], "a": ["OK", "BAD"]}, "row 2: column 'm': 'None' is not a number"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_its_place(row, message):
    table = as_table([{"mt": "a b", "m": [1.0, 2.0], "a": ["OK", "BAD"]}, {"mt": "a b", **row}], "file")
    with pytest.raises(InputError, match=message):
        judged_words(table, ["m"], ["a"])


def test_spans_outside_the_translation_are_refused():
    table = as_table([{"mt": "a b", "m": [1.0, 2.0], "a": [{"start": 2, "end": 9}]}])
    with pytest.raises(InputError, match="row 1: column 'a': the span 2 to 9 does not lie in a text"):
        judged_words(table, ["m"], ["a"])
    table = as_table([{"mt": "a b", "m": [1.0, 2.0], "a": '[{"from": 2}]'}])
    with pytest.raises(InputError, match="expected spans with start and end"):
        judged_words(table, ["m"], ["a"])


def test_offsets_of_different_length_are_one_sentence_with_their_place():
    rows = [
        {"mt": "a b", "m": [1.0, 2.0], "s": [0], "e": [1]},
        {"mt": "a", "m": [1.0], "s": [0], "e": [1, 2]},
    ]
    with pytest.raises(InputError, match="row 2: column 'a': 1 start, but 2 ends of spans"):
        judged_words(as_table(rows), ["m"], ["a=s+e"])


@pytest.mark.parametrize("empty", [None, ""])
def test_cells_that_are_all_empty_are_not_taken_for_words(empty):
    rows = [{"mt": "a b", "m": empty, "a": ["OK", "BAD"]}]
    with pytest.raises(InputError, match="row 1: column 'm': the cell is empty"):
        judged_words(as_table(rows), ["m"], ["a"])
    with pytest.raises(InputError, match="row 1: column 'm': the cell is empty"):
        judged_words(as_table([{"mt": "a b", "m": empty, "a": empty}]), ["m"], ["a"])
    words = as_table([{"row": 1, "m": 0.5, "a": empty}])
    assert np.isnan(judged_words(words, ["m"], ["a"]).labels["a"]).all()


def test_marks_and_post_edits_are_annotators():
    rows = [
        {"mt": "The cow jumps.", "v": "The <v>cow</v> jumps.", "pe": "The cow sleeps here."},
        {"mt": "All right.", "v": "All right.", "pe": "All right."},
        {"mt": "Unseen.", "v": "", "pe": None},
    ]
    for row in rows:
        row["m"] = [0.5] * {"The cow jumps.": 4, "All right.": 3}.get(row["mt"], 2)
    found = judged_words(as_table(rows), ["m"], ["x=v:v", "y=pe:pe"])
    nan = np.nan
    np.testing.assert_array_equal(found.labels["x"], [0, 1, 0, 0, 0, 0, 0, nan, nan])
    np.testing.assert_array_equal(
        found.labels["y"], [0, 0, 1, 0, 0, 0, 0, nan, nan]
    )  # what is added marks no word
    table = as_table([{"mt": "A cow.", "v": "A <v>dog</v>.", "w": "A <v>cow.", "n": 5}])
    for text, message in (
        ("x=v:v", "row 1: column 'x': without its marks 'A <v>dog</v>.' is not the translation 'A cow.'"),
        ("x=v:w", "row 1: column 'x': the marks <v> and </v> do not come in pairs"),
        ("x=pe:n", "column 'n' holds Int64, expected texts"),
        ("x=pe:none", "no column 'none'"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            judged_words(table, [], [text])


def run(capsys, *arguments):
    assert main(["words", "evaluate", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "segments.parquet"
    write(frame(segments()), path)
    return str(path)


def test_everything_is_measured_and_said_as_json_in_a_pipe(file, tmp_path, capsys):
    curves = str(tmp_path / "curves.tsv")
    columns = ["--scores", "plain,noise", "--annotators", "tags,marks"]
    found = run(capsys, file, *columns, "--resamples", "50", "--missed", "0.2", "--curves", curves)
    judged = expected(segments())
    assert (found["segments"], found["words"], found["groups"]) == (
        40,
        len(judged.segment),
        ["en-de", "en-it"],
    )
    assert found["figures"] == judge(judged)
    assert [row["group"] for row in found["agreement"]] == ["en-de", "en-it"]
    assert {row["annotators"] for row in found["edit_counts"]} == {1, 2}
    (difference,) = found["differences"]
    assert (difference["first"], difference["second"]) == ("plain", "noise")
    assert {row["metric"] for row in found["thresholds"]} == {"plain", "noise"}
    assert pl.read_csv(curves, separator="\t").columns[-3:] == ["threshold", "precision", "recall"]


def test_thresholds_come_from_another_table_and_are_kept(file, tmp_path, capsys):
    other, control = tmp_path / "other.parquet", tmp_path / "control.json"
    write(frame(segments(seed=1)), other)
    columns = ["--scores", "plain", "--annotators", "tags", "--calibration", str(other)]
    found = run(capsys, file, *columns, "--missed", "0.2", "--control", str(control))
    pair = (expected(segments(seed=seed), ["plain"]) for seed in (0, 1))
    assert found["figures"] == judge(
        *(Judged(j.scores, {"tags": j.labels["tags"]}, j.segment, j.group) for j in pair)
    )
    (promise,) = found["thresholds"]
    assert load(control).threshold == promise["threshold"]
    assert load(control).promise.startswith("in expectation at most 20 %")


def test_a_threshold_for_a_recall_is_kept_and_says_that_it_promises_nothing(file, tmp_path, capsys):
    control = tmp_path / "control.json"
    columns = ["--scores", "plain", "--annotators", "tags", "--calibration", file]
    found = run(capsys, file, *columns, "--recall", "0.8", "--control", str(control))
    (row,) = found["thresholds"]
    assert row["recall"] >= 0.8
    assert load(control).threshold == row["threshold"]
    assert "nothing is promised" in load(control).promise


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--f1", "--recall", "0.5"], "one of --missed, --recall, --precision and --f1"),
        (["--f1", "--confidence", "0.9"], "--confidence belongs to a promise"),
        (["--precision", "1.5"], "a precision lies above 0 and not above 1"),
    ],
)
def test_one_threshold_is_chosen_by_one_rule(file, options, message):
    with pytest.raises(InputError, match=message):
        main(["words", "evaluate", file, "--scores", "plain", "--annotators", "tags", *options])


def test_one_segment_is_not_halved(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"mt": "a b", "m": [0.9, 0.1], "a": ["BAD", "OK"]}\n')
    with pytest.raises(InputError, match="one segment cannot choose thresholds and try them"):
        main(["words", "evaluate", str(path), "--scores", "m", "--annotators", "a", "--f1"])


def test_what_the_verb_words_wrote_is_joined_with_annotations(tmp_path, capsys):
    rows = segments()
    scored = [
        {"row": i, "start": span["start"], "end": span["end"], "tagger": span["probability"]}
        for i, row in enumerate(rows, 1)
        for span in row["spans"]
    ]
    files = [str(tmp_path / name) for name in ("words.tsv", "segments.parquet")]
    write(pl.DataFrame(scored), files[0])
    write(frame(rows), files[1])
    columns = ["--scores", "tagger", "--annotators", "tags,marks", "--words", "words"]
    found = run(capsys, files[0], "--annotations", files[1], *columns)
    wanted = {row["ap"] for row in judge(expected(rows, ["plain"])) if row["metric"] == "plain"}
    assert {row["ap"] for row in found["figures"] if row["metric"] == "tagger"} == wanted
    write(pl.DataFrame([{"row": 41, "start": 0, "end": 1, "tagger": 0.5}]), files[0])
    with pytest.raises(InputError, match="words.tsv:2: .*segments.parquet has no row 41"):
        main(["words", "evaluate", files[0], "--annotations", files[1], *columns])


def layered(rows, seed):
    """What `words` writes of signals with layers, of which the second one knows something."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        [
            {"row": i, "start": span["start"], "end": span["end"], "entropy": 0.0}
            | {f"ll-kl:{layer}": rng.normal() + 3 * bad * (layer == 1) for layer in range(3)}
            for i, row in enumerate(rows, 1)
            for span, bad in zip(row["spans"], row["wrong"][0], strict=True)
        ]
    )


@pytest.fixture
def two(tmp_path):
    """Options: words to judge and words to calibrate on, with their tables of annotations."""
    files = []
    for name, seed in (("test", 0), ("dev", 1)):
        rows = segments(seed=seed)
        files += [str(tmp_path / f"{name}_words.tsv"), str(tmp_path / f"{name}.parquet")]
        write(layered(rows, seed), files[-2])
        write(frame(rows), files[-1])
    words, annotations, calibration, calibration_annotations = files
    other = ["--calibration", calibration, "--calibration-annotations", calibration_annotations]
    return [words, "--annotations", annotations, "--annotators", "tags", "--words", "words", *other]


def test_the_best_layer_is_chosen_on_calibration_words_and_judged_on_others(
    two, tmp_path, capsys, monkeypatch
):
    control = tmp_path / "control.json"
    found = run(capsys, *two, "--scores", "ll-kl:best", "--recall", "0.8", "--control", str(control))
    assert [(row["metric"], row["column"], row["chosen"]) for row in found["layers"]] == [
        ("ll-kl", f"ll-kl:{layer}", layer == 1) for layer in range(3)
    ]
    named = run(capsys, *two, "--scores", "ll-kl:1", "--recall", "0.8")
    assert "layers" not in named
    for part in ("figures", "thresholds"):
        assert found[part] == named[part]
    assert load(control).signal == "ll-kl:1"
    monkeypatch.setattr("doubtless.cli.render.wants_pretty", lambda wish: True)
    assert main(["words", "evaluate", *two, "--scores", "entropy,ll-kl:best", "--resamples", "0"]) == 0
    assert "Best layers" in capsys.readouterr().out


def test_thresholds_come_from_words_and_annotations_of_another_table(two, capsys):
    found = run(capsys, *two, "--scores", "ll-kl:1", "--missed", "0.2")
    judged, other = (expected(rows, []) for rows in (segments(seed=0), segments(seed=1)))
    values = [layered(segments(seed=seed), seed)["ll-kl:1"].to_numpy() for seed in (0, 1)]
    pair = [
        Judged({"ll-kl:1": own}, {"tags": part.labels["tags"]}, part.segment, part.group)
        for own, part in zip(values, (judged, other), strict=True)
    ]
    wanted = judge(*pair)
    assert [row["ap"] for row in found["figures"]] == pytest.approx([row["ap"] for row in wanted])
    calibrated = ([row["f1_calibrated"] for row in rows] for rows in (found["figures"], wanted))
    assert next(calibrated) == pytest.approx(next(calibrated))
    (promise,) = found["thresholds"]
    assert promise["threshold"] == pytest.approx(
        control_missed(values[1], other.labels["tags"] == 1, other.segment, 0.2).threshold
    )


def test_a_best_layer_needs_words_of_its_own(two):
    short = two[:7]
    for arguments, message in (
        ([*short, "--scores", "ll-kl:best"], "chosen on other words than it is judged on: --calibration"),
        ([*two, "--scores", "ll-kl:best", "--missed", "0.1"], "a promise needs words that did not choose"),
        ([*two, "--scores", "blood:best"], "'blood:best' is among columns such as 'blood:0'"),
        ([*short, "--scores", "ll-kl:1", "--calibration-annotations", two[2]], "belong to a table of words"),
    ):
        with pytest.raises(InputError, match=message):
            main(["words", "evaluate", *arguments])


def test_segments_with_words_that_have_no_value_are_left_out_and_counted(tmp_path, capsys):
    rows = segments()
    scored = [
        {"row": i, "start": span["start"], "end": span["end"], "surprisal": span["probability"]}
        for i, row in enumerate(rows, 1)
        for span in row["spans"]
    ]
    scored[0]["surprisal"] = scored[-1]["surprisal"] = None
    files = [str(tmp_path / name) for name in ("words.tsv", "segments.parquet")]
    write(pl.DataFrame(scored), files[0])
    write(frame(rows), files[1])
    columns = ["--scores", "surprisal", "--annotators", "tags", "--words", "words"]
    assert main(["words", "evaluate", files[0], "--annotations", files[1], *columns]) == 0
    captured = capsys.readouterr()
    assert "2 of 40 segments have words without a value" in captured.err
    found = json.loads(captured.out)
    kept = expected(rows[1:-1], ["plain"])
    assert (found["segments"], found["words"]) == (38, len(kept.segment))
    wanted = judge(Judged(kept.scores, {"tags": kept.labels["tags"]}, kept.segment, kept.group))
    by_metric = (
        [r["ap"] for r in rows if r["metric"] == m]
        for rows, m in ((found["figures"], "surprisal"), (wanted, "plain"))
    )
    assert next(by_metric) == pytest.approx(next(by_metric))


def test_annotators_alone_are_judged_by_each_other(file, capsys):
    found = run(capsys, file, "--annotators", "tags,marks")
    assert {row["metric"] for row in found["figures"]} == {"random", "human min", "human mean", "human max"}


def test_a_terminal_shows_tables(file, capsys, monkeypatch):
    monkeypatch.setattr("doubtless.cli.render.wants_pretty", lambda wish: True)
    columns = ["--scores", "plain,noise", "--annotators", "tags,marks", "--missed", "0.3"]
    assert main(["words", "evaluate", file, *columns, "--resamples", "20"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "2 annotators",
        "human mean",
        "Krippendorff",
        "Spearman",
        "Differences of ap",
        "Thresholds",
    ):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "who says what is wrong"),
        (["--annotators", "nobody"], "no column 'nobody'"),
        (["--annotators", "tags", "--control", "x.json"], "keeps a threshold"),
        (
            ["--annotators", "tags,marks", "--scores", "plain", "--missed", "0.1", "--control", "x"],
            "one metric",
        ),
        (["--annotators", "a=starts"], "NAME=STARTS"),
        (["--annotators", "tags", "--curves", "x.pdf"], "unknown ending"),
        (["--annotators", "tags", "--scores", "plain,noise", "--figure", "luck"], "ap or f1"),
        (["--annotators", "tags", "--scores", "plain", "--figure", "luck"], "ap or f1, found 'luck'"),
        (["--annotators", "tags", "--recall", "0.1"], "for the suspicions of a metric: --scores"),
    ],
)
def test_bad_wishes_are_one_sentence(file, arguments, message):
    with pytest.raises(InputError, match=message):
        main(["words", "evaluate", file, *arguments])
