"""Rows of dev to learn from, in two folds: ``python recipes/bundled/near.py --data DIR --prepared WORK``.

Dev was judged by the same people as the texts that the model is tested on, and more rows help most where
there are few. So the last runs learn from dev too, one from each half of its documents; what each says of the
other half is then as good as what the mean of both says of new texts, and serves to calibrate that
(``finish.py``). ``near-1.parquet`` and ``near-2.parquet`` have the rows that the first and the second run
learn from, ``far-1.parquet`` and ``far-2.parquet`` those that it does not know.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
from distil import KEYS, known_rows
from prepare import with_languages

TIMES = 3  # that each row of dev is shown
OTHERS = 0.15  # share of the other rows that are shown again, so that they are not forgotten


def folds(rows: pl.DataFrame) -> np.ndarray:
    """1 or 2 for each row; a document is in one of them, and every pair has half of its rows in either."""
    found, rng = np.zeros(len(rows), dtype=np.int64), np.random.default_rng(11)
    for lp in sorted(rows["lp"].unique()):
        mine = np.flatnonzero((rows["lp"] == lp).to_numpy())
        names, document, sizes = np.unique(
            rows["doc"][mine].to_numpy(), return_inverse=True, return_counts=True
        )
        order = rng.permutation(len(names))
        first = order[np.cumsum(sizes[order]) <= len(mine) // 2]
        found[mine] = np.where(np.isin(document, first), 1, 2)
    return found


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="output of prepare.py and distil.py")
    parser.add_argument("--others", default="lightly.parquet", help="table of distil.py in WORK")
    given = parser.parse_args()
    judged = pl.read_parquet(given.prepared / "judged.parquet")
    documents = known_rows(given.data).filter(pl.col("split") == "dev").select(*KEYS, "doc")
    judged = judged.join(documents, on=KEYS, how="left", maintain_order="left")
    judged = judged.with_columns(pl.concat_str("lp", pl.col("doc").fill_null(""), separator=" ").alias("doc"))
    fold = folds(judged)
    others = pl.read_parquet(given.prepared / given.others)
    for number in (1, 2):
        mine = judged.filter(pl.Series(fold == number))
        shown = [with_languages(mine.drop("doc"), Random(100 * number + time)) for time in range(TIMES)]
        some = others.sample(fraction=OTHERS, seed=number)
        rows = pl.concat([*shown, some], how="diagonal_relaxed")
        rows.write_parquet(given.prepared / f"near-{number}.parquet")
        judged.filter(pl.Series(fold != number)).write_parquet(given.prepared / f"far-{number}.parquet")
        print(f"near-{number}: {len(rows)} rows, {len(mine)} of dev")


if __name__ == "__main__":
    main()
