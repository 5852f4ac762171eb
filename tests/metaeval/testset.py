"""A small test set in the layout of the WMT metrics task."""

from __future__ import annotations

import numpy as np

from doubtless.metaeval.folder import write_scores

SYSTEMS = ("A", "B", "C", "refB")


def write_test_set(root, pair="en-de", segments=30, seed=0):
    """Write one language pair and return its human scores."""
    rng = np.random.default_rng(seed)
    for folder in ("sources", "documents", "references", "human-scores"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("system-outputs", "metric-scores"):
        (root / folder / pair).mkdir(parents=True, exist_ok=True)
    lines = [f"segment number {i}" for i in range(segments)]
    (root / "sources" / f"{pair}.txt").write_text("\n".join(lines) + "\n")
    docs = ["news d1" if i < segments // 2 else "social d2" for i in range(segments)]
    (root / "documents" / f"{pair}.docs").write_text("\n".join(docs) + "\n")
    for reference in ("refA", "refB"):
        (root / "references" / f"{pair}.{reference}.txt").write_text("\n".join(lines) + "\n")
    for system in SYSTEMS:
        text = "\n".join(f"{line} {system}" for line in lines) + "\n"
        (root / "system-outputs" / pair / f"{system}.txt").write_text(text)
    quality = rng.normal(size=(len(SYSTEMS), segments)) + np.arange(len(SYSTEMS))[:, None] * 0.3
    human = np.round(2 * quality)
    human[:, 5] = np.nan
    write_scores(root / "human-scores" / f"{pair}.mqm.seg.score", dict(zip(SYSTEMS, human, strict=True)))
    means = {s: np.nanmean(row, keepdims=True) for s, row in zip(SYSTEMS, human, strict=True)}
    write_scores(root / "human-scores" / f"{pair}.mqm.sys.score", means)
    for name, noise in (("good-refA", 0.5), ("poor-src", 3.0), ("other-refB", 0.5)):
        scores = quality + noise * rng.normal(size=quality.shape)
        rows = dict(zip(SYSTEMS, scores, strict=True))
        write_scores(root / "metric-scores" / pair / f"{name}.seg.score", rows)
        sums = {s: row.mean(keepdims=True) for s, row in rows.items()}
        write_scores(root / "metric-scores" / pair / f"{name}.sys.score", sums)
    return human
