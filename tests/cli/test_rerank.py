from __future__ import annotations

import json

import polars as pl
import pytest

from doubtless.cli.main import main
from doubtless.errors import DoubtlessError

WORDS = ["house", "home", "hose", "house", "a house", "the house stands"]
COLUMNS = [
    "score",
    "lower",
    "upper",
    "error",
    "candidates",
    "cost",
    "finishing",
    "runner_up",
    "runner_up_score",
    "chance",
    "flags",
]


@pytest.fixture
def candidates(tmp_path) -> str:
    rows = [
        f"{seg}\t{src}\t{mt} {seg}\t{-i - 1}\t{i + 2}"
        for seg, src in enumerate(["Haus", "Das Haus"])
        for i, mt in enumerate(WORDS)
    ]
    path = tmp_path / "candidates.tsv"
    path.write_text(
        "\n".join(["seg\tsrc\tmt\tlogprob\ttokens", *rows, "2\tHund\tdog\t-1\t2", ""]), encoding="utf-8"
    )
    return str(path)


def test_one_row_a_source_with_all_that_is_known(shipped, candidates, tmp_path, capsys):
    out = str(tmp_path / "out.parquet")
    assert (
        main(
            [
                "rerank",
                candidates,
                "-m",
                shipped,
                "--lp",
                "de-en",
                "--method",
                "halving",
                "--budget",
                "0.7",
                "-o",
                out,
            ]
        )
        == 0
    )
    frame = pl.read_parquet(out)
    assert frame.columns == ["seg", "src", "mt", "logprob", "tokens", "lp", *COLUMNS]
    assert frame["candidates"].to_list() == [5, 5, 1]
    assert ((frame["lower"] <= frame["score"]) & (frame["score"] <= frame["upper"])).all()
    assert (frame["cost"] <= 0.7).all()
    for name in ("runner_up", "runner_up_score", "chance"):
        assert frame[name].is_null().to_list() == [False, False, True]
    assert (frame["chance"].drop_nulls() > 0).all()
    signature = pl.read_parquet_metadata(out)["doubtless.signature"]
    assert "rerank:halving,budget:0.7,gamma:1,start:1" in signature
    assert "alpha:0.1" in signature
    # The score is that of scoring the chosen row.
    chosen, scored = str(tmp_path / "chosen.tsv"), str(tmp_path / "scored.tsv")
    frame.select("lp", "src", "mt").write_csv(chosen, separator="\t")
    assert main(["score", chosen, "-m", shipped, "-o", scored]) == 0
    again = pl.read_csv(scored, separator="\t")
    for name in ("score", "lower", "upper", "error"):
        assert frame[name].to_list() == pytest.approx(again[name].to_list(), abs=1e-5)
    capsys.readouterr()


def test_lists_give_what_rows_give(shipped, candidates, tmp_path, capsys):
    rows = pl.read_csv(candidates, separator="\t")
    lists = str(tmp_path / "lists.parquet")
    rows.group_by("seg", "src", maintain_order=True).agg("mt", "logprob").write_parquet(lists)
    outputs = []
    for path in (candidates, lists):
        assert main(["rerank", path, "-m", shipped, "--no-intervals"]) == 0
        head, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        outputs.append([dict(zip(head, line, strict=True)) for line in lines])
    for one, other in zip(*outputs, strict=True):
        assert {k: one[k] for k in ("mt", "score", "chance")} == {
            k: other[k] for k in ("mt", "score", "chance")
        }


@pytest.mark.parametrize(
    "method",
    [
        "ucb",
        "ucb-paper",
        "halving",
        "constant:2",
        "confidence:0.3",
        "random",
        "logprob-sum",
        "logprob-avg",
        "similar",
        "full",
    ],
)
def test_every_method_says_what_it_cost(models, candidates, method, capsys):
    assert (
        main(
            [
                "rerank",
                candidates,
                "-m",
                str(models / "exits"),
                "--no-intervals",
                "--method",
                method,
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["sources"], found["candidates"], found["different"]) == (3, 13, 11)
    assert 0 < found["cost"] <= 1
    if method == "full":
        assert (found["cost"], found["finishing"]) == (1, 0)
    if method.startswith("logprob"):  # three models of five, and the only one
        assert found["cost"] == pytest.approx(5 / 11)


def test_log_probabilities_decide_what_is_scored(models, candidates, capsys):
    arguments = ["rerank", candidates, "-m", str(models / "exits"), "--no-intervals", "--budget", "0.4"]
    assert main([*arguments, "--method", "logprob-sum"]) == 0
    chosen = [line.split("\t")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert set(chosen) <= {"house 0", "home 0", "house 1", "home 1", "dog"}


def test_the_table_for_people(shipped, candidates, capsys):
    assert main(["rerank", candidates, "-m", shipped, "--lp", "de-en", "--pretty"]) == 0
    out = capsys.readouterr().out
    assert "P(better)" in out
    assert "3 sources, 13 candidates (11 different)" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--method", "best"], "a method is one of"),
        (
            ["--method", "ucb", "--budget", "0.1"],
            "a budget of 0.1 does not take all candidates to their first exit",
        ),
        (["--method", "logprob-sum", "--logprob", "lp"], "no column 'lp'"),
        (["--budget", "0.3"], "'race' has no budget"),
        (["--method", "full", "--start", "2"], "'full' has no start"),
        (["--method", "constant:0.5"], "'constant' needs the number of a layer"),
        (["--gamma", "-3"], "gamma is a number of standard deviations from 0 on"),
        (["-m", "PLAIN"], "the model has no exits before its last layer"),
        (["-o", "out.doc"], "unknown ending"),
    ],
)
def test_mistakes_are_said_in_a_sentence(models, candidates, arguments, sentence):
    given = [str(models / "plain") if word == "PLAIN" else word for word in arguments]
    model = [] if "-m" in given else ["-m", str(models / "exits")]
    with pytest.raises(DoubtlessError, match=sentence):
        main(["rerank", candidates, "--no-intervals", *model, *given])


def test_columns_that_are_there_are_not_written_over(shipped, candidates, tmp_path, monkeypatch, capsys):
    plain = str(tmp_path / "plain.tsv")
    assert main(["rerank", candidates, "-m", shipped, "--lp", "de-en", "-o", plain]) == 0
    expected = pl.read_csv(plain, separator="\t")
    there = {name: pl.lit(f"my {name}") for name in ("score", "lower", "flags", "chance", "layer")}
    path, out = str(tmp_path / "there.tsv"), str(tmp_path / "out.tsv")
    pl.read_csv(candidates, separator="\t").with_columns(**there).write_csv(path, separator="\t")
    arguments = ["rerank", path, "-m", shipped, "--lp", "de-en"]
    assert main([*arguments, "--prefix", "best_", "-o", out]) == 0
    found = pl.read_csv(out, separator="\t")
    for name in there:
        assert found[name].to_list() == [f"my {name}"] * 3
    assert found.columns[-len(COLUMNS) :] == [f"best_{name}" for name in COLUMNS]
    for name in COLUMNS:
        assert found[f"best_{name}"].to_list() == expected[name].to_list()
    # Without a prefix it is refused, before a model is opened.
    opened = []
    monkeypatch.setattr("doubtless.neural.runtime.open_engine", lambda *_, **__: opened.append(1))
    with pytest.raises(DoubtlessError, match="there is a column 'score' already .choose a --prefix"):
        main(arguments)
    assert not opened
    capsys.readouterr()


def test_a_column_of_layers_stays(models, candidates, tmp_path, capsys):
    path = str(tmp_path / "layers.tsv")
    pl.read_csv(candidates, separator="\t").with_columns(layer=pl.lit(7)).write_csv(path, separator="\t")
    assert main(["rerank", path, "-m", str(models / "exits"), "--no-intervals"]) == 0
    head, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[head.index("layer")] for row in rows] == ["7", "7", "7"]


def test_lists_that_are_no_candidates_are_said_with_their_place(models, tmp_path):
    path = tmp_path / "lists.jsonl"
    rows = [{"src": "Haus", "mt": ["house"]}, {"src": "Hund", "mt": ["dog", None]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DoubtlessError, match=r"lists.jsonl:2: one of the candidates is missing"):
        main(["rerank", str(path), "-m", str(models / "exits"), "--no-intervals"])
