"""The model that comes with the package: it is there, small, needs no torch, and says what it said."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from zlib import compress

import numpy as np
import polars as pl
import pytest

from doubtless import bundled
from doubtless.metaeval.correlation import pearson
from doubtless.neural.runtime import open_engine
from doubtless.reproduce import find

MOST_BYTES = 55_000_000  # in the wheel
COLUMNS = {"src": "src", "mt": "good", "lp": "lp"}


@pytest.fixture(scope="module")
def engine():
    return open_engine(threads=1)


def test_it_is_small():
    files = [path for path in bundled.folder().rglob("*") if path.is_file()]
    assert sum(len(compress(path.read_bytes(), 1)) for path in files) < MOST_BYTES


def test_it_scores_in_a_process_without_torch(tmp_path):
    (tmp_path / "src.txt").write_text("The meeting was moved to Friday.\n", encoding="utf-8")
    (tmp_path / "mt.txt").write_text("Die Sitzung wurde auf Freitag verschoben.\n", encoding="utf-8")
    code = (
        "import sys\nfrom doubtless.cli.main import main\n"
        f"main(['score', '-s', {str(tmp_path / 'src.txt')!r}, '-t', {str(tmp_path / 'mt.txt')!r},"
        " '--lp', 'en-de', '--json'])\n"
        "print([name for name in ('torch', 'transformers', 'onnx') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"
    found = json.loads(done.stdout)
    assert found["n"] == 1
    assert found["alpha"] == 0.1


def test_it_finds_gross_errors_in_its_own_suite(engine):
    rows = {row["kind"]: row["below"] for row in find("bundled-behaviour").run(None)}
    assert min(rows[kind] for kind in ("copy", "empty", "repeated", "unrelated")) >= 0.95
    assert min(rows.values()) >= 0.9


def test_it_leaves_early_by_its_own_rule_and_says_nearly_the_same(engine):
    suite = bundled.behaviour().head(60)
    texts = {name: suite[column].to_list() for name, column in COLUMNS.items()}
    traced = engine.trace(texts)
    assert traced["score"].shape == (len(engine.stepper.exits), 60)
    np.testing.assert_allclose(traced["score"][-1], engine.score(texts).score, atol=1e-6)


def test_the_same_weights_run_on_torch(engine):
    pytest.importorskip("torch")
    suite = bundled.behaviour().gather_every(24)
    texts = {name: suite[column].to_list() for name, column in COLUMNS.items()}
    ours, theirs = engine.score(texts).score, open_engine(runtime="torch").score(texts).score
    assert np.corrcoef(ours, theirs)[0, 1] > 0.995
    np.testing.assert_allclose(ours, theirs, atol=0.25)


def test_every_calibration_is_for_the_pairs_that_the_model_names():
    folder = bundled.folder()
    pairs = json.loads((folder / "config.json").read_text(encoding="utf-8"))["pairs"]
    files = sorted(path.name for path in folder.glob("calibration*.json"))
    expected = ["calibration-05.json", "calibration-20.json", "calibration-exit.json", "calibration.json"]
    assert files == expected
    for name in files:
        text = (folder / name).read_text(encoding="utf-8")
        assert all(f'"{pair}"' in text for pair in pairs)


@pytest.mark.data
def test_tables_of_words_help_where_people_judged(engine, data):
    rows = pl.read_parquet(data / "mlqe_pe.parquet").filter(
        pl.col("split") == "dev", pl.int_range(pl.len()).over("lp", "split") < 300
    )
    texts = {name: rows[name].to_list() for name in ("src", "mt", "lp")}
    whole, pairs, human = engine.score(texts).score, rows["lp"].to_numpy(), rows["z_mean"].to_numpy()
    alone = replace(engine, surface=None).score(texts).score
    mean_r = [
        np.mean([pearson(score[pairs == lp], human[pairs == lp]) for lp in np.unique(pairs)])
        for score in (alone, whole)
    ]
    assert mean_r[1] > mean_r[0] + 0.005
