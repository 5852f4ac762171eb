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
    assert (
        frame["runner_up"].is_null().to_list() == frame["chance"].is_null().to_list() == [False, False, True]
    )
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
        (["-m", "PLAIN"], "the model has no exits before its last layer"),
        (["-o", "out.doc"], "unknown ending"),
    ],
)
def test_mistakes_are_said_in_a_sentence(models, candidates, arguments, sentence):
    given = [str(models / "plain") if word == "PLAIN" else word for word in arguments]
    model = [] if "-m" in given else ["-m", str(models / "exits")]
    with pytest.raises(DoubtlessError, match=sentence):
        main(["rerank", candidates, "--no-intervals", *model, *given])
