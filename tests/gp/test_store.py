"""Models in folders, and the verbs that write and read them."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from doubtless import DoubtlessError, InputError
from doubtless.cli.main import main
from doubtless.gp import model as gp_model
from doubtless.gp.features import Extractor
from doubtless.gp.model import GaussianProcess
from doubtless.gp.optimise import Search
from doubtless.gp.quest import NAMES
from doubtless.gp.store import Model, load, save

WORDS = ["das", "haus", "ist", "klein", "und", "der", "hund", "schläft", "nicht", "im", "alten", "garten"]


def table(n=150, seed=0):
    """Segments whose score falls with length and noise; the length is also a column."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 12, n)
    texts = [" ".join(rng.choice(WORDS, k)) for k in lengths]
    human = 2.0 - 0.1 * lengths + 0.2 * rng.normal(size=n)
    return pl.DataFrame(
        {
            "src": texts,
            "mt": [text.upper() + "!" for text in texts],
            "length": lengths.astype(float),
            "other": rng.normal(size=n),
            "human": np.exp(human),
        }
    )


@pytest.fixture
def files(tmp_path):
    """A table to fit on, one to calibrate on, one to apply to, a corpus and files of features."""
    names = {}
    for seed, name in enumerate(("train", "dev", "test")):
        frame = table(seed=seed)
        frame.write_csv(tmp_path / f"{name}.tsv", separator="\t")
        features = frame.select("length", "other").write_csv(include_header=False, separator=" ")
        (tmp_path / f"{name}.feats").write_text(features)
        names[name] = str(tmp_path / f"{name}.tsv")
    corpus = table(300, seed=9).select("src", tgt="mt")
    corpus.write_csv(tmp_path / "corpus.tsv", separator="\t")
    return tmp_path, names


def fit(names, folder, *options):
    return main(["gp", "fit", names["train"], "--restarts", "2", "-o", str(folder), *options])


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("warp", ["none", "log", "tanh2"])
def test_a_model_survives_its_folder(tmp_path, monkeypatch, warp, exact):
    frame = table()
    x, y = frame.select("length", "other").to_numpy(), frame["human"].to_numpy()
    if not exact:
        monkeypatch.setattr(gp_model, "MOST_ROWS", 100)
    fitted = GaussianProcess(warp=warp, ard=True, search=Search(restarts=2)).fit(x, y, ["length", "other"])
    saved = save(Model(fitted, Extractor(columns=("length", "other")), "human"), tmp_path / "a" / "b")
    again = load(tmp_path / "a" / "b")
    assert again.signature == saved.signature
    assert "weights:" in again.signature
    assert fitted.exact == exact
    np.testing.assert_allclose(again.fitted.forecast(x).score, fitted.forecast(x).score, rtol=1e-9)
    np.testing.assert_allclose(
        again.fitted.forecast(x).log_density(y), fitted.forecast(x).log_density(y), rtol=1e-6, atol=1e-8
    )


def test_fit_score_calibrate_apply_evaluate(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--columns", "length,other", "--warp", "log", "--ard", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert next(iter(summary["relevance"])) == "length"
    assert summary["exact"]
    for part in ("dev", "test"):
        out = str(folder / f"{part}-scored.tsv")
        assert main(["gp", "score", names[part], "--model", str(folder / "model"), "-o", out]) == 0
    columns = ["--score", "score", "--lower", "q0.05", "--upper", "q0.95", "--level", "0.9"]
    calibration = str(folder / "calibration.json")
    assert main(["calibrate", str(folder / "dev-scored.tsv"), *columns, "-o", calibration]) == 0
    capsys.readouterr()
    assert main(["apply", calibration, str(folder / "test-scored.tsv"), "--human", "human", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coverage"] == pytest.approx(0.9, abs=0.08)
    plain = ["--score", "score", "--sd", "sd"]
    assert main(["evaluate", str(folder / "dev-scored.tsv"), *plain, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["pearson"] > 0.6
    assert figures["methods"]["conformal"]["coverage"] == pytest.approx(0.9, abs=0.05)


def test_alpha_names_the_quantiles(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--columns", "length") == 0
    capsys.readouterr()
    assert main(["gp", "score", names["test"], "--model", str(folder / "model"), "--alpha", "0.2"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    row = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    assert float(row["q0.1"]) < float(row["score"]) < float(row["q0.9"])


def test_a_file_of_features_is_given_twice(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--features", str(folder / "train.feats")) == 0
    options = ["--model", str(folder / "model"), "--json"]
    assert main(["gp", "score", names["test"], *options, "--features", str(folder / "test.feats")]) == 0
    with pytest.raises(InputError, match=r"^the model needs 2 features from a file \(--features\)$"):
        main(["gp", "score", names["test"], *options])
    with pytest.raises(InputError, match="--where cannot choose"):
        main(["gp", "score", names["test"], *options, "--features", "x", "--where", "length > 3"])


def test_a_file_of_features_that_no_model_asks_for_is_refused(files):
    folder, names = files
    assert fit(names, folder / "model", "--columns", "length") == 0
    options = ["--model", str(folder / "model"), "--features", "none.feats"]
    for verb in (["gp", "score"], ["risk", "--w", "3"]):
        with pytest.raises(
            InputError, match=r"^the model takes no features from a file: leave out none\.feats"
        ):
            main([*verb, names["test"], *options])


def test_a_number_too_large_is_refused_and_nothing_is_saved(files):
    folder, _ = files
    table = folder / "large.csv"
    pl.DataFrame({"x": [1.0, 2.0, 1e200], "human": [1.0, 2.0, 3.0]}).write_csv(table)
    with pytest.raises(InputError, match=r"^feature 'x' is 1e\+200 in row 3: too large$"):
        main(["gp", "fit", str(table), "--columns", "x", "-o", str(folder / "none")])
    assert not (folder / "none").exists()


def test_texts_alone_are_enough(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--corpus", str(folder / "corpus.tsv")) == 0
    captured = capsys.readouterr()
    assert "were left out: " in captured.err  # no source mark: 1074 is constant
    scored = str(folder / "scored.parquet")
    assert main(["gp", "score", names["test"], "--model", str(folder / "model"), "-o", scored]) == 0
    frame = pl.read_parquet(scored)
    assert np.corrcoef(frame["score"], frame["human"].cast(pl.Float64))[0, 1] > 0.5
    assert pl.read_parquet_metadata(scored)["doubtless.signature"].startswith("gp:none-mat52-iso|features:")


def test_features_become_columns_that_a_model_is_fitted_to(files, capsys):
    folder, names = files
    corpus, with_features = ["--corpus", str(folder / "corpus.tsv")], str(folder / "features.tsv")
    assert main(["gp", "features", names["train"], *corpus, "-o", with_features, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["n"] == 150
    assert summary["features"] == list(NAMES)
    frame = pl.read_csv(with_features, separator="\t")
    assert frame.columns[-17:] == list(NAMES)
    assert (frame["quest1001"] == frame["length"]).all()
    # The same numbers as those that a model computes by itself; constant ones are refused if they are given.
    varying = ",".join(name for name in NAMES if frame[name].n_unique() > 1)
    for model, options in (("own", corpus), ("columns", ["--columns", varying])):
        assert fit({"train": with_features}, folder / model, *options, "--json") == 0
    own, columns = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert columns["nll"] == pytest.approx(own["nll"], rel=1e-9)
    with pytest.raises(InputError, match="feature 'quest[0-9]*' is constant: it says nothing, leave it out"):
        fit({"train": with_features}, folder / "model", "--columns", "quest*")
    with pytest.raises(InputError, match="there is a column 'quest1001' already"):
        main(["gp", "features", with_features, *corpus])
    with pytest.raises(InputError, match=r"^no features: give --corpus, or a column nmt_logprobs$"):
        main(["gp", "features", names["train"]])


def test_columns_by_pattern(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--columns", "length,[lo]*e[nr]*", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)["relevance"]) == {"length", "other"}


def test_new_columns_may_have_a_prefix(files, capsys):
    folder, names = files
    assert fit(names, folder / "model", "--columns", "length") == 0
    once, twice = str(folder / "once.tsv"), str(folder / "twice.tsv")
    arguments = ["--model", str(folder / "model")]
    assert main(["gp", "score", names["test"], *arguments, "-o", once]) == 0
    with pytest.raises(InputError, match=r"there is a column 'score' already \(choose a --prefix"):
        main(["gp", "score", once, *arguments, "-o", twice])
    assert main(["gp", "score", once, *arguments, "-o", twice, "--prefix", "gp_"]) == 0
    frame = pl.read_csv(twice, separator="\t")
    assert frame.columns[-4:] == ["gp_score", "gp_sd", "gp_q0.05", "gp_q0.95"]
    assert (frame["gp_score"] == frame["score"]).all()


def test_many_equal_labels_are_warned_of(tmp_path, capsys):
    frame = table(60).with_columns(human=pl.when(pl.int_range(60) < 6).then(0.0).otherwise(pl.col("human")))
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    arguments = ["gp", "fit", str(tmp_path / "t.tsv"), "--columns", "length", "--restarts", "1"]
    for warp in ("none", "tanh1"):
        assert main([*arguments, "--warp", warp, "-o", str(tmp_path / "m")]) == 0
        warned = "10% of the labels are 0: a learned warping turns into a step" in capsys.readouterr().err
        assert warned == (warp == "tanh1")
    with pytest.raises(
        InputError, match=r"t.tsv:2: column 'human' is 0, but a log warp needs positive labels"
    ):
        main([*arguments, "--warp", "log", "-o", str(tmp_path / "m")])


def test_glass_box_features_are_used_where_they_are(tmp_path, capsys):
    rng = np.random.default_rng(0)
    quality = rng.normal(size=80)
    rows = [
        {"src": "a b", "mt": "c d", "nmt_logprobs": (-abs(rng.normal(1, 0.1, 6)) - q).tolist(), "human": -q}
        for q in np.exp(quality)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["gp", "fit", str(path), "--restarts", "2", "-o", str(tmp_path / "m"), "--json"]) == 0
    assert "logprob_mean" in json.loads(capsys.readouterr().out)["relevance"]
    assert main(["gp", "score", str(path), "-m", str(tmp_path / "m"), "--json"]) == 0
    with pytest.raises(InputError, match=r"^no features: give --features, --columns or --corpus"):
        main(["gp", "fit", str(path), "--no-glass-box", "-o", str(tmp_path / "m")])


def test_rows_without_a_human_score_are_left_out(tmp_path, capsys):
    frame = table(60).with_columns(human=pl.when(pl.int_range(60) < 40).then(pl.col("human")).otherwise(None))
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    arguments = ["gp", "fit", str(tmp_path / "t.tsv"), "--columns", "length", "--restarts", "1", "--json"]
    assert main([*arguments, "-o", str(tmp_path / "m")]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 40


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--columns", "length", "--warp", "tanh"], "there is no warping 'tanh'"),
        (["--columns", "length", "--kernel", "cubic"], "there is no kernel 'cubic'"),
        (["--columns", "nothing"], "no column 'nothing'"),
        (["--columns", "no*"], r"no column matches 'no\*'"),
        (["--columns", "length", "--corpus-where", "x"], "--corpus-where needs --corpus"),
        (["--columns", "length", "--glass-box"], "no column 'nmt_logprobs'"),
        ([], "no features"),
    ],
)
def test_mistakes_are_said_in_one_sentence(files, options, sentence):
    folder, names = files
    with pytest.raises(DoubtlessError, match=sentence):
        fit(names, folder / "model", *options)
    assert not (folder / "model").exists()


def test_the_verb_has_verbs(capsys):
    assert main(["gp", "--help"]) == 0
    out = capsys.readouterr().out
    for verb in ("features", "fit", "score"):
        assert f" {verb} " in out
    with pytest.raises(DoubtlessError, match=r"doubtless gp --help"):
        main(["gp", "nonsense"])


def spoil(folder, **changes):
    data = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**data, **changes}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "other"}, "this is not a Gaussian process of doubtless"),
        ({"version": 99}, "version 99 of the format, expected 1"),
        ({"weights": "0"}, "these are not the arrays that model.json was written with"),
        ({"kernel": "cubic"}, "there is no kernel 'cubic'"),
        ({"features": ["length", "b"]}, "the Gaussian process of doubtless is damaged"),
        ({"parameters": {}}, r"the Gaussian process of doubtless is damaged \(no 'log_variance'\)"),
        (
            {"extractor": {"file": 0, "columns": [], "texts": True}},
            "the Gaussian process of doubtless is damaged",
        ),
    ],
)
def test_a_damaged_folder_is_refused(files, change, sentence):
    folder, names = files
    fit(names, folder / "model", "--columns", "length")
    spoil(folder / "model", **change)
    with pytest.raises(InputError, match=sentence):
        load(folder / "model")


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(InputError, match="not valid JSON"):
        load(tmp_path)
