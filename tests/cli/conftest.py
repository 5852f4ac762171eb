from __future__ import annotations

import json
from pathlib import Path

import pytest

EXITS = {"exits": "every", "outputs": "score+error", "error_target": "last"}
TAGS = {"word_tags": ("OK", "BAD")}
# Everything that the bundled model can do, in small.
WHOLE = TAGS | {"exits": "every", "outputs": "score+error+change", "partial": True, "language_tags": True}
KINDS = {
    "plain": {},
    "exits": EXITS,
    "tags": TAGS,
    "errors": {"outputs": "error"},
    "unite": {"uses": "src+mt+ref"},
    "quantile": {"outputs": "quantiles"},
    "whole": WHOLE,
}


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder of tiny models, one of each kind."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tiny import write_encoder

    from doubtless.neural.checkpoint import new_model, save
    from doubtless.neural.config import ModelConfig

    root = tmp_path_factory.mktemp("models")
    encoder = write_encoder(root / "encoder")
    for name, options in KINDS.items():
        config = ModelConfig(encoder=str(encoder), hidden_sizes=(12, 8), **options)
        save(new_model(config, name=name), root / name)
    return root


@pytest.fixture
def table(tmp_path) -> str:
    path = tmp_path / "segments.tsv"
    rows = [f"Katze {i}\tcat {i % 7}\t{(i % 7) / 7}" for i in range(30)]
    path.write_text(
        "\n".join(["src\tmt\thuman", *rows, "Hund\tHund\t0.1", "Haus\t\t0.0", ""]), encoding="utf-8"
    )
    return str(path)


@pytest.fixture(scope="session")
def shipped(models) -> str:
    """A model folder that brings calibrations by language pair, an exit and a threshold for words."""
    from doubtless.cli.main import main

    folder = models / "whole"
    rows = [f"de-en\tKatze {i}\tcat {i % 7}\t{(i % 7) / 7}" for i in range(30)]
    rows += [row.replace("de-en", "zh-en").replace("Katze", "猫") for row in rows]
    rated, scored = models / "rated.tsv", str(models / "scored.tsv")
    rated.write_text("\n".join(["lp\tsrc\tmt\thuman", *rows, ""]), encoding="utf-8")
    files = {
        ("calibration.json", "0.1"): [],
        ("calibration-0.2.json", "0.2"): [],
        ("calibration-exit.json", "0.1"): ["--exit", "1e9"],
    }
    for (name, alpha), extra in files.items():
        assert main(["score", str(rated), "-m", str(folder), "--no-intervals", "-o", scored, *extra]) == 0
        options = ["--score", "score", "--error", "error", "--by", "lp", "--floor", "0.1", "--alpha", alpha]
        policies = ["--unseen", "pooled", "--small", "pooled"]
        assert main(["calibrate", scored, *options, *policies, "-o", str(folder / name)]) == 0
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"exit": 1e9, "word_threshold": 0.4, "pairs": ["de-en", "zh-en"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
