"""Rows for further passes: ``python recipes/bundled/again.py MODEL --data DIR --prepared WORK``.

Writes ``again.parquet``: all human scores of ``train.parquet``, and of the rows that were made for it fewer
than the first pass had. In ``softened.parquet`` the human scores are moved towards what can be foretold of
them from post-edits, log-probabilities and the scores of a model that was trained on them once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from prepare import foretellers
from ridge import Array, ridge

from doubtless.neural.runtime import open_engine

FORETOLD = 0.4  # share of what is foretold in a softened score
LESS_SPREAD = 0.93  # deviation of the softened scores, as a share of that of the human ones
FOLDS = 10
SHARES = {  # of the rows of each kind that are used again
    "human": 1.0, "teacher": 1.0, "unfinished": 0.6, "reference": 0.5,
    "negation": 0.45, "number": 0.45, "wrong-language": 0.4, "truncated": 0.4,
}  # fmt: skip
OTHERS = 0.6


def fewer(rows: pl.DataFrame) -> pl.DataFrame:
    """Some of the rows of each kind."""
    rng, parts = np.random.default_rng(3), []
    for (kind,), part in rows.group_by("kind", maintain_order=True):
        count = int(len(part) * SHARES.get(str(kind), OTHERS))
        parts.append(part[np.sort(rng.choice(len(part), count, replace=False))])
    return pl.concat(parts)


def softened(human: Array, features: Array) -> Array:
    """Scores of one pair, mixed with what the other rows' scores let expect of each."""
    folds, foretold = np.random.default_rng(1).permutation(len(human)) % FOLDS, np.empty(len(human))
    for fold in range(FOLDS):
        out = folds == fold
        weights, constant = ridge(features[~out], human[~out], penalty=10.0)
        foretold[out] = features[out] @ weights + constant
    mixed = (1 - FORETOLD) * human + FORETOLD * foretold
    return (mixed - mixed.mean()) / mixed.std() * LESS_SPREAD * human.std() + human.mean()


def all_softened(rows: pl.DataFrame, model: Path, folder: Path) -> pl.DataFrame:
    """Rows with the human scores among them softened, pair by pair."""
    human = rows.filter(pl.col("kind") == "human")
    engine = open_engine(model)
    traced = engine.trace({"src": human["src"].to_list(), "mt": human["mt"].to_list()})["score"]
    exits = traced[[engine.config.restart - 1, -1]] if engine.config.restart else traced[-1:]
    keys = ["lp", "src", "mt"]
    known = pl.read_parquet(folder / "mlqe_pe.parquet").filter(pl.col("split") == "train")
    more = known.unique(keys, keep="first").select(
        *keys, "model_score", "nmt_logprobs", "gap_tags", "src_tags"
    )
    untagged = human.with_columns(pl.col("src").str.replace(r"^[a-z]{2} \| ", ""))
    told = untagged.join(more, on=keys, how="left", maintain_order="left")
    scores, pairs = human["human"].to_numpy().astype(np.float64), human["lp"].to_numpy()
    for lp in np.unique(pairs):
        mine = pairs == lp
        features = np.column_stack([foretellers(told.filter(pl.col("lp") == lp)), exits[:, mine].T])
        scores[mine] = softened(scores[mine], features)
    soft = human.with_columns(human=pl.Series(scores, dtype=pl.Float32))
    return pl.concat([soft, rows.filter(pl.col("kind") != "human")])


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="exported model that was trained on the rows once")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="output of prepare.py")
    given = parser.parse_args()
    rows = fewer(pl.read_parquet(given.prepared / "train.parquet"))
    rows.write_parquet(given.prepared / "again.parquet")
    all_softened(rows, given.model, given.data).write_parquet(given.prepared / "softened.parquet")


if __name__ == "__main__":
    main()
