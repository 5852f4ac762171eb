"""A small test set in the layout of the WMT metrics task."""

from __future__ import annotations

import numpy as np

from doubtless.metaeval.folder import write_scores

SYSTEMS = ("A", "B", "C", "refB")
# For each year and language pair: the standard reference first, then other references; systems to leave out.
YEARS = {
    "wmt22": {
        "en-de": (("refA", "refB"), ("M2M100_1.2B-B4",)),
        "en-ru": (("refA",), ()),
        "zh-en": (("refA", "refB"), ()),
    },
    "wmt23": {
        "en-de": (("refA",), ("synthetic_ref",)),
        "he-en": (("refB", "refA"), ()),
        "zh-en": (("refA",), ("synthetic_ref",)),
    },
    "wmt24": {
        "en-de": (("refB", "refA"), ("MSLC",)),
        "en-es": (("refA",), ("MSLC",)),
        "ja-zh": (("refA",), ("MSLC",)),
    },
}
# mt-metrics-eval goes through its systems in the order of a set: with PYTHONHASHSEED=0, that of these names.
YEAR_SYSTEMS = ("A136", "B59", "C215", "D43")


def write_year(root, year, segments=24):
    """Write a test set of a year; scores of systems and domains are not the means of those of segments."""
    for number, (pair, (references, outliers)) in enumerate(YEARS[year].items()):
        rng = np.random.default_rng([int(year[3:]), number])
        systems = (*YEAR_SYSTEMS, *references[1:], *outliers)
        domains = ["news" if i < segments // 2 else "social" for i in range(segments)]
        _write_texts(root, pair, segments, references, systems, domains)
        quality = rng.normal(size=(len(systems), segments)) + 0.3 * rng.permutation(len(systems))[:, None]
        human = np.round(2 * quality)
        human[:, [3, 20]] = np.nan
        if year != "wmt24":  # the soft pairwise accuracy of mt-metrics-eval is wrong for ragged scores
            human[0, 7] = human[2, 15] = np.nan
        _write_levels(rng, root / "human-scores" / f"{pair}.mqm", systems, human, domains)
        (root / "metric-scores" / pair).mkdir(parents=True)
        kinds = {f"good-{references[0]}": 0.5, f"poor-{references[0]}": 2.0, "poor-src": 3.0, "free-src": 1.0}
        for name, noise in kinds.items():
            # Eighths are exact in single precision.
            scores = np.round(8 * (quality + noise * rng.normal(size=quality.shape))) / 8
            _write_levels(rng, root / "metric-scores" / pair / name, systems, scores, domains)


def _write_levels(rng, stem, systems, scores, domains):
    named = dict(zip(systems, scores, strict=True))
    write_scores(f"{stem}.seg.score", named)
    whole = {s: np.round(np.nanmean(row, keepdims=True) + 0.05 * rng.normal(), 3) for s, row in named.items()}
    write_scores(f"{stem}.sys.score", whole)
    lines = []
    for domain in sorted(set(domains)):
        inside = np.array(domains) == domain
        means = {s: np.nanmean(row[inside]) + 0.05 * rng.normal() for s, row in named.items()}
        lines += [f"{domain}\t{system}\t{mean:.3f}\n" for system, mean in means.items()]
    stem.with_name(f"{stem.name}.domain.score").write_text("".join(lines))


def _write_texts(root, pair, segments, references, systems, domains):
    for folder in ("sources", "documents", "references", "human-scores", f"system-outputs/{pair}"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    text = "".join(f"segment {i}\n" for i in range(segments))
    (root / "sources" / f"{pair}.txt").write_text(text)
    (root / "documents" / f"{pair}.docs").write_text("".join(f"{d} doc-{d}\n" for d in domains))
    for reference in references:
        (root / "references" / f"{pair}.{reference}.txt").write_text(text)
    for system in systems:
        (root / "system-outputs" / pair / f"{system}.txt").write_text(text)


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
