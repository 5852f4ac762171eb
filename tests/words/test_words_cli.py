"""``doubtless words``: tables, JSON, pages; from a tagger, a translation model, recorded probabilities."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError
from doubtless.segments import write
from doubtless.words.control import load

SRC = ["The cat sleeps.", "I do not know <it> & you.", "Good morning."]
MT = ["Die Katze schläft.", 'Ich weiß <es> & "du" nicht.', ""]


@pytest.fixture
def parallel(tmp_path):
    src, mt = tmp_path / "src.txt", tmp_path / "mt.txt"
    src.write_text("".join(f"{line}\n" for line in SRC), encoding="utf-8")
    mt.write_text("".join(f"{line}\n" for line in MT), encoding="utf-8")
    return ["-s", str(src), "-t", str(mt)]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    pytest.importorskip("torch")
    pytest.importorskip("sentencepiece")
    from tiny_mt import write_model

    return str(write_model("marian", tmp_path_factory.mktemp("marian")))


def table_of(text: str) -> pl.DataFrame:
    return pl.read_csv(text.encode(), separator="\t", quote_char='"')


def test_the_bundled_tagger_works_at_once(parallel, capsys):
    assert main(["words", *parallel, "--lp", "en-de"]) == 0
    frame = table_of(capsys.readouterr().out)
    assert frame.columns == ["row", "lp", "system", "seg", "word", "start", "end", "tagger", "flags"]
    assert frame["word"].to_list()[:4] == ["Die", "Katze", "schläft", "."]
    assert frame["row"].unique().sort().to_list() == [1, 2]  # the empty one has no words
    assert frame["tagger"].is_between(0, 1).all()
    for row, start, end, word in frame.select("row", "start", "end", "word").iter_rows():
        assert MT[row - 1][start:end] == word


def test_no_torch_is_needed_for_the_tagger(parallel):
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from doubtless.cli.main import main\n"
        f"sys.exit(main({['words', *parallel, '--lp', 'en-de']!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Katze" in done.stdout


def test_signals_of_a_model_beside_the_tagger(parallel, marian, capsys):
    options = ["--model", marian, "--signals", "surprisal,mcd-var,ll-kl:1", "--passes", "3"]
    assert main(["words", *parallel, *options, "--tagger", "bundled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["signals"] == ["tagger", "surprisal", "mcd-var", "ll-kl:1"]
    assert found["n"] == 3
    assert [len(segment["words"]) for segment in found["segments"]][2] == 0
    word = found["segments"][0]["words"][0]
    assert (word["text"], word["start"], word["end"]) == ("Die", 0, 3)
    assert all(word[name] is not None for name in found["signals"])
    assert "passes:3|seed:0" in found["signature"]


def test_a_tagger_says_probabilities_or_marks_spans(parallel, tmp_path, capsys):
    from doubtless.words.tagger import open_tagger, tag_words

    out = tmp_path / "words.parquet"
    assert main(["words", *parallel, "--lp", "en-de", "--form", "binary", "-o", str(out)]) == 0
    marks = pl.read_parquet(out)
    tagged = tag_words(open_tagger(), {"src": SRC, "mt": MT}, ["en-de"] * 3)
    assert marks["tagger"].to_list() == [x for own in tagged for x in own.on(own.words, "binary")]
    assert "|form:binary" in pl.read_parquet_metadata(out)["doubtless.signature"]
    assert json.loads(pl.read_parquet_metadata(out)["doubtless.signals"])["tagger"].endswith("|form:binary")


def test_all_layers_are_columns_of_which_one_can_be_named(parallel, marian, capsys):
    assert main(["words", *parallel, "-m", marian, "--signals", "entropy,ll-kl:all"]) == 0
    every = table_of(capsys.readouterr().out)
    names = [f"ll-kl:{layer}" for layer in range(3)]
    assert every.columns[every.columns.index("end") + 1 : -1] == ["entropy", *names]
    assert main(["words", *parallel, "-m", marian, "--signals", "ll-kl:1", "--threshold", "0.5"]) == 0
    assert table_of(capsys.readouterr().out)["ll-kl:1"].to_list() == every["ll-kl:1"].to_list()


def test_each_row_is_read_in_its_own_languages(tmp_path, capsys):
    pytest.importorskip("torch")
    from tiny_mt import write_model

    model = str(write_model("mbart", tmp_path / "mbart"))
    rows = [("de-en", "Haus", "The cat."), ("en-de", "The cat.", "Haus"), ("de-en", "Dach", "The roof.")]
    frame = pl.DataFrame(rows, schema=["lp", "src", "mt"], orient="row")
    path = tmp_path / "pairs.tsv"
    write(frame, path)
    assert main(["words", str(path), "-m", model]) == 0
    together = table_of(capsys.readouterr().out)
    for lp in ("de-en", "en-de"):
        assert main(["words", str(path), "-m", model, "--where", f"lp = '{lp}'"]) == 0
        alone = table_of(capsys.readouterr().out)
        own = together.filter(pl.col("lp") == lp)
        assert own["word"].to_list() == alone["word"].to_list()
        assert own["surprisal"].to_list() == pytest.approx(alone["surprisal"].to_list(), abs=1e-5)
    with pytest.raises(DoubtlessError, match="--languages are one pair, found de-en, en-de"):
        main(["words", str(path), "-m", model, "--languages", "de_DE,en_XX"])


def test_a_sum_over_tokens_is_at_least_their_maximum(parallel, marian, capsys):
    frames = {}
    for join in ("max", "mean", "sum"):
        assert main(["words", *parallel, "-m", marian, "--signals", "surprisal", "--join", join]) == 0
        # In the first row no token reaches into two words, between which a sum would split it.
        frames[join] = table_of(capsys.readouterr().out).filter(pl.col("row") == 1)["surprisal"]
    assert (frames["sum"] >= frames["max"] - 1e-9).all()
    assert (frames["max"] >= frames["mean"] - 1e-9).all()
    assert (frames["sum"] > frames["mean"]).any()


RECORDED = [
    {
        "src": "x",
        "mt": "The houses.",
        "mt_tok": "The houses .",
        "mt_tags": "OK BAD OK",
        "nmt_tok": "The hou@@ ses .",
        "nmt_logprobs": [-0.5, -2, -1, -0.25, -0.1],
    },
    {
        "src": "x",
        "mt": "Nothing.",
        "mt_tok": "Nothing .",
        "mt_tags": "BAD OK",
        "nmt_tok": None,
        "nmt_logprobs": None,
    },
    {
        "src": "x",
        "mt": "A cow.",
        "mt_tok": "A cow .",
        "mt_tags": "OK BAD OK",
        "nmt_tok": "A c@@ ow .",
        "nmt_logprobs": [-0.1, -1.2345678, -0.2, -0.05],
    },
]


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "recorded.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in RECORDED))
    return [str(path), "--signals", "surprisal"]


def test_recorded_probabilities(recorded, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    assert main(["words", *recorded, "-o", str(out)]) == 0
    frame = pl.read_ndjson(out)
    assert frame["surprisal"].to_list() == [0.5, 2.0, 0.25, None, None, 0.1, 1.234568, 0.05]
    assert frame["flags"].to_list() == [*[""] * 3, "unrecorded", "unrecorded", *[""] * 3]
    assert "bad" not in frame.columns
    capsys.readouterr()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"nmt_logprobs": -0.5}, "bad.jsonl:1: log-probabilities are a list of numbers, found '-0.5'"),
        ({"nmt_logprobs": ["x", "y"]}, "bad.jsonl:1: log-probabilities are a list of numbers"),
        ({"nmt_logprobs": "high"}, "bad.jsonl:1: 'high' is not a list of log-probabilities"),
        ({"nmt_tok": 5}, "bad.jsonl:1: subword units are a text or a list of texts, found '5'"),
    ],
)
def test_records_that_cannot_be_used_are_said_with_their_place(row, message, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps({"mt": "a b", "nmt_tok": "a b", "nmt_logprobs": [-0.5, -0.2], **row}) + "\n")
    with pytest.raises(DoubtlessError, match=message):
        main(["words", str(path), "--signals", "surprisal"])


def test_units_may_be_a_list(tmp_path, capsys):
    path = tmp_path / "units.jsonl"
    path.write_text(json.dumps({"mt": "a b", "nmt_tok": ["a", "b"], "nmt_logprobs": [-0.5, -0.2]}) + "\n")
    assert main(["words", str(path), "--signals", "surprisal"]) == 0
    assert table_of(capsys.readouterr().out)["surprisal"].to_list() == [0.5, 0.2]


def test_a_number_decides_which_words_are_bad(recorded, tmp_path, capsys):
    page = tmp_path / "page.html"
    options = [*recorded, "--threshold", "0.5"]
    assert main(["words", *options, "--html", str(page), "-o", "-"]) == 0
    frame = table_of(capsys.readouterr().out)
    assert frame["bad"].to_list() == [True, True, False, None, None, False, True, False]
    assert main(["words", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bad"] == 3
    assert "|threshold:surprisal,0.5|" in found["signature"]
    rule = "surprisal at or above 0.5"
    assert found["threshold"] == {"signal": "surprisal", "value": 0.5, "rule": rule, "promise": None}
    words = [word for segment in found["segments"] for word in segment["words"]]
    assert [word["bad"] for word in words] == frame["bad"].to_list()
    assert main(["words", *options, "--pretty"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1  [The] [houses].\n2 unrecorded  Nothing.\n3  A [cow].\n")
    assert f"8 words; in brackets: the 3 that are bad ({rule})" in shown
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert reader.bad == ["The", "houses", "cow"]
    assert f"Underlined are the 3 bad words: {rule}." in page.read_text(encoding="utf-8")


def test_bad_words_are_underlined_in_colour(recorded, capsys, monkeypatch):
    from rich.console import Console

    console = Console(force_terminal=True, color_system="truecolor", width=80, highlight=False)
    monkeypatch.setattr("doubtless.cli.words_page.new_console", lambda: console)
    assert main(["words", *recorded, "--threshold", "2", "--pretty"]) == 0
    shown = capsys.readouterr().out
    underlined = re.findall(r"\x1b\[1;4[^m]*m([^\x1b]+)", shown)
    assert underlined == ["houses"]
    assert "underlined: the 1 that are bad" in shown


@pytest.fixture
def control(recorded, tmp_path, capsys):
    """A stored threshold, and the table that it was calibrated on."""

    def calibrated(ending):
        words, stored = (str(tmp_path / name) for name in (f"words.{ending}", "threshold.json"))
        assert main(["words", *recorded, "-o", words]) == 0
        # The labels are put beside the values, one row a word.
        found = pl.read_parquet(words) if ending == "parquet" else pl.read_csv(words, separator="\t")
        tags = [tag for row in RECORDED for tag in row["mt_tags"].split()]
        labelled = found.with_columns(mt_tags=pl.Series(tags)).filter(pl.col("surprisal").is_not_null())
        footer = pl.read_parquet_metadata(words) if ending == "parquet" else {}
        write(labelled, words, {k: v for k, v in footer.items() if k.startswith("doubtless")})
        judge = ["--scores", "surprisal", "--annotators", "mt_tags", "--calibration", words]
        options = ["--missed", "0.4", "--control", stored, "--resamples", "0"]
        assert main(["words", "evaluate", words, *judge, *options]) == 0
        capsys.readouterr()
        return stored

    return calibrated


def test_a_stored_threshold_decides_and_says_its_promise(recorded, control, capsys):
    stored = control("parquet")
    assert (load(stored).signal, load(stored).made_with) == ("surprisal", "recorded|join:max")
    # Two segments with one wrong word each, of which (0.4 * 3 - 1) may be missed: none. The value was rounded
    # up when it was written, and is found all the same.
    assert load(stored).threshold == 1.234568
    assert main(["words", *recorded, "--threshold", stored, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [word["bad"] for word in found["segments"][2]["words"]] == [False, True, False]
    assert found["threshold"]["promise"] == load(stored).promise
    assert captured.err == ""
    assert main(["words", *recorded, "--threshold", stored, "--pretty"]) == 0
    assert load(stored).promise in capsys.readouterr().out


def test_a_threshold_of_something_else_is_refused_before_anything_is_computed(recorded, control, marian):
    stored = control("parquet")
    with pytest.raises(
        DoubtlessError, match="threshold.json: the threshold is for 'surprisal', not for tagger"
    ):
        main(["words", recorded[0], "--threshold", stored])
    message = r"for another surprisal \(recorded\|join:max, here recorded\|join:sum\)"
    with pytest.raises(DoubtlessError, match=message):
        main(["words", *recorded, "--join", "sum", "--threshold", stored])
    with pytest.raises(DoubtlessError, match=r"recorded\|join:max, here weights:[0-9a-f]{8}\|join:max"):
        main(["words", *recorded, "-m", marian, "--threshold", stored])


def test_a_threshold_from_a_table_of_text_knows_its_signal_only(recorded, control, capsys):
    stored = control("tsv")
    assert (load(stored).signal, load(stored).made_with) == ("surprisal", None)
    assert main(["words", *recorded, "--threshold", stored, "--json"]) == 0
    captured = capsys.readouterr()
    assert "does not say which model it is for" in captured.err
    assert json.loads(captured.out)["warnings"][0] in captured.err
    with pytest.raises(DoubtlessError, match="for 'surprisal', not for tagger"):
        main(["words", recorded[0], "--threshold", stored])


def test_one_segment_that_is_too_long_costs_its_own_values_only(marian, tmp_path, capsys):
    path = tmp_path / "long.jsonl"
    pairs = [("Haus", "The cat."), ("Haus", "The cat sleeps. " * 20), ("Katze " * 80, "The cat.")]
    path.write_text("".join(json.dumps({"src": src, "mt": mt}) + "\n" for src, mt in pairs))
    options = ["-m", marian, "--signals", "surprisal,blood", "--threshold"]
    with pytest.raises(DoubtlessError, match="is for one signal, but there are several: surprisal, blood"):
        main(["words", str(path), *options, "1"])
    assert (
        main(["words", str(path), *options[:2], "--signals", "surprisal", "--threshold", "0", "--plain"]) == 0
    )
    captured = capsys.readouterr()
    assert "2 of 3 segments did not fit into a model" in captured.err
    frame = table_of(captured.out)
    assert frame.filter(pl.col("row") == 1)["surprisal"].null_count() == 0
    long = frame.filter(pl.col("row") == 2)
    first = long["surprisal"].is_null().arg_max()
    assert first > 5
    assert long["surprisal"][first:].null_count() == len(long) - first > 5
    assert long["bad"].is_null().to_list() == long["surprisal"].is_null().to_list()
    assert frame.filter(pl.col("row") == 3)["surprisal"].is_null().all()
    assert frame.select("row", "flags").unique().sort("row")["flags"].to_list() == [None, *["truncated"] * 2]


def test_shaded_text_in_brackets_where_there_are_no_colours(parallel, marian, capsys):
    assert main(["words", *parallel, "-m", marian, "--pretty", "--rows", "1"]) == 0
    shown = capsys.readouterr().out
    assert "… and 2 more segments" in shown
    assert "in brackets: the tenth of them with the highest surprisal" in shown
    assert main(["words", *parallel, "-m", marian, "--pretty"]) == 0
    shown = capsys.readouterr().out
    bracketed = re.findall(r"\[([^]]+)\]", shown)
    assert 1 <= len(bracketed) <= 3  # of 15 words
    assert shown.replace("[", "").replace("]", "").startswith(f"1  {MT[0]}\n2  {MT[1]}\n")


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.texts, self.levels, self.links, self.bad, self._in = [], [], [], [], None
        self._bad = False

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag == "p":
            self._in = given.get("class")
            if self._in == "mt":
                self.texts.append("")
        if tag == "span":
            self.levels.append([float(x) for x in given["data-levels"].split(",")])
            self._bad = given.get("class") == "bad"

    def handle_endtag(self, tag):
        self._in = None if tag == "p" else self._in
        self._bad = False

    def handle_data(self, data):
        if self._in == "mt":
            self.texts[-1] += data
        if self._bad:
            self.bad.append(data)


def test_the_page_holds_the_texts_and_nothing_from_elsewhere(parallel, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["words", *parallel, "--lp", "en-de", "--html", str(page)]) == 0
    assert capsys.readouterr().out == ""
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert reader.texts == MT
    assert reader.links == []
    assert all(0 <= level <= 1 for levels in reader.levels for level in levels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--signals", "entropy"], "only surprisal is known"),
        (["--signals", "surprisal"], "need --model, or surprisal recorded in columns nmt_tok"),
        (["--tagger", "none"], "nothing to look at"),
        (["--form", "loud"], "confidence or binary, found 'loud'"),
        (["-m", "x", "--form", "binary"], "--form is of what a tagger says"),
        (["-m", "{marian}", "--signals", "entropy:all"], "'entropy:all' names no layer of entropy"),
        (["--languages", "en_XX,de_DE"], "for a translation model"),
        (["-m", "x", "--languages", "en_XX"], "two codes"),
        (["-m", "no/such/folder"], "no such folder"),
        (["-m", "{marian}", "--signals", "gravity"], "no signal 'gravity'"),
        (["-m", "{marian}", "--join", "median"], "found 'median'"),
        (["-o", "words.xyz"], "unknown ending"),
        (["--threshold", "nan"], "a number or a file"),
        (["--threshold", "no-such.json"], "no-such.json: there is no such file"),
        (["--html", "/no/such/folder/x.html"], "cannot be written"),
    ],
)
def test_mistakes_are_said_in_one_sentence(parallel, marian, options, message):
    options = [option.replace("{marian}", marian) for option in options]
    with pytest.raises(DoubtlessError, match=message):
        main(["words", *parallel, *options])


def test_the_study_needs_a_model_and_stands_beside_the_paper(tmp_path, marian):
    from doubtless.reproduce import Options, find

    study = find("words-table2")
    with pytest.raises(DoubtlessError, match="--models FOLDER"):
        study.run(str(tmp_path))
    count = 9
    frame = pl.DataFrame(
        {
            "lp": ["zh-en"] * count,
            "set": ["wmt21_news"] * count,
            "system": ["one"] * (count - 1) + ["ref.A"],
            "src": [f"Die Katze {i}." for i in range(count)],
            "mt": [f"The cat sleeps on {i} roofs." for i in range(count)],
            "starts": [[4]] * count,
            "ends": [[7]] * count,
            "span_ok": [True] * count,
        }
    )
    frame.write_parquet(tmp_path / "mqm_spans.parquet")
    rows = study.run(str(tmp_path), Options(models=(marian,), quick=True))
    assert [row["signal"] for row in rows[:3]] == ["random", "surprisal", "entropy"]
    assert len(rows) == 12
    for row in rows[1:-1]:
        assert rows[0]["ap"] * 0.3 < row["ap"] <= 1
        assert row["f1"] >= row["f1_calibrated"]
        assert row["paper_ap"] > 0
    assert {row["signal"] for row in rows if row["layer"] is not None} == {"ll-surprisal", "ll-kl", "blood"}
    assert -1 <= rows[-1]["ap"] <= 1
