"""The studies of test-time adaptation, on made-up ratings and a tiny model."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sacrebleu")

from doubtless.errors import InputError
from doubtless.reproduce import Options, find
from doubtless.reproduce.tau import ABLATION, REFERENCES, rated_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with made-up ratings and a model."""
    from tiny import TEXTS, write_encoder

    from doubtless.neural.checkpoint import new_model, save
    from doubtless.neural.config import ModelConfig

    root = tmp_path_factory.mktemp("tau")
    rng, words = np.random.default_rng(0), " ".join(TEXTS).split()

    def text() -> str:
        return " ".join(rng.choice(words, rng.integers(3, 7)))

    rows = []
    for (name, lp), reference in REFERENCES.items():
        humans = (reference, "ref.Z")
        for item in range(10):
            src = text()
            # The last item was translated by humans only.
            systems = ("A", "B", "C", *humans) if item < 9 else humans
            rows.extend(
                {"set": name, "lp": lp, "system": system, "doc": "d", "seg": item, "src": src}
                | {"mt": text(), "mqm": float(rng.integers(0, 9))}
                for system in systems
            )
    pl.DataFrame(rows, schema_overrides={"mqm": pl.Float32}).write_parquet(root / "mqm_spans.parquet")
    options = {"inputs": "separate", "uses": "src+mt+ref", "pooling": "mean", "layer_mix": "softmax"}
    encoder = write_encoder(root / "encoder")
    config = ModelConfig(encoder=str(encoder), hidden_sizes=(8,), **options)
    save(new_model(config), root / "model")
    save(new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(8,), layer_mix="softmax")), root / "plain")
    return root


def run(study, made, **options):
    models = (str(made / "model"), str(made / "encoder"))
    return find(study).run(str(made), Options(models=models, **options))


def test_references_are_not_systems_and_what_only_humans_translated_is_left_out(made):
    frame = rated_rows(made / "mqm_spans.parquet", "wmt21_news", "en-de", None)
    assert frame["system"].unique().sort().to_list() == ["A", "B", "C", "ref.Z"]
    assert len(frame) == 4 * 9
    assert len(rated_rows(made / "mqm_spans.parquet", "wmt21_news", "en-de", 5)) == 4 * 5


def test_tables_hold_every_metric_and_the_papers_figures(made):
    rows = run("tau-table1", made, sets=("wmt21_news/zh-en", "wmt21_ted/en-de"))
    metrics = ["TER", "BLEU", "chrF", "greedy", "model", "adapted"]
    assert [row["metric"] for row in rows] == 4 * metrics
    assert [row["domain"] for row in rows[::6]] == ["news", "news+ht", "ted", "mean"]
    by_name = {(row["domain"], row["metric"]): row for row in rows}
    assert by_name["news", "model"]["paper_r"] == pytest.approx(0.511)
    assert by_name["ted", "greedy"]["paper_r"] == pytest.approx(0.506)
    assert by_name["news", "adapted"]["systems"] == 3
    assert by_name["news+ht", "adapted"]["systems"] == 4
    assert by_name["news", "adapted"]["gain"] == pytest.approx(
        by_name["news", "adapted"]["r"] - by_name["news", "model"]["r"]
    )
    accuracies = run("tau-table2", made, sets=("wmt21_news/zh-en", "wmt21_ted/en-de"))
    assert all(0 <= row["acc"] <= 1 for row in accuracies)
    assert {row["paper_acc"] for row in accuracies if row["metric"] == "BLEU"} == {None}


def test_uncertainty_is_measured_before_and_after(made):
    rows = run("tau-figure4", made, sets=("wmt21_news/zh-en", "wmt21_ted/en-de"))
    assert [(row["set"], row["of"], row["n"]) for row in rows] == [
        ("wmt21_news", "systems", 27),
        ("wmt21_news", "human translations", 9),
        ("wmt21_ted", "systems", 27),
    ]
    assert all(row["fall"] == pytest.approx(row["before"] - row["after"]) for row in rows)
    assert all(row["before_25"] <= row["before_50"] <= row["before_75"] for row in rows)


def test_the_ablation_adapts_each_choice_of_parameters(made):
    rows = run("tau-table3", made, quick=True)
    assert [(row["domain"], row["parameters"]) for row in rows] == [
        (domain, parameters) for domain in ("news", "ted") for parameters in ABLATION
    ]
    assert rows[0]["paper_r"] == pytest.approx(0.857)
    assert [row["plain_r"] for row in rows[:6]] == pytest.approx([rows[0]["plain_r"]] * 6, abs=1e-4)
    assert len({round(row["after"], 9) for row in rows[:6]}) == 6


def test_a_model_that_does_not_fit_is_refused(made):
    with pytest.raises(InputError, match="--models FOLDER"):
        find("tau-table1").run(str(made), Options())
    with pytest.raises(InputError, match="reads src\\+mt\\+ref"):
        find("tau-table1").run(str(made), Options(models=(str(made / "plain"),)))
    with pytest.raises(InputError, match="no set is called news"):
        find("tau-table1").run(str(made), Options(models=(str(made / "model"),), sets=("news",)))
