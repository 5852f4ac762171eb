from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from doubtless.neural.encoder import LayerwiseEncoder, _attend, attention_mask, batch_of  # noqa: E402

TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
FAMILIES = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**TINY), add_pooling_layer=False),
    "xlm-roberta": lambda: transformers.XLMRobertaModel(
        transformers.XLMRobertaConfig(**TINY), add_pooling_layer=False
    ),
    "roberta": lambda: transformers.RobertaModel(transformers.RobertaConfig(**TINY), add_pooling_layer=False),
    "rembert": lambda: transformers.RemBertModel(
        transformers.RemBertConfig(**TINY, input_embedding_size=8), add_pooling_layer=False
    ),
    "deberta-v2": lambda: transformers.DebertaV2Model(transformers.DebertaV2Config(**TINY)),
    "xlm-roberta-xl": lambda: transformers.XLMRobertaXLModel(
        transformers.XLMRobertaXLConfig(**TINY), add_pooling_layer=False
    ),
}


def sequences():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, 50, (n,), generator=generator).tolist() for n in (5, 11, 1, 8)]


@pytest.mark.parametrize("family", FAMILIES)
def test_layer_by_layer_equals_the_forward_method(family):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    encoder = LayerwiseEncoder(model).eval()
    ids, mask = batch_of(sequences(), padding=1)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        if encoder.steps:
            states = [encoder.embed(ids, mask)]
            for number in range(1, encoder.depth + 1):
                states.append(encoder.layer(number, states[-1], attention_mask(mask)))
        else:
            states = list(encoder.all_states(ids, mask))
    assert len(states) == 4
    for ours, theirs in zip(states, expected, strict=True):
        torch.testing.assert_close(ours[mask], theirs[mask], atol=2e-6, rtol=1e-5)


def test_the_common_families_can_be_stepped():
    steps = {family: LayerwiseEncoder(make()).steps for family, make in FAMILIES.items()}
    assert steps == {
        "bert": True,
        "xlm-roberta": True,
        "roberta": True,
        "rembert": True,
        "deberta-v2": False,
        "xlm-roberta-xl": False,
    }


def test_a_batch_without_padding_needs_no_mask():
    _, mask = batch_of([[1, 2], [3, 4]], padding=0)
    assert attention_mask(mask) is None


@pytest.mark.parametrize("padded", [True, False])
def test_attention_in_half_precision_learns_as_the_fused_kernel(padded):
    torch.manual_seed(0)
    mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])[:, None, None, :] if padded else None
    exact = [torch.randn(2, 3, 9, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    half = [part.detach().bfloat16().requires_grad_() for part in exact]
    rounded = [part.detach().double().requires_grad_() for part in half]
    expected = torch.nn.functional.scaled_dot_product_attention(*rounded, attn_mask=mask)
    found = _attend(*half, mask, 0.0)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, atol=0.02, rtol=0.02)
    weights = torch.randn(expected.shape, dtype=torch.float64)
    (expected * weights).sum().backward()
    (found * weights.bfloat16()).sum().backward()
    for ours, theirs in zip(half, rounded, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=0.06, rtol=0.06)


def test_dropout_of_attention_in_half_precision_keeps_the_mean():
    torch.manual_seed(0)
    query, key = (torch.zeros(1, 1, 400, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    ones = torch.ones(1, 1, 400, 8, dtype=torch.bfloat16)
    found = _attend(query, key, ones, None, 0.25).detach().float()
    assert found.std() > 0.01
    assert float(found.mean()) == pytest.approx(1, abs=0.01)
