"""Rows for further branches: ``python recipes/bundled/members.py --data DIR --prepared WORK``.

Writes ``plain.parquet``: the human scores of ``train.parquet``, more of the teacher's rows, all contrasts of
the wrong language and some of the others, and translations that experts have marked (MQM, Apache-2.0). In
``soft.parquet`` the human scores are moved towards what post-edits and log-probabilities foretell of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
from again import fewer, told_by
from prepare import COLUMNS, drawn, with_languages, wmt20

SHARES = {  # of the rows of each kind in train.parquet
    "human": 1.0, "teacher": 0.0, "unfinished": 0.6, "reference": 0.5,
    "negation": 0.6, "number": 0.6, "wrong-language": 1.0, "truncated": 0.4,
}  # fmt: skip
TEACHER = 2  # times as many of the teacher's rows
LONGEST = 240  # characters of a translation that experts have marked
BEST, STEEPNESS = (
    0.6,
    0.55,
)  # score of a translation without errors, and what the logarithm of penalties costs


def experts(folder: Path) -> pl.DataFrame:
    """Translations with the errors that experts marked: a score and tags by what most of them say."""
    rows = pl.read_parquet(folder / "mqm_multirater.parquet")
    rows = rows.filter(pl.col("mt").str.len_chars() <= LONGEST)
    found = []
    for (lp, src, mt), part in rows.group_by("lp", "src", "mt", maintain_order=True):
        spans = list(part.select("starts", "ends").iter_rows())
        words, tags = tagged_words(str(mt), spans)
        score = BEST - STEEPNESS * float(np.log1p(part["mqm"].mean()))
        found.append(("expert", lp, src, mt, score, None, None, words, tags, False))
    table = pl.DataFrame(found, schema=COLUMNS, orient="row")
    return table.with_columns(pl.col("human", "hter", "logprob").cast(pl.Float32))


def tagged_words(text: str, spans: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[str, list[str]]:
    """The words of a text with a space between them, and BAD for each that half of the raters touch."""
    marked = np.zeros(len(text))
    for starts, ends in spans:
        own = np.zeros(len(text), dtype=bool)
        for start, end in zip(starts, ends, strict=True):
            own[start:end] = True
        marked += own
    wrong, tags, at = 2 * marked >= len(spans), [], 0
    for word in text.split():
        at = text.index(word, at)
        tags.append("BAD" if wrong[at : at + len(word)].any() else "OK")
        at += len(word)
    return " ".join(text.split()), tags


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="output of prepare.py")
    given = parser.parse_args()
    rng = Random(77)
    rows = fewer(pl.read_parquet(given.prepared / "train.parquet"), SHARES, seed=9)
    more = pl.concat([drawn(wmt20(given.data), rng, TEACHER), experts(given.data)])
    both = pl.concat([rows, with_languages(more, rng)])
    both.write_parquet(given.prepared / "plain.parquet")
    told_by(both, given.data).write_parquet(given.prepared / "soft.parquet")


if __name__ == "__main__":
    main()
