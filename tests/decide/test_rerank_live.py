"""Reranking by a model: what is executed is what a replay of its trace says."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import TEXTS, write_encoder  # noqa: E402

from doubtless.decide.candidates import Pools  # noqa: E402
from doubtless.decide.race import run  # noqa: E402
from doubtless.decide.rerank import Choices, Method, Trace, replay, rerank  # noqa: E402
from doubtless.decide.similarity import similarities  # noqa: E402
from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402
from doubtless.segments import as_table  # noqa: E402

METHODS = [
    Method("ucb", budget=0.6),
    Method("ucb-paper", budget=0.6),
    Method("ucb", budget=0.8, gamma=0.3, start=2, lead=1.0),
    Method("halving", budget=0.6),
    Method("race"),
    Method("constant", 2),
    Method("confidence", 0.2),
    Method("random", budget=0.5),
    Method("similar", budget=0.5),
    Method("full"),
]


@pytest.fixture(scope="module", params=["higher", "lower"])
def engine(request, tmp_path_factory):
    encoder = write_encoder(tmp_path_factory.mktemp("encoder"), layers=4)
    config = ModelConfig(
        encoder=str(encoder),
        exits="every",
        outputs="score+error+change",
        hidden_sizes=(12,),
        direction=request.param,
    )
    return torch_engine(new_model(config, seed=5))


@pytest.fixture(scope="module")
def candidates():
    random = np.random.default_rng(0)
    words = [word for text in TEXTS for word in text.split()]
    rows = []
    for seg, count in enumerate([7, 1, 12, 4]):
        texts = [" ".join(random.choice(words, size=random.integers(1, 9))) for _ in range(count)]
        rows += [{"seg": seg, "src": TEXTS[seg], "mt": text} for text in [*texts, texts[0]]]
    table = as_table(rows)
    return table, {name: table.column(name).to_list() for name in ("src", "mt")}


def expected_of_runner_up(recorded, method, preference, alike):
    """The runner-up's score brought to the last exit by the mean steps of those that went further."""
    policy = method.policy
    course = method.start_race(recorded.exits, recorded.present, preference, alike)
    run(policy, course, recorded.advance, method.lead)
    choices = Choices.of(policy, course)
    found = []
    for score, place, chosen, other in zip(
        recorded.score, course.place, choices.chosen, choices.runner_up, strict=True
    ):
        place[chosen] = course.depth
        steps = [
            np.mean((score[:, layer] - score[:, layer - 1])[place > layer])
            for layer in range(place[other], course.depth)
        ]
        found.append(score[other, place[other] - 1] + sum(steps))
    return np.array(found)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.signature)
@pytest.mark.parametrize("memory", [0, 30_000, 1 << 30])
def test_live_and_replayed_choices_are_the_same(engine, candidates, method, memory):
    table, texts = candidates
    pools = Pools.of(table)
    preference = np.random.default_rng(1).random(pools.rows.shape)
    recorded = Trace.of(engine, texts, pools)
    alike = similarities(texts["mt"], pools.rows)
    expected = replay(recorded, method, preference, alike)
    found = rerank(engine, texts, pools, method, preference=preference, memory=memory)
    sources = np.arange(len(pools))
    np.testing.assert_array_equal(found.row, pools.rows[sources, expected.chosen])
    np.testing.assert_array_equal(found.choices.spent, expected.spent)
    np.testing.assert_array_equal(found.choices.finishing, expected.finishing)
    np.testing.assert_array_equal(found.choices.runner_up, expected.runner_up)
    # What is reported is the last layer's score, however early the choice was made.
    whole = engine.score(texts).outputs
    for name, values in found.outputs.items():
        np.testing.assert_allclose(values, whole[name][found.row], atol=1e-6)
    # Of the runner-up, what is known of it brought to the last layer; the very score if it was there.
    sign = 1 if engine.config.direction == "higher" else -1
    final = sign * recorded.final[sources, expected.runner_up]
    levelled = sign * expected_of_runner_up(recorded, method, preference, alike)
    has_other = found.runner_up >= 0
    np.testing.assert_allclose(found.other["score"][has_other], levelled[has_other], atol=1e-5)
    sure = has_other & (found.other["doubt"] == 0)
    np.testing.assert_allclose(found.other["score"][sure], final[sure], atol=1e-5)
    assert np.isfinite(found.other["score"]).all()
    assert found.candidates.tolist() == [7, 1, 12, 4]
    if method.kind == "full":
        best = recorded.final.max(axis=1)
        score = found.outputs["score"] if engine.config.direction == "higher" else -found.outputs["score"]
        np.testing.assert_allclose(score, best, atol=1e-6)
    if memory == 1 << 30:
        assert not found.again


def test_identical_candidates_are_run_once(engine, candidates):
    table, texts = candidates
    begun = []
    start = engine.stepper.start
    engine.stepper.start = lambda batch: begun.append(len(batch.rows["joint"])) or start(batch)
    try:
        rerank(engine, texts, Pools.of(table), Method("full"))
    finally:
        engine.stepper.start = start
    # One more is begun to see how much memory a token takes.
    assert sum(begun) == 7 + 1 + 12 + 4 + 1
