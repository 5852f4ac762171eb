"""Rows with steadier scores.

``python recipes/bundled/distil.py MODEL --data DIR --prepared WORK --share 0.6 -o distilled.parquet``

A person's score of a translation is a guess with much chance in it. What post-edits, the translating model's
log-probabilities and the model's own scores say of the same row is another; how to mix these, a regression
on dev says for each pair, where the model has not seen the scores. The table has the human scores of
``train.parquet`` moved towards that guess, further numbers to learn beside them, and of the rows that were
made some. ``judged.parquet`` is dev with the further numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from again import fewer
from prepare import foretellers, mlqe
from ridge import Array, ridge

from doubtless.neural.engine import Engine
from doubtless.neural.runtime import open_engine
from doubtless.neural.tagged import tagged

KEYS = ["lp", "src", "mt"]
# What heads learn beside score and HTER: log-probabilities, and which share of gaps and source words is bad.
FURTHER = {
    "logprob": pl.col("model_score"),
    "least": pl.col("nmt_logprobs").list.min(),
    "gaps": pl.col("gap_tags").list.eval(pl.element() == "BAD").list.mean().sqrt(),
    "sources": pl.col("src_tags").list.eval(pl.element() == "BAD").list.mean(),
}


def known_rows(folder: Path) -> pl.DataFrame:
    """What MLQE-PE says of its rows, each once, with the further numbers in deviations within the pair."""
    rows = pl.read_parquet(folder / "mlqe_pe.parquet").unique(["split", *KEYS], keep="first")
    rows = rows.with_columns(**{name: told.cast(pl.Float64) for name, told in FURTHER.items()})
    standardised = [
        ((pl.col(name) - pl.col(name).mean()) / pl.col(name).std()).over("lp") for name in FURTHER
    ]
    return rows.with_columns(*standardised)


def scores_of(rows: pl.DataFrame, engine: Engine) -> Array:
    """The model's scores of rows, their sources as they are."""
    return engine.score({"src": rows["src"].to_list(), "mt": rows["mt"].to_list()}).score


def mixed(human: Array, guess: Array, share: float) -> Array:
    """Human scores moved towards a guess by some share; their deviation shrinks by a sixth of that."""
    both = (1 - share) * human + share * guess
    return (both - both.mean()) / both.std() * (1 - share / 6) * human.std() + human.mean()


def distilled(
    human: Array, told: pl.DataFrame, score: Array, judged: pl.DataFrame, judged_score: Array, share: float
) -> Array:
    """Human scores, moved towards what else is known of the rows and what the model says of them."""
    moved, pairs, others = human.copy(), told["lp"].to_numpy(), judged["lp"].to_numpy()
    features, known = (
        np.column_stack([foretellers(rows), own]) for rows, own in ((told, score), (judged, judged_score))
    )
    for lp in np.unique(pairs):
        mine, theirs = pairs == lp, others == lp
        weights, constant = ridge(known[theirs], judged["z_mean"].to_numpy()[theirs], penalty=10.0)
        guess = features[mine] @ weights + constant
        print(lp, f"guess and score: r {np.corrcoef(guess, human[mine])[0, 1]:.3f}", flush=True)
        moved[mine] = mixed(human[mine], guess, share)
    return moved


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="exported model that was trained on the rows")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="output of prepare.py")
    parser.add_argument("--share", type=float, default=0.6, help="of the guess in a score")
    parser.add_argument("-o", "--output", default="distilled.parquet", help="table in WORK")
    given = parser.parse_args()
    known, engine = known_rows(given.data), open_engine(given.model)
    judged = known.filter(pl.col("split") == "dev").sort(KEYS)
    asked = judged.with_columns(pl.Series("src", [tagged(*row) for row in judged.select("src", "lp").rows()]))
    rows = fewer(pl.read_parquet(given.prepared / "train.parquet")).drop("logprob")
    human, made = (rows.filter(test) for test in (pl.col("kind") == "human", pl.col("kind") != "human"))
    plain = human.select("lp", pl.col("src").str.replace(r"^[a-z]{2} \| ", ""), "mt")
    train = known.filter(pl.col("split") == "train")
    told = plain.join(train, on=KEYS, how="left", maintain_order="left")
    scores = distilled(
        human["human"].to_numpy().astype(np.float64),
        told,
        scores_of(human, engine),
        judged,
        scores_of(asked, engine),
        given.share,
    )
    human = human.with_columns(*told.select(*FURTHER), human=pl.Series(scores, dtype=pl.Float32))
    pl.concat([human, made], how="diagonal").write_parquet(given.prepared / given.output)
    dev = mlqe(given.data, "dev").drop("logprob")
    numbers = judged.select(*KEYS, *FURTHER)
    dev.join(numbers, on=KEYS, how="left", maintain_order="left").write_parquet(
        given.prepared / "judged.parquet"
    )


if __name__ == "__main__":
    main()
