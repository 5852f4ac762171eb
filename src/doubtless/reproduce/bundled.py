"""How good the bundled model is: the figures of its card, measured again by whoever wants to.

``--models FOLDER`` measures another model in its place, ``--sets dev`` another part of MLQE-PE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from doubtless import bundled
from doubtless.conformal.calibrate import apply
from doubtless.conformal.store import load as load_calibration
from doubtless.datasets import locate
from doubtless.errors import InputError
from doubtless.metaeval.correlation import pearson, spearman
from doubtless.metaeval.detection import detection_curve
from doubtless.neural.engine import Engine, Scored
from doubtless.neural.exits import ExitRule, replay
from doubtless.neural.folder import read_folder
from doubtless.neural.runtime import open_engine
from doubtless.neural.tokens import Offsets
from doubtless.reproduce import Options, Rows, Study
from doubtless.segments import Floats, as_table
from doubtless.words.judged import Judged
from doubtless.words.signals import recorded_signals
from doubtless.words.subwords import placed
from doubtless.words.tagger import TaggedWords, tagged_words

_QUICK = 100  # rows a pair
_TOLERANCES = (0.03, 0.06, 0.09, 0.12, 0.15, 0.18, 0.21, 0.25, 0.3)
_SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Measured:
    """A model and the segments of MLQE-PE that it is measured on."""

    engine: Engine
    folder: Path
    segments: pl.DataFrame

    @classmethod
    def of(cls, data: str | None, options: Options) -> Measured:
        """Open the model, and read the rows of each pair."""
        folder = Path(options.models[0]) if options.models else bundled.folder()
        split = options.sets[0] if options.sets else "test20"
        rows = pl.read_parquet(locate(data, "mlqe_pe.parquet")).filter(pl.col("split") == split)
        if options.quick:
            rows = rows.filter(pl.int_range(pl.len()).over("lp") < _QUICK)
        return cls(open_engine(folder), folder, rows)

    @cached_property
    def human(self) -> Floats:
        """The mean of the standardised assessments."""
        return self.segments["z_mean"].to_numpy().astype(np.float64)

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """Sources, translations and language pairs."""
        return {name: self.segments[name].to_list() for name in ("src", "mt", "lp")}

    def score(self, **options: Any) -> Scored:
        """Score the segments; ``texts`` replaces some of theirs."""
        return self.engine.score(self.texts | options.pop("texts", {}), **options)

    def intervals(self, scored: Scored, calibration: str) -> tuple[np.ndarray, Floats]:
        """Which human scores the folder's calibration covers, and how wide its intervals are."""
        frame = pl.DataFrame(
            {"lp": self.segments["lp"], "score": scored.score, "error": scored.outputs["error"]}
        )
        found = apply(load_calibration(self.folder / calibration), as_table(frame), keep_score=True).intervals
        return found.covers(self.human), found.width

    def mean(self, figure: Callable[[np.ndarray], float]) -> float:
        """A figure averaged over pairs."""
        return float(self.by_pair(lambda rows: {"figure": figure(rows)})[-1]["figure"])

    def by_pair(self, figures: Callable[[np.ndarray], dict[str, Any]]) -> Rows:
        """Figures of each pair and, last, their mean over pairs."""
        pairs = self.segments["lp"].to_numpy()
        rows = [
            {"lp": lp, "n": int((pairs == lp).sum()), **figures(pairs == lp)} for lp in sorted(set(pairs))
        ]
        names = [name for name in rows[0] if name not in ("lp", "n")]
        means = {name: float(np.mean([row[name] for row in rows])) for name in names}
        return [*rows, {"lp": "mean", "n": sum(row["n"] for row in rows), **means}]


def scores(data: str | None, options: Options) -> Rows:
    """Agreement with humans, of predicted errors with true ones, and the coverage of intervals."""
    measured = Measured.of(data, options)
    scored, human = measured.score(), measured.human
    covered, width = measured.intervals(scored, "calibration.json")
    missed = np.abs(scored.score - human)

    def figures(rows: np.ndarray) -> dict[str, Any]:
        return {
            "r": pearson(scored.score[rows], human[rows]),
            "rho": spearman(scored.score[rows], human[rows]),
            "error_r": pearson(scored.outputs["error"][rows], missed[rows]),
            "coverage": float(covered[rows].mean()),
            "width": float(width[rows].mean()),
        }

    return measured.by_pair(figures)


def exits(data: str | None, options: Options) -> Rows:
    """Leaving early: each layer, and confidence exits at several tolerances, against all layers."""
    measured = Measured.of(data, options)
    human, layers = measured.human, measured.engine.stepper.exits
    traced = measured.engine.trace(measured.texts)
    rules = {f"constant:{layer}": ExitRule("constant", layer) for layer in layers}
    rules |= {f"confidence:{t:g}": ExitRule("confidence", t) for t in _TOLERANCES}
    own = read_folder(measured.folder).extra.get("exit")
    if own is not None:
        rules["auto"] = ExitRule("confidence", float(own))
    rows: Rows = []
    for name, rule in rules.items():
        found, left = replay(rule, layers, traced)
        score, mean = found["score"], float(left.mean())
        r = measured.mean(lambda chosen, s=score: pearson(s[chosen], human[chosen]))  # type: ignore[misc]
        rows.append({"exit": name, "layers": mean, "cost": mean / layers[-1], "r": r})
    full = next(row["r"] for row in rows if row["exit"] == f"constant:{layers[-1]}")
    return [{**row, "lost": full - row["r"]} for row in rows]


def words(data: str | None, options: Options) -> Rows:
    """Word tags against the post-editors', beside the NMT model's own surprisal and chance."""
    measured = Measured.of(data, options)
    judged = judged_words(measured)

    def figures(rows: np.ndarray) -> dict[str, Any]:
        part = judged.of_segments(rows)
        bad = part.labels["post-editor"] == 1
        curve, other = (detection_curve(part.scores[name], bad) for name in ("tagger", "surprisal"))
        return {
            "words": len(bad),
            "ap": curve.average_precision,
            "f1": curve.best(curve.f1)[0],
            "mcc": curve.best(curve.matthews)[0],
            "surprisal_ap": other.average_precision,
            "surprisal_f1": other.best(other.f1)[0],
            "surprisal_mcc": other.best(other.matthews)[0],
            "random_ap": float(bad.mean()),
        }

    return measured.by_pair(figures)


def judged_words(measured: Measured) -> Judged:
    """Words of MLQE-PE: the tagger's probabilities, its spans, recorded surprisal, and post-editors' tags.

    Segments whose texts do not fit together, that the tagger could not read whole, or without recorded
    log-probabilities have no words here.
    """
    found = tagged_words(measured.engine, measured.score(spans=True, words=-1.0), measured.texts["mt"])
    rows = zip(measured.segments.iter_rows(named=True), found, strict=True)
    parts = [word_values(segment, own) for segment, own in rows]
    known = [part for part in parts if part is not None]
    if not known:
        raise InputError("no segment has recorded log-probabilities that fit its translation")
    joined = {name: np.concatenate([part[name] for part in known]) for name in known[0]}
    labels = {"post-editor": joined.pop("post-editor")}
    sizes = [0 if part is None else len(part["post-editor"]) for part in parts]
    return Judged(joined, labels, np.repeat(np.arange(len(sizes)), sizes), measured.segments["lp"].to_list())


def word_values(segment: Mapping[str, Any], tagged: TaggedWords) -> dict[str, Floats] | None:
    """What is said about each word of a segment; None if that cannot be known for all of them.

    A word has the worst of what its tokens have.
    """
    units, logprobs = segment["nmt_tok"], segment["nmt_logprobs"]
    pieces = tagged_pieces(segment, tagged)
    if pieces is None or units is None or logprobs is None:
        return None
    try:
        surprisal = recorded_signals(segment["mt"], units, logprobs).on("surprisal", pieces)
    except InputError:
        return None
    wrong = np.array([tag == "BAD" for tag in segment["mt_tags"]], dtype=np.float64)
    said = {"tagger": tagged.on(pieces), "spans": tagged.on(pieces, "binary"), "surprisal": surprisal}
    return said | {"post-editor": wrong}


def tagged_pieces(segment: Mapping[str, Any], tagged: TaggedWords) -> Offsets | None:
    """Where the words that post-editors' tags are about stand in a translation.

    None if they are not those of the translation, or if the tagger could not read all of it.
    """
    try:
        return placed(segment["mt"], segment["mt_tok"].split(), "plain") if tagged.stopped is None else None
    except InputError:
        return None


def behaviour(data: str | None, options: Options) -> Rows:
    """The behaviour suite: how often a spoilt translation ranks below the right one."""
    folder = Path(options.models[0]) if options.models else bundled.folder()
    suite = bundled.behaviour()
    engine = open_engine(folder)
    known = {name: suite[name].to_list() for name in ("src", "lp")}
    good, bad = (engine.score({**known, "mt": suite[name].to_list()}).score for name in ("good", "bad"))
    frame = suite.with_columns(below=pl.Series(bad < good), gap=pl.Series(good - bad))
    figures = [pl.len().alias("cases"), pl.col("below").mean(), pl.col("gap").mean()]
    return frame.group_by("kind", maintain_order=True).agg(figures).to_dicts()


def unfinished(data: str | None, options: Options) -> Rows:
    """Scores of beginnings of translations: agreement with humans and with the score of the whole."""
    measured = Measured.of(data, options)
    human, whole = measured.human, measured.score().score
    rows: Rows = []
    for share in _SHARES:
        cut = [text[: max(1, round(share * len(text)))] for text in measured.segments["mt"]]
        for marked in (True, False) if share < 1 else (False,):
            part = measured.score(texts={"mt": cut}, partial=marked).score
            with_human = measured.mean(lambda r, s=part: pearson(s[r], human[r]))  # type: ignore[misc]
            with_whole = measured.mean(lambda r, s=part: pearson(s[r], whole[r]))  # type: ignore[misc]
            figures = {"r": with_human, "r_whole": with_whole, "mean": float(part.mean())}
            rows.append({"share": share, "partial": marked, **figures})
    return rows


STUDIES = [
    Study("bundled-scores", "The bundled model on MLQE-PE: agreement, errors, coverage", scores),
    Study("bundled-exits", "The bundled model on MLQE-PE: early exit", exits),
    Study("bundled-words", "The bundled model on MLQE-PE: word tags", words),
    Study("bundled-behaviour", "The bundled model on the behaviour suite (no data needed)", behaviour),
    Study("bundled-unfinished", "The bundled model on beginnings of translations", unfinished),
]
