"""Hugging Face encoders, one layer at a time.

An estimator reads hidden states layer by layer and may stop early, which the forward method of a Hugging
Face model does not allow. Models of the BERT family (BERT, RoBERTa, XLM-R, InfoXLM, E5, MiniLM, RemBERT) are
run here from their own modules, with PyTorch's fused attention; the others through their forward method, all
layers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerwiseEncoder(nn.Module):
    """An encoder with ``embed`` and ``layer``; how, depends on the model inside.

    Parameters
    ----------
    model
        A Hugging Face encoder without a pooler.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config: Any = model.config

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The layers that can be run one by one; empty if the model is of another family."""
        # Not an attribute: the modules would be registered, and their weights saved, a second time.
        return _bert_layers(self.model)

    @property
    def depth(self) -> int:
        """Number of layers above the embeddings."""
        return int(self.config.num_hidden_layers)

    @property
    def size(self) -> int:
        """Size of a hidden state."""
        return int(self.config.hidden_size)

    @property
    def steps(self) -> bool:
        """Whether layers can be run one by one; if not, :meth:`all_states` runs them all."""
        return len(self.layers) > 0

    def embed(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return the embeddings of tokens, the state below the first layer."""
        model: Any = self.model
        state: Tensor = model.embeddings(input_ids=ids, **_kinds(kinds))
        mapping = getattr(model.encoder, "embedding_hidden_mapping_in", None)
        return state if mapping is None else mapping(state)

    def layer(self, number: int, state: Tensor, mask: Tensor | None) -> Tensor:
        """Run one layer (counted from 1); ``mask`` is boolean, None where no token is padding."""
        layer = self.layers[number - 1]
        return _bert_layer(layer, state, mask, layer.training)

    def all_states(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return the embeddings and the state after each layer (layers, texts, tokens, size)."""
        out = self.model(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True, **_kinds(kinds)
        )
        return torch.stack(list(out.hidden_states))


def _kinds(kinds: Tensor | None) -> dict[str, Tensor]:
    return {} if kinds is None else {"token_type_ids": kinds}


def attention_mask(mask: Tensor) -> Tensor | None:
    """The mask for fused attention: None if nothing is padded, which is faster."""
    return None if bool(mask.all()) else mask.bool()[:, None, None, :]


_FAMILY = {"bert", "roberta", "xlm-roberta", "rembert", "camembert"}


def _bert_layers(model: nn.Module) -> Sequence[nn.Module]:
    kind = getattr(model.config, "model_type", "")
    positions = getattr(model.config, "position_embedding_type", "absolute") or "absolute"
    if kind not in _FAMILY or positions != "absolute":
        return ()
    return model.encoder.layer  # type: ignore[union-attr,return-value]


def _bert_layer(layer: Any, state: Tensor, mask: Tensor | None, training: bool) -> Tensor:
    """One post-norm transformer layer from the modules of a BERT-like layer.

    Nearly all of a layer's work is in matrix products that see each token alone: they are given only the
    tokens that are not padding. Attention, which needs rectangles, gets them back in between.
    """
    attention = layer.attention.self
    batch, length, size = state.shape
    heads = attention.num_attention_heads
    real = place = None
    if mask is not None:
        is_real = mask[:, 0, 0].flatten()
        real = is_real.nonzero()[:, 0]
        # Where each place of the rectangle finds its token; padding takes a neighbour's, which nobody reads.
        place = (is_real.cumsum(0) - 1).clamp(min=0)

    def packed(padded: Tensor) -> Tensor:
        flat = padded.reshape(batch * length, -1)
        return flat if real is None else flat.index_select(0, real)

    def unpacked(flat: Tensor) -> Tensor:
        flat = flat if place is None else flat.index_select(0, place)
        return flat.view(batch, length, -1)

    def split(projected: Tensor) -> Tensor:
        return unpacked(projected).view(batch, length, heads, -1).transpose(1, 2)

    tokens = packed(state)
    mixed = _attend(
        split(attention.query(tokens)),
        split(attention.key(tokens)),
        split(attention.value(tokens)),
        mask,
        attention.dropout.p if training else 0.0,
    )
    tokens = layer.attention.output(packed(mixed.transpose(1, 2)), tokens)
    return unpacked(layer.output(layer.intermediate(tokens), tokens)).view(batch, length, size)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Scaled dot-product attention; fused, but for training in half precision on a CPU.

    There the backward pass of PyTorch's fused kernel takes about five times as long as plain products.
    """
    if query.device.type != "cpu" or query.dtype != torch.bfloat16 or not query.requires_grad:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    shares = functional.dropout(logits.float().softmax(dim=-1), dropout).to(value.dtype)
    return shares @ value


def batch_of(sequences: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Pad token lists to a rectangle; return tokens and a boolean mask of what is not padding."""
    longest = max(len(s) for s in sequences)
    ids = torch.full((len(sequences), longest), padding, dtype=torch.long)
    mask = torch.zeros((len(sequences), longest), dtype=torch.bool)
    for row, tokens in enumerate(sequences):
        ids[row, : len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
        mask[row, : len(tokens)] = True
    return ids, mask
