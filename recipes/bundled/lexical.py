"""The part of the bundled model that looks at words and signs: what corrects the scores of its pairs.

The encoder is small and knows few words; a table of what 7,000 corrected translations of each pair say of
theirs fits into few bytes. For each pair the table is learnt from MLQE-PE train, and a regression on features
that it gives foretells the scores of people. Features of rows that are regressed on come from tables without
these rows.

``python recipes/bundled/lexical.py --data DIR`` prints what it is worth on dev beside the bundled model; with
``--elsewhere`` what the bundled one is worth on other texts of its pairs, which nobody learnt or chose on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from prepare import KEYS, mlqe

from doubtless.metaeval.correlation import pearson
from doubtless.neural.runtime import open_engine
from doubtless.surface.features import features
from doubtless.surface.kernel import KernelRegression
from doubtless.surface.learn import learn, table_of
from doubtless.surface.model import Surface

Array = np.ndarray

FOLDS = 5
CENTRES, NOISE, WIDTH = 1_000, 1.0, 0.3
PAIRS_ELSEWHERE, MOST_ELSEWHERE = ("en-de", "en-zh", "ru-en"), 1_200
CORRECTED = ["pe", "mt_tok", "mt_tags", "src_tok", "src_tags"]


def corrected_rows(data: Path) -> pl.DataFrame:
    """MLQE-PE train with its post-edits and tags, without rows that other parts have."""
    rows = mlqe(data, "train").select(*KEYS, "human")
    known = pl.read_parquet(data / "mlqe_pe.parquet").filter(pl.col("split") == "train")
    more = known.unique(KEYS, keep="first", maintain_order=True).select(*KEYS, *CORRECTED)
    return rows.join(more, on=KEYS, how="left", maintain_order="left")


def trained(rows: pl.DataFrame) -> Surface:
    """Tables and regressions of all pairs of some rows; what they foretell are human scores."""
    entries, regressions = [], {}
    for lp in sorted(rows["lp"].unique()):
        own = rows.filter(pl.col("lp") == lp)
        entries.append(learn(lp, own))
        human = own["human"].to_numpy().astype(np.float64)
        regressions[lp] = KernelRegression.fit(
            unseen_features(lp, own), human, centres=CENTRES, noise=NOISE, width=WIDTH
        )
        print(f"{lp}: {sum(len(keys) for keys, _ in entries[-1])} entries", flush=True)
    return Surface(table_of(entries), regressions)


def unseen_features(lp: str, rows: pl.DataFrame) -> Array:
    """Features of rows by tables that were learnt from the others."""
    folds, parts = np.random.default_rng(5).permutation(len(rows)) % FOLDS, {}
    for fold in range(FOLDS):
        table = table_of([learn(lp, rows.filter(folds != fold))])
        new = rows.filter(folds == fold)
        parts[fold] = features(table, lp, new["src"], new["mt"])
    found = np.empty((len(rows), parts[0].shape[1]))
    for fold, values in parts.items():
        found[folds == fold] = values
    return found


def slopes(score: Array, foretold: Array, human: Array, pairs: Array) -> tuple[float, float]:
    """What a model's score and the surface's weigh in the best linear guess, the same for all pairs."""

    def centred(values: Array) -> Array:
        means = {lp: values[pairs == lp].mean() for lp in np.unique(pairs)}
        return values - np.array([means[lp] for lp in pairs])

    both = np.column_stack([centred(score), centred(foretold)])
    first, second = np.linalg.lstsq(both, centred(human), rcond=None)[0]
    return float(first), float(second)


def elsewhere(data: Path) -> None:
    """Agreement with people on news and talks, with and without what corrects the bundled model's scores."""
    engine = open_engine()
    assert engine.surface is not None
    for (name, lp), rows in other_sets(data).group_by("set", "lp", maintain_order=True):
        some = rows.sample(min(MOST_ELSEWHERE, len(rows)), seed=1)
        texts = {side: some[side].to_list() for side in ("src", "mt", "lp")}
        whole, human = engine.score(texts).score, some["human"].to_numpy()
        alone = whole - engine.surface.correction(texts["lp"], texts["src"], texts["mt"])
        print(f"{name} {lp}, {len(some)} rows: {pearson(alone, human):.3f} {pearson(whole, human):.3f}")


def other_sets(data: Path) -> pl.DataFrame:
    """Machines' translations of WMT20 to 22 in pairs that the model knows, with direct assessments or MQM."""
    system, columns = pl.col("system").fill_null(""), ["set", "lp", "src", "mt", "human"]
    recent = pl.read_parquet(data / "wmt_da.parquet").filter(~system.str.starts_with("HUMAN"))
    news = pl.read_parquet(data / "wmt20_comet.parquet").filter(~pl.col("mt_is_ref"))
    marked = pl.read_parquet(data / "mqm_spans.parquet").filter(~system.str.starts_with("ref"))
    parts = [
        recent.with_columns(set=pl.col("source_set") + " DA", human="da_z"),
        news.with_columns(set=pl.lit("wmt20 DA"), human="da_z"),
        marked.with_columns(set=pl.col("set") + " MQM", human=-pl.col("mqm")),
    ]
    every = pl.concat([part.select(columns).cast({"human": pl.Float64}) for part in parts])
    return every.filter(pl.col("lp").is_in(PAIRS_ELSEWHERE), pl.col("human").is_not_null())


def main() -> None:
    """Train on train, compare on dev."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--elsewhere", action="store_true", help="measure the bundled one on other texts")
    given = parser.parse_args()
    if given.elsewhere:
        elsewhere(given.data)
        return
    surface, dev = trained(corrected_rows(given.data)), mlqe(given.data, "dev")
    texts = {name: dev[name].to_list() for name in ("src", "mt", "lp")}
    foretold, pairs = surface.correction(texts["lp"], texts["src"], texts["mt"]), dev["lp"].to_numpy()
    human = dev["human"].to_numpy().astype(np.float64)
    engine = open_engine()
    held = engine.surface.correction(texts["lp"], texts["src"], texts["mt"]) if engine.surface else 0.0
    alone = engine.score(texts).score - held

    def mean_r(values: Array) -> float:
        return float(np.mean([pearson(values[pairs == lp], human[pairs == lp]) for lp in np.unique(pairs)]))

    own, other = slopes(alone, foretold, human, pairs)
    print(f"the encoder {mean_r(alone):.4f}, the surface {mean_r(foretold):.4f}")
    print(f"{own:.2f} and {other:.2f} of both: {mean_r(own * alone + other * foretold):.4f}")


if __name__ == "__main__":
    main()
