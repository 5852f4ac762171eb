"""From the trained model to the bundled one: ``python recipes/bundled/finish.py RUN/model --data DIR``.

Learns the last layer of each head anew, exports to bytes, chooses the exit tolerance and the word threshold
on MLQE-PE dev, calibrates intervals on what the exported model gives there, compares it with the model it
came from, and writes the card. Nothing is chosen on test20; its figures on the card come from
``doubtless reproduce bundled-...``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from borrow import best_share
from lexical import corrected_rows, slopes, trained
from prepare import mlqe_documents
from refit import refit
from safetensors.torch import load_file

from doubtless.columns import ForecastColumns
from doubtless.conformal.calibrate import CalibrationPlan
from doubtless.conformal.store import Reading
from doubtless.conformal.store import save as save_calibration
from doubtless.metaeval.correlation import pearson
from doubtless.metaeval.detection import detection_curve
from doubtless.neural.checkpoint import Model, fingerprint, load, write_folder
from doubtless.neural.exits import ExitRule, replay
from doubtless.neural.export import export
from doubtless.neural.runtime import open_engine, torch_engine
from doubtless.neural.weights import dequantised
from doubtless.reproduce import Options, Rows, find
from doubtless.reproduce.bundled import tagged_pieces
from doubtless.segments import as_table
from doubtless.surface.model import Surface
from doubtless.words.tagger import TaggedWords, tagged_words

PLACE = Path(__file__).parents[2] / "src" / "doubtless" / "bundled" / "model"
ALPHAS = {"calibration.json": 0.1, "calibration-05.json": 0.05, "calibration-20.json": 0.2}
NOTES = ("exit", "word_threshold", "pairs", "agreement_int8")
MOST_LOST = 0.01  # of the mean r on dev, by the default exit
# Scores are a little wider than the best linear guess of both parts, for those of pairs without the second
# part would otherwise be too narrow: their best guess takes 0.88 of the heads where that of both takes 0.67.
WIDER = 1.116


def score_columns(outputs: dict[str, np.ndarray], dev: pl.DataFrame) -> pl.DataFrame:
    """Rows as ``doubtless score`` writes them, with the human score."""
    columns = {name: pl.Series(outputs[name]) for name in ("score", "error")}
    return dev.select("lp", "src", "mt", "human").with_columns(**columns)


def chosen_exit(
    traced: dict[str, np.ndarray], exits: tuple[int, ...], dev: pl.DataFrame
) -> tuple[float, dict[str, np.ndarray]]:
    """The largest tolerance that costs little, and what the model gives with it."""
    full = mean_r(traced["score"][-1], dev)
    for tolerance in np.arange(0.5, 0.0, -0.01).round(2):
        found, layers = replay(ExitRule("confidence", float(tolerance)), exits, traced)
        lost = full - mean_r(found["score"], dev)
        if lost <= MOST_LOST:
            print(f"exit {tolerance}: {layers.mean():.2f} layers, {lost:.4f} of {full:.4f} lost", flush=True)
            return float(tolerance), found
    raise SystemExit("no tolerance keeps the agreement")


def calibrate(frame: pl.DataFrame, alpha: float, borrow: float, path: Path) -> None:
    """Calibrate by pair; pairs that were not seen get the pooled factor."""
    plan = CalibrationPlan(alpha=alpha, unseen="pooled", small="pooled", borrow=borrow)
    reading = Reading(ForecastColumns(score="score", error="error"), by=("lp",))
    save_calibration(plan.calibrate(as_table(frame), reading), path)


def mean_r(score: np.ndarray, dev: pl.DataFrame) -> float:
    """Pearson r with humans, averaged over pairs."""
    pairs, human = dev["lp"].to_numpy(), dev["human"].to_numpy()
    return float(np.mean([pearson(score[pairs == lp], human[pairs == lp]) for lp in np.unique(pairs)]))


def best_word_threshold(found: Sequence[TaggedWords], dev: pl.DataFrame) -> float:
    """Where flagged and wrong words correlate best."""
    suspicion, wrong = [], []
    for row, own in zip(dev.iter_rows(named=True), found, strict=True):
        pieces = tagged_pieces(row, own)
        if pieces is not None:
            suspicion.append(own.on(pieces))
            wrong.append([tag == "BAD" for tag in row["mt_tags"]])
    curve = detection_curve(np.concatenate(suspicion), np.concatenate(wrong))
    return round(curve.best(curve.matthews)[1], 3)


def main() -> None:
    """Make the folder of the bundled model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--prepared", type=Path, required=True, help="output of prepare.py")
    parser.add_argument("--place", type=Path, default=PLACE)
    parser.add_argument("--card-only", action="store_true", help="measure the folder that is there")
    given = parser.parse_args()
    if not given.card_only:
        make_folder(given.model, Path(given.data), given.prepared, given.place)
    write_card(given.data, given.place)


def make_folder(model: Path, data: Path, prepared: Path, place: Path) -> None:
    """Export, choose thresholds, calibrate."""
    dev = pl.read_parquet(prepared / "dev.parquet")
    texts = {name: dev[name].to_list() for name in ("src", "mt", "lp")}
    whole = with_surface(replace(load(model), surface=None), data, dev, texts)
    if exported(model):
        unlearn_errors(whole)
    assert whole.surface is not None
    correction = whole.surface.correction(texts["lp"], texts["src"], texts["mt"])
    moved = refit(whole, texts, dev["human"].to_numpy() - correction)
    write_model(whole, model, place)

    engine = open_engine(place)
    scored = engine.score(texts, spans=True, words=-1.0)
    traced = engine.trace(texts)
    for name, values in moved.items():
        traced[name] += values  # as if each row had not been among those that heads were refitted on
    tolerance, early = chosen_exit(traced, engine.stepper.exits, dev)
    frame = score_columns({name: values[-1] for name, values in traced.items()}, dev)
    share = best_share(frame, mlqe_documents(data, "dev"), ALPHAS["calibration.json"])
    for name, alpha in ALPHAS.items():
        calibrate(frame, alpha, share, place / name)
    calibrate(score_columns(early, dev), 0.1, share, place / "calibration-exit.json")

    fewer = {name: values[::3] for name, values in texts.items()}  # enough, and PyTorch is slower
    exact = torch_engine(whole).score(fewer)
    agreement = {
        "dev_r": pearson(scored.score[::3], exact.score),
        "dev_largest": float(np.abs(scored.score[::3] - exact.score).max()),
    }
    notes: dict[str, Any] = {
        "exit": tolerance,
        "word_threshold": best_word_threshold(tagged_words(engine, scored, texts["mt"]), dev),
        "pairs": sorted(dev["lp"].unique()),
        # Weights that were bytes before are compared with themselves: what was measured then holds.
        "agreement_int8": whole.extra.get("agreement_int8", agreement),
    }
    config_file = place / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["name"] = "doubtless-small"
    config.update(notes)
    config_file.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(notes), flush=True)


def with_surface(model: Model, data: Path, dev: pl.DataFrame, texts: Mapping[str, Sequence[str]]) -> Model:
    """The model with what corrects its pairs' scores; its heads are drawn to the mean.

    What both weigh beside each other is the best linear guess on dev.
    """
    surface = trained(corrected_rows(data))
    foretold = surface.correction(texts["lp"], texts["src"], texts["mt"])
    own, other = slopes(
        torch_engine(model).score(texts).score, foretold, dev["human"].to_numpy(), dev["lp"].to_numpy()
    )
    print(f"best linear guess: {own:.3f} of the heads, {other:.3f} of the surface", flush=True)
    pairs = {lp: held.scaled(WIDER * other) for lp, held in surface.pairs.items()}
    with torch.no_grad():
        for head in model.estimator.heads:
            head.layers[-1].weight[0] *= WIDER * own
            head.layers[-1].bias[0] *= WIDER * own
    return replace(model, surface=Surface(surface.table, pairs))


def exported(folder: Path) -> bool:
    """Whether a folder is one that was made here before: of bytes, its heads fitted to dev."""
    return (folder / "steps").is_dir()


@torch.no_grad()
def unlearn_errors(model: Model) -> None:
    """Forget what heads know of errors: what is calibrated on dev must not have been fitted there."""
    for head in model.estimator.heads:
        head.layers[-1].weight[1:3] = 0
        head.layers[-1].bias[1:3] = 0


def write_model(model: Model, source: Path, place: Path) -> None:
    """Export a model; of one that is of bytes already only the last layers of the heads change."""
    if not exported(source):
        shutil.rmtree(place, ignore_errors=True)
        export(model, place)
        return
    tensors, state = load_file(source / "model.safetensors"), model.estimator.state_dict()
    last = {name: state[name].clone() for name in tensors if name in state and name.startswith("heads.")}
    tensors |= {name: value for name, value in last.items() if tensors[name].dtype == torch.float32}
    floats = dequantised({name: tensor.numpy() for name, tensor in tensors.items()})
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    steps = {**config["steps"], "fingerprint": fingerprint(model.config, floats)}
    with tempfile.TemporaryDirectory() as folder:
        graphs = shutil.copytree(source / "steps", Path(folder) / "steps")
        shutil.rmtree(place, ignore_errors=True)
        write_folder(model, place, tensors, steps)
        shutil.copytree(graphs, place / "steps")


def write_card(data: str, place: Path) -> None:
    """Measure the folder on test20 and write its card."""
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    notes = {name: config[name] for name in NOTES}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    options = Options(models=(str(place),))
    studies = ("scores", "exits", "words", "behaviour", "unfinished")
    tables: dict[str, Rows] = {}
    for name in studies:
        tables[name] = find(f"bundled-{name}").run(data, options)
        print(name, json.dumps(tables[name]), flush=True)
    measured = f"{date.today()}, on top of commit {commit.stdout.strip()}"
    head = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    parts = [head.replace("{measured}", measured).replace("{notes}", json.dumps(notes, ensure_ascii=False))]
    parts += [
        f"### `doubtless reproduce bundled-{name}`\n\n{markdown(rows)}" for name, rows in tables.items()
    ]
    (place / "README.md").write_text("\n".join(parts), encoding="utf-8")


def markdown(rows: Rows) -> str:
    """Rows as a table."""
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    lines += [
        f"| {' | '.join(f'{row[n]:.3f}' if isinstance(row[n], float) else str(row[n]) for n in names)} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
