"""Training data of the study model: ``python recipes/tau/prepare.py --data DIR --encoder E5 -o WORK``.

WMT20 outputs of six pairs out of English with their references. The score to learn is the mean of four COMET
models; human scores (``da_z``) are kept for the calibration. One source in ten, with all its translations,
goes to the development part.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

PAIRS = ("en-cs", "en-de", "en-ja", "en-pl", "en-ru", "en-zh")
MEMBERS = ("ens3", "ens7", "ens89", "ens891")
LONGEST = 160  # characters of a source
HELD_OUT = 0.1


def prepared(data: Path, rows: int, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to train on and to develop on, equally many of each pair."""
    known = pl.read_parquet(data / "wmt20_comet.parquet").filter(
        ~pl.col("mt_is_ref"),
        ~pl.col("system").str.starts_with("Human"),
        pl.col("lp").is_in(PAIRS),
        pl.col("src").str.len_chars() <= LONGEST,
    )
    known = known.unique(["lp", "src", "mt"], keep="first", maintain_order=True)
    known = known.with_columns(human=pl.mean_horizontal(MEMBERS))
    rng = np.random.default_rng(seed)
    sources = known["src"].unique(maintain_order=True).to_numpy()
    held_out = set(rng.permutation(sources)[: round(HELD_OUT * len(sources))])
    chosen = known["src"].is_in(list(held_out))
    parts = []
    for part, share in ((known.filter(~chosen), 1 - HELD_OUT), (known.filter(chosen), HELD_OUT)):
        each = round(rows * share / len(PAIRS))
        drawn = []
        for pair in PAIRS:
            own = part.filter(pl.col("lp") == pair)
            drawn.append(own[np.sort(rng.permutation(len(own))[:each])])
        columns = ["lp", "system", "seg", "src", "mt", "ref", "human", "da_z"]
        parts.append(pl.concat(drawn).select(columns))
    return parts[0], parts[1]


def main() -> None:
    """Write the tables and link the encoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train", "dev"), prepared(options.data, options.rows), strict=True):
        part.write_parquet(options.output / f"{name}.parquet")
        print(f"{name}: {len(part)} rows")
    link = options.output / "encoder"
    if not link.exists():
        link.symlink_to(options.encoder.resolve())


if __name__ == "__main__":
    main()
