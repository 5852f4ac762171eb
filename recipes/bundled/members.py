"""What members of another kind would add: ``python recipes/bundled/members.py --data DIR``.

Two kinds that cost next to nothing beside an encoder are trained on MLQE-PE train, pair by pair: ridge
regressions on the n-grams of both texts, and on Gaussian kernels of the averages that the lower layers of the
bundled model have of each text. Prints how well each agrees with people on dev, alone and mixed with the
model; the shares of the last lines are learnt with documents of dev left out in turn. None is bundled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from prepare import mlqe_documents
from ridge import Array, ridge
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from doubtless.metaeval.correlation import pearson
from doubtless.neural.engine import Engine
from doubtless.neural.rows import token_batches
from doubtless.neural.runtime import open_engine

KEYS = ["lp", "src", "mt"]
GRAMS = {
    "letters, 1 to 4": {"analyzer": "char_wb", "ngram_range": (1, 4), "min_df": 3},
    "words, 1 and 2": {"token_pattern": r"\S+", "ngram_range": (1, 2), "min_df": 2},
}
LAYERS = (3, 5)
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3)
FOLDS = 5

Member = Callable[[pl.DataFrame, pl.DataFrame], Array]


def splits(data: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Train without rows that are also elsewhere, and dev."""
    rows = pl.read_parquet(data / "mlqe_pe.parquet")
    apart = rows.filter(pl.col("split") != "train").select(KEYS).unique()
    train = rows.filter(pl.col("split") == "train").join(apart, on=KEYS, how="anti", maintain_order="left")
    return train, rows.filter(pl.col("split") == "dev")


def by_grams(options: dict[str, object]) -> Member:
    """A ridge regression on the n-grams of both texts and the logarithms of their lengths."""

    def member(train: pl.DataFrame, dev: pl.DataFrame) -> Array:
        known, new = [], []
        for name in ("src", "mt"):
            vectors = TfidfVectorizer(sublinear_tf=True, **options)
            known += [vectors.fit_transform(train[name].to_list()), 0.3 * log_length(train[name])]
            new += [vectors.transform(dev[name].to_list()), 0.3 * log_length(dev[name])]
        model = Ridge(alpha=3.0, solver="lsqr", tol=1e-3).fit(
            hstack(known).tocsr(), train["z_mean"].to_numpy()
        )
        found: Array = model.predict(hstack(new).tocsr())
        return found

    return member


def log_length(texts: pl.Series) -> csr_matrix:
    """One column."""
    return csr_matrix(np.log1p(texts.str.len_chars().to_numpy())[:, None])


def by_kernel(train: Array, dev: Array, human: Array, width: float = 0.3, noise: float = 1.0) -> Array:
    """The mean of a Gaussian process with a fixed kernel on standardised features."""
    middle, spread = train.mean(axis=0), train.std(axis=0) + 1e-6
    train, dev = (train - middle) / spread, (dev - middle) / spread

    def kernel(first: Array, second: Array) -> Array:
        squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
        found: Array = np.exp(-width / first.shape[1] * squares)
        return found

    among = kernel(train, train)
    among.flat[:: len(among) + 1] += noise
    found: Array = kernel(dev, train) @ cho_solve(cho_factor(among, overwrite_a=True), human - human.mean())
    return found


def averages(engine: Engine, rows: pl.DataFrame) -> Array:
    """What the model has of each text at some layers: both averages, how they differ, their products."""
    texts = {name: rows[name].to_list() for name in ("src", "mt", "lp")}
    tokens, stepper = engine.rows(texts), engine.stepper
    found = np.zeros((len(LAYERS), len(tokens.sizes), 2, 384), dtype=np.float16)
    for batch in token_batches(tokens.sizes, engine.batch_tokens):
        state = stepper.start(tokens.batch(batch))
        for number, layer in enumerate(LAYERS):
            state = stepper.advance(state, layer)
            order = np.argsort(np.concatenate([group.texts for group in state.groups]))[state.rows]
            found[number, batch] = np.concatenate([group.pooled() for group in state.groups])[order][:, :2]
    mt, src = np.moveaxis(found[:, tokens.origin].astype(np.float32), 2, 0)
    return np.concatenate([mt, src, np.abs(mt - src), mt * src], axis=2)


def standardised(values: Array, pairs: Array) -> Array:
    """Values with mean 0 and deviation 1 in each pair."""
    found = np.empty(len(values))
    for lp in np.unique(pairs):
        mine = pairs == lp
        found[mine] = (values[mine] - values[mine].mean()) / values[mine].std()
    return found


def mixed(members: Sequence[Array], human: Array, pairs: Array, documents: Array) -> Array:
    """Standardised members with shares that were learnt on the other documents, the same for all pairs."""
    names, place = np.unique(documents, return_inverse=True)
    folds = (np.random.default_rng(0).permutation(len(names)) % FOLDS)[place]
    features, target, found = np.column_stack(members), standardised(human, pairs), np.empty(len(human))
    for fold in range(FOLDS):
        out = folds == fold
        weights, _ = ridge(features[~out], target[~out], penalty=10.0)
        print(f"  shares without part {fold}: {np.round(weights / weights[0], 2).tolist()}")
        found[out] = features[out] @ weights
    return found


def main() -> None:
    """Train the members and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    train, dev = splits(given.data)
    engine, pairs, human = open_engine(), dev["lp"].to_numpy(), dev["z_mean"].to_numpy().astype(np.float64)
    documents = np.asarray(mlqe_documents(given.data, "dev"))

    def mean_r(values: Array) -> float:
        return float(np.mean([pearson(values[pairs == lp], human[pairs == lp]) for lp in np.unique(pairs)]))

    def each_pair(member: Member) -> Array:
        found = np.empty(len(dev))
        for lp in np.unique(pairs):
            own = pl.col("lp") == lp
            found[pairs == lp] = member(train.filter(own), dev.filter(own))
        return standardised(found, pairs)

    texts = {name: dev[name].to_list() for name in ("src", "mt", "lp")}
    model = standardised(engine.score(texts).score, pairs)
    members = {name: each_pair(by_grams(options)) for name, options in GRAMS.items()}
    known, new, of_train = averages(engine, train), averages(engine, dev), train["lp"].to_numpy()
    scores = train["z_mean"].to_numpy().astype(np.float64)
    for number, layer in enumerate(LAYERS):
        found = np.empty(len(dev))
        for lp in np.unique(pairs):
            mine, yours = pairs == lp, of_train == lp
            found[mine] = by_kernel(known[number, yours], new[number, mine], scores[yours])
        members[f"kernels, layer {layer}"] = standardised(found, pairs)

    print(f"the model: {mean_r(model):.4f}")
    for name, values in members.items():
        like = np.mean([pearson(values[pairs == lp], model[pairs == lp]) for lp in np.unique(pairs)])
        with_model = {share: round(mean_r(model + share * values), 4) for share in SHARES}
        print(f"{name}: {mean_r(values):.4f}, with the model {like:.3f}, mixed {with_model}", flush=True)
    grams = [members[name] for name in GRAMS]
    for name, chosen in {"n-grams": grams, "all": list(members.values())}.items():
        print(f"{name}: {mean_r(mixed([model, *chosen], human, pairs, documents)):.4f}, documents left out")


if __name__ == "__main__":
    main()
