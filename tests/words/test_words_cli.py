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
    assert frame.columns == ["row", "lp", "system", "seg", "word", "start", "end", "tagger"]
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


def test_a_sum_over_tokens_is_at_least_their_maximum(parallel, marian, capsys):
    frames = {}
    for join in ("max", "mean", "sum"):
        assert main(["words", *parallel, "-m", marian, "--signals", "surprisal", "--join", join]) == 0
        # In the first row no token reaches into two words, between which a sum would split it.
        frames[join] = table_of(capsys.readouterr().out).filter(pl.col("row") == 1)["surprisal"]
    assert (frames["sum"] >= frames["max"] - 1e-9).all()
    assert (frames["max"] >= frames["mean"] - 1e-9).all()
    assert (frames["sum"] > frames["mean"]).any()


def test_recorded_probabilities(tmp_path, capsys):
    path = tmp_path / "recorded.jsonl"
    rows = [
        {
            "src": "x",
            "mt": "The houses.",
            "nmt_tok": "The hou@@ ses .",
            "nmt_logprobs": [-0.5, -2, -1, -0.25, -0.1],
        },
        {"src": "x", "mt": "Nothing.", "nmt_tok": None, "nmt_logprobs": None},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out.jsonl"
    assert main(["words", str(path), "--signals", "surprisal", "-o", str(out)]) == 0
    frame = pl.read_ndjson(out)
    assert frame["surprisal"].to_list() == [0.5, 2.0, 0.25, None, None]
    capsys.readouterr()


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
        self.texts, self.levels, self.links, self._in = [], [], [], None

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag == "p":
            self._in = given.get("class")
            if self._in == "mt":
                self.texts.append("")
        if tag == "span":
            self.levels.append([float(x) for x in given["data-levels"].split(",")])

    def handle_endtag(self, tag):
        self._in = None if tag == "p" else self._in

    def handle_data(self, data):
        if self._in == "mt":
            self.texts[-1] += data


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
        (["--languages", "en_XX,de_DE"], "for a translation model"),
        (["-m", "x", "--languages", "en_XX"], "two codes"),
        (["-m", "no/such/folder"], "no such folder"),
        (["-m", "{marian}", "--signals", "gravity"], "no signal 'gravity'"),
        (["-m", "{marian}", "--join", "median"], "found 'median'"),
        (["-o", "words.xyz"], "unknown ending"),
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
