"""Pruning: plans and replays by hand; the decoding loop beside Hugging Face's own, on a tiny random model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubtless.decide.prune import Plan, engine_scorer, fertility, pieces, record, replay, survivors
from doubtless.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from doubtless.decide.generate import Pruner  # noqa: E402

PAD, EOS = 30, 0
SOURCES = ["a short one", "a source that is quite a bit longer"]


@given(st.text(alphabet="ab é,。東京ไ \n", max_size=30))
def test_pieces_give_the_text_again(text):
    assert "".join(pieces(text)) == text


def test_a_plan_looks_at_shares_of_the_expected_length():
    plan = Plan(at=(0.25, 0.5), keep=(0.5, 0.25), fertility=2.0)
    assert plan.looks([10, 1]).tolist() == [[5, 10], [1, 1]]
    assert plan.kept == 0.125
    assert fertility([4, 6], [5, 10]) == 1.5


@pytest.mark.parametrize(
    "options",
    [
        {"keep": (0.5, 0.5)},
        {"keep": (0.0,)},
        {"keep": (1.5,)},
        {"at": (0.5, 0.25), "keep": (0.5,)},
        {"at": (0.0, 0.5), "keep": (0.5,)},
        {"fertility": 0.0},
    ],
)
def test_plans_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError):
        Plan(**options)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=30), st.floats(0.01, 1))
def test_the_best_share_of_every_source_survives(rows, keep):
    source, scores = map(np.array, zip(*rows, strict=True))
    kept = survivors(scores, source, keep)
    for number in set(source.tolist()):
        own = source == number
        assert kept[own].sum() == np.ceil(keep * own.sum() - 1e-9) >= 1
        if not kept[own].all():
            assert scores[own][kept[own]].min() >= scores[own][~kept[own]].max()


def test_recorded_candidates_are_cut_marked_and_replayed():
    seen = []

    def scorer(sources, texts, unfinished):
        seen.append((unfinished, list(texts)))
        return [text.count("good") for text in texts]

    sources = ["s " * 8]
    candidates = [["good " * 8, "bad good bad " * 4, "bad " * 20, "good"]]
    recorded = record(sources, candidates, scorer, Plan(at=(0.25, 0.5), keep=(0.5,)))
    assert recorded.looks.tolist() == [[2] * 4, [4] * 4]
    assert seen[1] == (True, ["good good", "bad good", "bad bad"])
    assert seen[0][0] is False
    assert recorded.partial[0].tolist() == [2, 1, 0, 1]
    # Of three that are unfinished two stay, then one; the finished one costs nothing more and stays.
    found = replay(recorded, (0.5, 0.5))
    assert found.left.tolist() == [True, False, False, True]
    lengths = recorded.length
    assert found.tokens == lengths[0] + 4 + 2 + lengths[3]
    assert found.chosen.tolist() == [0]
    assert replay(recorded, (1.0, 1.0)).tokens == lengths.sum()
    backwards = replay(recorded, (0.3, 1.0), by=-recorded.partial)
    assert backwards.left.tolist() == [False, False, True, True]


def test_keeping_all_chooses_the_best_and_keeping_fewer_generates_less():
    rng = np.random.default_rng(0)
    sources = ["x " * n for n in (6, 12, 20)]
    candidates = [
        [" ".join("w" * rng.integers(1, 9) for _ in range(rng.integers(3, 25))) for _ in range(12)]
    ] * 3
    recorded = record(sources, candidates, lambda s, t, u: [len(text) for text in t], Plan())
    all_of_them = replay(recorded, (1, 1, 1))
    for number, chosen in enumerate(all_of_them.chosen):
        assert recorded.final[chosen] == recorded.final[recorded.source == number].max()
    spent = [replay(recorded, (keep,) * 3).tokens for keep in (1.0, 0.75, 0.5, 0.25)]
    assert spent == sorted(spent, reverse=True)
    with pytest.raises(InputError, match="3 looks"):
        replay(recorded, (0.5,))


class Tokenizer:
    """Enough of a tokenizer: a token is a letter."""

    pad_token_id = PAD

    def batch_decode(self, sequences, skip_special_tokens):
        return ["".join(chr(97 + int(i)) for i in row if int(i) not in (PAD, EOS)) for row in sequences]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=31,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
    )
    made = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() > 1 and "positions" not in name:
                parameter.normal_(0, 0.35)
        made.final_logits_bias[0, PAD] = -1e4
        made.final_logits_bias[0, EOS] = 1.0
    return made


@pytest.fixture
def batch():
    ids = torch.tensor([[5, 6, 7, 8, EOS] + [PAD] * 4, [9, 10, 11, 12, 13, 14, 15, 16, EOS]])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def letters_b(sources, texts, unfinished):
    """Prefer texts by an arbitrary property of their beginning."""
    return [sum(map(ord, text)) / max(len(text), 1) for text in texts]


def test_greedy_search_is_hugging_faces(model, batch):
    theirs = model.generate(**batch, max_new_tokens=20, num_beams=1, do_sample=False)
    pruner = Pruner(letters_b, Tokenizer(), SOURCES, Plan())
    ours = model.generate(**batch, max_new_tokens=20, num_beams=1, do_sample=False, custom_generate=pruner)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("length_penalty", [1.0, 0.0])
def test_beam_search_without_pruning_is_hugging_faces(model, batch, length_penalty):
    options = {**batch, "max_new_tokens": 16, "num_beams": 5, "length_penalty": length_penalty}
    theirs = model.generate(
        **options, num_return_sequences=5, return_dict_in_generate=True, output_scores=True
    )
    pruner = Pruner(letters_b, Tokenizer(), SOURCES, Plan(keep=(1.0,)))
    model.generate(**options, custom_generate=pruner)
    texts = Tokenizer().batch_decode(theirs.sequences, True)
    scores = theirs.sequences_scores.reshape(2, 5)
    for source in range(2):
        assert pruner.report.candidates[source] == texts[5 * source : 5 * source + 5]
        lengths = (theirs.sequences[5 * source : 5 * source + 5] != PAD).sum(dim=1).numpy()
        mine = pruner.report.log_probs[source] / lengths**length_penalty
        np.testing.assert_allclose(mine, scores[source].numpy(), atol=1e-4)


def forced(model, batch, source: int, text: str, ended: bool) -> float:
    """The log-probability of a text, computed in one go and without any cache."""
    labels = [ord(letter) - 97 for letter in text] + [EOS] * ended
    out = model(
        input_ids=batch["input_ids"][source : source + 1],
        attention_mask=batch["attention_mask"][source : source + 1],
        decoder_input_ids=torch.tensor([[PAD, *labels[:-1]]]),
    )
    return float(out.logits.log_softmax(-1)[0].gather(1, torch.tensor(labels)[:, None]).sum())


@pytest.mark.parametrize(
    "options", [{"do_sample": True, "num_return_sequences": 16, "top_k": 0}, {"num_beams": 8}]
)
def test_rows_that_leave_do_not_disturb_those_that_stay(model, batch, options):
    torch.manual_seed(1)
    pruner = Pruner(letters_b, Tokenizer(), SOURCES, Plan(keep=(0.5,), fertility=1.5))
    with torch.no_grad():
        best = model.generate(**batch, max_new_tokens=24, custom_generate=pruner, **options)
        for source, texts in enumerate(pruner.report.candidates):
            for text, found in zip(texts, pruner.report.log_probs[source], strict=True):
                ended = len(text) < 24
                assert found == pytest.approx(forced(model, batch, source, text, ended), abs=1e-3)
    assert len(best) == 2
    for number, text in enumerate(Tokenizer().batch_decode(best, True)):
        assert text == pruner.report.chosen[number]
        assert pruner.report.scores[number].max() == letters_b([], [text], False)[0]


def test_the_best_beginnings_go_on_and_tokens_are_saved(model, batch):
    calls = []

    def scorer(sources, texts, unfinished):
        calls.append((unfinished, list(zip(sources, texts, strict=True))))
        return letters_b(sources, texts, unfinished)

    # No text ends before the looks are over: what is left can be counted exactly.
    options = {
        **batch,
        "do_sample": True,
        "num_return_sequences": 16,
        "max_new_tokens": 20,
        "min_new_tokens": 13,
    }
    spent = {}
    for keep in (1.0, 0.5):
        torch.manual_seed(2)
        calls.clear()
        pruner = Pruner(scorer, Tokenizer(), SOURCES, Plan(keep=(keep,), fertility=2.0))
        model.generate(**options, custom_generate=pruner)
        spent[keep] = pruner.report.tokens
    # The sources have 4 and 8 tokens: looks after 2, 4, 6 and 4, 8, 12.
    assert pruner.report.alive == [[8, 4, 2], [8, 4, 2]]
    partial = [rows for unfinished, rows in calls if unfinished]
    assert [len(rows) for rows in partial] == [16, 16, 8, 4, 8, 4]
    steps = [16 * 2 + 8 * 2 + 4 * 2, 16 * 4 + 8 * 4 + 4 * 4]
    tails = [
        [len(text) + (len(text) < 20) - look for text in texts]
        for texts, look in zip(pruner.report.candidates, (6, 12), strict=True)
    ]
    assert spent[0.5] == sum(steps) + sum(map(sum, tails))
    assert spent[0.5] < 0.7 * spent[1.0]
    assert pruner.report.scored == 16 + 8 + 4 + 16 + 8 + 4 + 4
    first = partial[0]
    order = sorted((text for _, text in first), key=lambda text: -letters_b([], [text], True)[0])
    assert {source for source, _ in partial[2]} == {SOURCES[0]}
    assert sorted(text[:2] for _, text in partial[2]) == sorted(order[:8])


def test_pruned_beams_become_fewer(model, batch):
    spent = []
    for keep in (1.0, 0.5):
        pruner = Pruner(letters_b, Tokenizer(), SOURCES, Plan(keep=(keep,), fertility=2.0))
        model.generate(**batch, num_beams=8, max_new_tokens=20, min_new_tokens=13, custom_generate=pruner)
        spent.append(pruner.report.tokens)
    assert pruner.report.alive == [[4, 2, 1], [4, 2, 1]]
    assert spent[1] < 0.6 * spent[0]


def test_what_cannot_be_pruned_is_said(model, batch):
    pruner = Pruner(letters_b, Tokenizer(), SOURCES[:1], Plan())
    with pytest.raises(InputError, match="1 sources were announced, 2 came"):
        model.generate(**batch, max_new_tokens=4, custom_generate=pruner)
    pruner = Pruner(letters_b, Tokenizer(), SOURCES, Plan())
    with pytest.raises(InputError, match="both at once"):
        model.generate(**batch, max_new_tokens=4, num_beams=2, do_sample=True, custom_generate=pruner)


def test_an_engine_scores_beginnings_as_unfinished():
    class Engine:
        def score(self, texts, partial):
            self.seen = (texts, partial)
            return type("Scored", (), {"score": np.zeros(1)})

    engine = Engine()
    engine_scorer(engine, "zh-en")(["央行"], ["The central"], True)
    assert engine.seen == ({"src": ["央行"], "mt": ["The central"], "lp": ["zh-en"]}, True)
