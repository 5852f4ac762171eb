"""Parts of the bundled model's recipe: translations spoilt by a known share, and heads learnt anew."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402

RECIPE = Path(__file__).parents[2] / "recipes" / "bundled"
SENTENCES = [
    ["the", "dog", "sees", "a", "cat", "."],
    ["the", "cat", "sees", "a", "bird", "."],
    ["the", "cat", "sees", "a", "mouse", "."],
    ["a", "bird", "hears", "the", "dog", ",", "and", "the", "cat", "sleeps", "."],
]


@pytest.fixture(scope="module", autouse=True)
def path_of_recipe() -> Iterator[None]:
    """The recipe's modules are scripts' and not of the package."""
    sys.path.insert(0, str(RECIPE))
    yield
    sys.path.remove(str(RECIPE))


@pytest.fixture(scope="module")
def graded(path_of_recipe: None) -> Any:
    return import_module("graded")


@pytest.fixture(scope="module")
def lexicon(graded: Any) -> Any:
    made = graded.Lexicon()
    for sentence in SENTENCES:
        made.hear(sentence)
    made.compare(["the", "dog", "sees", "a", "cat", "."], ["the", "dog", "looks", "at", "a", "cat", "."])
    return made


def test_another_word_fits_between_its_neighbours(lexicon: Any) -> None:
    found = Counter(lexicon.fitting("a", "bird", ".", Random(seed)) for seed in range(200))
    assert set(found) <= {word for sentence in SENTENCES for word in sentence}
    assert {word for word, _ in found.most_common(2)} == {"cat", "mouse"}


def test_mistakes_are_what_a_machine_had_instead(lexicon: Any) -> None:
    assert dict(lexicon.mistakes) == {("sees",): [["looks", "at"]]}


@given(st.sampled_from(SENTENCES), st.floats(0, 1), st.integers(0, 999))
def test_every_word_has_a_tag_and_bad_ones_are_counted(
    graded: Any, lexicon: Any, good: list[str], share: float, seed: int
) -> None:
    words, tags, done = graded.spoilt(good, share, lexicon, Random(seed))
    assert len(words) == len(tags) >= 1
    assert 0 <= done <= 1
    kept = [word for word, tag in zip(words, tags, strict=True) if tag == "OK"]
    rest = iter(good)
    assert all(word in rest for word in kept)  # in their order
    if share == 0:
        assert (words, done) == (good, 0)


def test_rows_grow_worse_with_their_share(graded: Any, tmp_path: Path) -> None:
    few = [("Der Hund sieht.", "The dog sees.", "The dog sees .", "The dog is seeing .")] * 3
    few += [("Die Katze hört!", "The cat hears!", "The cat hears !", "Now the cat hears !")]
    material = graded.Material()
    material.add_post_edits("de-en", few)
    rng = Random(3)
    rows = [material.row("de-en", *pair, rng) for pair in material.good["de-en"] * 40]
    table = pl.DataFrame(rows, schema=graded.COLUMNS, orient="row")
    untouched = table.filter(pl.col("hter") == 0)
    assert set(untouched["human"]) == {graded.BEST}
    assert set(untouched["mt"]) == {"The dog is seeing.", "Now the cat hears!"}
    assert {tag for tags in untouched["mt_tags"] for tag in tags} == {"OK"}
    ordered = table.sort("hter")["human"]
    assert ordered.is_sorted(descending=True)
    assert ordered.min() == pytest.approx(graded.WORST)
    lengths = table.select(pl.col("mt_tok").str.split(" ").list.len() == pl.col("mt_tags").list.len())
    assert lengths.to_series().all()


def test_spaces_are_learnt_from_texts(graded: Any) -> None:
    text = 'He said: "I don\'t know", and left (2 %).'
    tokens = ["He", "said", ":", '"', "I", "do", "n't", "know", '"', ",", "and"]
    tokens += ["left", "(", "2", "%", ")", "."]
    spacing = graded.Spacing.learn([(text, tokens)])
    assert spacing.write(tokens) == text
    assert spacing.write(["She", "said", ":", '"', "Wo", "n't", "do", '"', ","]) == 'She said: "Won\'t do",'


def test_unsteady_scores_come_nearer_to_the_truth() -> None:
    prepare = import_module("prepare")
    rng = np.random.default_rng(5)
    truth = rng.normal(size=4000)

    def measure(validity: float) -> np.ndarray:
        return validity * truth + (1 - validity**2) ** 0.5 * rng.normal(size=len(truth))

    human, told = measure(0.53), measure(0.43)
    tags = [["BAD"] * 3 if value < -1 else ["OK"] * 3 for value in told]
    rows = pl.DataFrame(
        {
            "lp": "en-de",
            "human": human,
            "hter": np.exp(-told) / 20,
            "model_score": rng.normal(size=len(truth)),
            "nmt_logprobs": rng.normal(size=(len(truth), 4)).tolist(),
            "mt_tok": "a b c",
            "mt_tags": tags,
            "gap_tags": tags,
            "src_tags": tags,
        }
    )
    steady = prepare.steadied(rows, "en-de")["human"].to_numpy()
    # The best of two measures with independent errors reaches this correlation (sum of odds of v squared).
    odds = sum(v**2 / (1 - v**2) for v in prepare.UNSTEADY["en-de"])
    assert np.corrcoef(steady, truth)[0, 1] == pytest.approx((odds / (1 + odds)) ** 0.5, abs=0.03)
    assert np.corrcoef(human, truth)[0, 1] < 0.57
    assert prepare.steadied(rows, "ro-en") is rows


def test_ridge_is_scikit_learn_s() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(3)
    features, target = rng.normal(2, 3, (50, 4)), rng.normal(1, 1, 50)
    scaled = (features - features.mean(0)) / features.std(0)
    weights, constant = import_module("ridge").ridge(features, target, 7.0)
    expected = linear.Ridge(alpha=7.0).fit(scaled, target).predict(scaled)
    assert features @ weights + constant == pytest.approx(expected)


@pytest.mark.parametrize("restart", [0, 2])
def test_heads_are_learnt_anew(restart: int, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", layers=4)
    kinds = {"pooling": "parts", "exits": "every", "heads": "each", "outputs": "score+error+change"}
    scale = {"score_mean": 2.0, "score_sd": 3.0}
    model = new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(6,), restart=restart, **scale, **kinds))
    texts = {"src": TEXTS[:-1] * 4, "mt": [a + b for a in TEXTS[1:5] for b in TEXTS[1:]]}
    human = np.random.default_rng(1).normal(2, 3, len(texts["mt"]))
    moved = import_module("refit").refit(model, texts, human)
    after = torch_engine(model).trace(texts)
    unseen = {name: after[name] + values for name, values in moved.items()}
    # A regression with a constant has the mean of what it was fitted on; beyond a restart, nearly so: it is
    # fitted to what the exit before would give to rows that it has not seen.
    first = slice(0, restart or None)
    expected = np.full(len(after["score"]), human.mean())
    assert after["score"].mean(axis=1)[first] == pytest.approx(expected[first], rel=1e-4)
    assert after["score"].mean(axis=1) == pytest.approx(expected, rel=0.05)
    true = np.abs(unseen["score"] - human).mean(axis=1)
    assert after["error"].mean(axis=1)[first] == pytest.approx(true[first], rel=1e-4)
    assert after["error"].mean(axis=1) == pytest.approx(true, rel=0.05)
    change = np.abs(unseen["score"] - unseen["score"][-1]).mean(axis=1)
    assert after["change"].mean(axis=1)[first] == pytest.approx(change[first], rel=1e-4, abs=1e-4)
    assert after["change"].mean(axis=1) == pytest.approx(change, abs=0.05)
    assert all(np.abs(values).max() > 0 for name, values in moved.items() if name != "change")


def test_rows_left_out_do_not_move_what_they_get(tmp_path: Path) -> None:
    refit = import_module("refit")
    rng = np.random.default_rng(2)
    features, wanted, folds = rng.normal(size=(40, 3)), rng.normal(size=40), np.arange(40) % 10
    found = []
    for value in (0.0, 100.0):
        torch.manual_seed(0)
        given = refit.fit(torch.nn.Linear(3, 2), 1, features, np.r_[value, wanted[1:]], folds, 3000.0)
        found.append(given.unseen)
    assert found[0][::10] == pytest.approx(found[1][::10])
    assert np.abs(found[0] - found[1]).max() > 0.01


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_a_stack_gives_the_mean_of_its_models(kind: str, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", layers=4, kind=kind)
    options: dict[str, Any] = {
        "pooling": "parts", "exits": "every", "heads": "each", "outputs": "score+error+change",
        "hidden_sizes": (6,), "word_tags": ("OK", "BAD"),
    }  # fmt: skip
    extra = [("hter", "logprob"), ("hter",)]
    models = [
        new_model(ModelConfig(encoder=str(encoder), auxiliary=extra[seed], **options), seed=seed)
        for seed in (0, 1)
    ]
    with torch.no_grad():  # the second model was trained on, apart from its embeddings
        for name, weight in models[1].estimator.named_parameters():
            if "embeddings" not in name:
                weight += 0.1 * torch.randn_like(weight)
    texts = {"src": TEXTS[:-1], "mt": TEXTS[1:]}
    first, second = (torch_engine(model).trace(texts) for model in models)
    lower = torch_engine(import_module("stack").stacked(models[:1], 3)).trace(texts)
    assert lower["logprob"] == pytest.approx(first["logprob"][:3], abs=1e-5)
    stack = import_module("stack").stacked(models, 3)
    assert stack.estimator.word_layer == 3
    torch.testing.assert_close(stack.estimator.tagger.weight, models[0].estimator.tagger.weight)
    both = torch_engine(stack)
    found = both.trace(texts)
    assert both.stepper.exits == (1, 2, 3, 4, 5, 6)
    assert set(found) == {"score", "error", "change", "hter"}
    for name, values in found.items():
        assert values[:3] == pytest.approx(first[name][:3], abs=1e-5)
        shares = np.array([1 / 6, 1 / 3, 1 / 2])[:, None]
        mixed = (1 - shares) * first[name][2] + shares * second[name][:3]
        assert values[3:] == pytest.approx(mixed, abs=1e-5)


def test_the_mean_of_models_has_the_mean_of_their_weights(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    models = [new_model(ModelConfig(encoder=str(encoder), hidden_sizes=(6,)), seed=seed) for seed in (0, 1)]
    weights = [{k: v.clone() for k, v in model.estimator.state_dict().items()} for model in models]
    found = import_module("average").averaged(models, (3.0, 1.0)).estimator.state_dict()
    for name, weight in found.items():
        torch.testing.assert_close(weight, 0.75 * weights[0][name] + 0.25 * weights[1][name])
        if name.startswith("encoder."):  # the same in both
            assert torch.equal(weight, weights[0][name])


def test_softened_scores_are_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(size=4000)
    human, features = truth + rng.normal(size=4000), truth[:, None] + rng.normal(size=(4000, 3))
    found = import_module("again").softened(human, features)
    assert found.mean() == pytest.approx(human.mean())
    assert found.std() == pytest.approx(0.93 * human.std())
    # Of a human score and the mean of three others, all as noisy: the correlation is 0.82, was 0.71.
    assert np.corrcoef(human, truth)[0, 1] == pytest.approx(0.71, abs=0.02)
    assert np.corrcoef(found, truth)[0, 1] == pytest.approx(0.82, abs=0.03)


def test_the_lower_layers_of_an_encoder_are_an_encoder(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", layers=4)
    import_module("prepare").lower(encoder, 3, tmp_path / "lower")
    kinds: dict[str, Any] = {"exits": "every", "heads": "each", "pooling": "parts", "hidden_sizes": (6,)}
    whole, lower = (new_model(ModelConfig(encoder=str(e), **kinds)) for e in (encoder, tmp_path / "lower"))
    names = [name for name in lower.estimator.state_dict() if name.startswith("encoder.")]
    assert not any("layer.3." in name for name in names)
    for name in names:
        torch.testing.assert_close(lower.estimator.state_dict()[name], whole.estimator.state_dict()[name])


@pytest.mark.parametrize(("differing", "chosen"), [(False, (0.5, 0.75)), (True, (0.0,))])
def test_pairs_borrow_where_they_are_alike(differing: bool, chosen: tuple[float, ...]) -> None:
    rng, module = np.random.default_rng(2), import_module("borrow")
    pairs = np.repeat(["a", "b", "c"], 200)
    spread = np.where(differing & (pairs == "a"), 4.0, 1.0)
    columns = {
        "lp": pairs,
        "score": np.zeros(600),
        "error": np.ones(600),
        "human": spread * rng.normal(size=600),
    }
    assert module.best_share(pl.DataFrame(columns), np.arange(600) // 5, 0.1) in chosen
