"""The estimator: an encoder that is read layer by layer, a layer mix and heads.

There is one way through the model, :meth:`Estimator.start`, ``advance``, ``read``, ``keep``: full scoring,
training and early exit are loops over these four, and ``join`` lets texts that were apart go on together. A
state holds each distinct text once; ``rows`` says which texts a segment is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import LayerwiseEncoder, attention_mask
from doubtless.neural.heads import Head, LayerMix, combine, outputs_of


@dataclass(frozen=True)
class Batch:
    """Token sequences of distinct texts, and which of them each segment consists of.

    ``rows`` maps the name of a text (``mt``, ``src``, ``ref``; for joint models ``joint``) to the index of
    its sequence, one a segment.
    """

    ids: Tensor
    mask: Tensor
    rows: Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """Texts on their way through the encoder.

    ``pooled`` holds one vector a text for each layer passed so far, from the embeddings on; ``hidden`` the
    tokens at the current ``layer``; ``words`` those at the layer that tags are read from. An encoder that
    cannot be run layer by layer has been run at the start, and its states lie ``ahead``. ``first`` counts the
    tokens of each sequence's first text, where the pooling tells it from the rest. ``again`` holds the
    embeddings, as long as the tokens have yet to start from them for a second time.
    """

    layer: int
    hidden: Tensor
    mask: Tensor
    padding: Tensor | None
    pooled: Tensor
    rows: Mapping[str, Tensor]
    words: Tensor | None = None
    ahead: Tensor | None = None
    first: Tensor | None = None
    again: Tensor | None = None

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))


class Estimator(nn.Module):
    """One model for every neural estimator, as its configuration says.

    Parameters
    ----------
    config
        What it is made of.
    encoder
        The encoder, run layer by layer.
    """

    def __init__(self, config: ModelConfig, encoder: LayerwiseEncoder) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        for name in ("layer", "word_layer", "first_exit"):
            if not -1 <= getattr(config, name) <= encoder.depth:
                raise InputError(
                    f"{name} is {getattr(config, name)}, but the encoder has {encoder.depth} layers"
                )
        if config.restart and not (encoder.steps and config.restart < encoder.depth):
            raise InputError(
                f"restart is {config.restart}, but the encoder has {encoder.depth} layers"
                f"{'' if encoder.steps else ', which cannot be run one by one'}"
            )
        count = len(self.exits) if config.heads == "each" else 1
        heads = [] if config.outputs == "distance" else [Head(config, encoder.size) for _ in range(count)]
        self.heads = nn.ModuleList(heads)
        mixes = [LayerMix(e + 1, config.layer_mix, config.layer_dropout) for e in self.exits]
        self.mixes = nn.ModuleList(mixes if config.layer_mix != "none" else [])
        self.tagger = nn.Linear(encoder.size, len(config.word_tags)) if config.word_tags else None

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers at which the model gives an output."""
        depth = self.encoder.depth
        if self.config.exits == "every":
            return tuple(range(self.config.first_exit, depth + 1))
        if self.config.layer_mix != "none" or self.config.layer == -1:
            return (depth,)
        return (self.config.layer,)

    @property
    def word_layer(self) -> int:
        """The layer that tags are read from."""
        return self.encoder.depth if self.config.word_layer == -1 else self.config.word_layer

    def start(self, batch: Batch) -> State:
        """Embed the tokens: the state at layer 0."""
        kinds = self._kinds(batch.ids)
        ahead = None if self.encoder.steps else self.encoder.all_states(batch.ids, batch.mask, kinds)
        hidden = self.encoder.embed(batch.ids, batch.mask, kinds) if ahead is None else ahead[0]
        first = self._first(batch.ids)
        pooled = self._pool(hidden, batch.mask, first)[:, None]
        words = hidden if self.tagger is not None and self.word_layer == 0 else None
        padding = attention_mask(batch.mask)
        again = hidden if self.config.restart else None
        return State(0, hidden, batch.mask, padding, pooled, batch.rows, words, ahead, first, again)

    def advance(self, state: State, to_layer: int) -> State:
        """Run the layers up to ``to_layer``."""
        hidden, pooled, words, again = state.hidden, [state.pooled], state.words, state.again
        for number in range(state.layer + 1, to_layer + 1):
            if again is not None and number == self.config.restart + 1:
                hidden, again = again, None
            if state.ahead is None:
                hidden = self.encoder.layer(number, hidden, state.padding)
            else:
                hidden = state.ahead[number]
            pooled.append(self._pool(hidden, state.mask, state.first)[:, None])
            if self.tagger is not None and number == self.word_layer:
                words = hidden
        pools = torch.cat(pooled, dim=1)
        return replace(state, layer=to_layer, hidden=hidden, pooled=pools, words=words, again=again)

    def read(self, state: State, score: Tensor | None = None) -> dict[str, Tensor]:
        """Outputs of each segment at the current layer, which must be one of the exits."""
        found = self.head_outputs(self.features(state), self.exits.index(state.layer), score)
        share = self.config.own_share(state.layer, self.encoder.depth)
        if share == 1:
            return found
        earlier = self.read(replace(state, layer=self.config.restart), score)
        return {name: share * value + (1 - share) * earlier[name] for name, value in found.items()}

    def head_outputs(
        self, vectors: Mapping[str, Tensor], exit_number: int, score: Tensor | None
    ) -> dict[str, Tensor]:
        """Outputs from the vectors of each segment's texts, by the head of an exit."""
        if self.config.outputs == "distance":
            return {"score": ranking_score(vectors)}
        head = self.heads[exit_number if len(self.heads) > 1 else 0]
        return outputs_of(self.config, head(combine(self.config, vectors), score))

    def features(self, state: State) -> dict[str, Tensor]:
        """The vector of each text of each segment at the current layer."""
        if self.config.layer_mix == "none":
            vectors = state.pooled[:, state.layer]
        else:
            vectors = self.mixes[self.exits.index(state.layer)](state.pooled)
        return {name: vectors[index] for name, index in state.rows.items()}

    def read_words(self, state: State) -> Tensor:
        """Logits of the tags of each token of each segment (segments, tokens, tags)."""
        assert self.tagger is not None
        assert state.words is not None
        logits: Tensor = self.tagger(state.words)
        return logits[state.rows["joint"]]

    def keep(self, state: State, rows: Tensor) -> State:
        """Keep some segments (a boolean mask or indices); texts that none of them needs cost no more."""
        kept = {name: index[rows] for name, index in state.rows.items()}
        used, place = torch.unique(torch.cat(list(kept.values())), return_inverse=True)
        lengths = state.mask[used].sum(dim=1)
        longest = int(lengths.max()) if len(used) else 0
        mask = state.mask[used, :longest]
        parts = place.split([len(index) for index in kept.values()])
        return replace(
            state,
            hidden=state.hidden[used, :longest],
            mask=mask,
            padding=attention_mask(mask),
            pooled=state.pooled[used],
            rows=dict(zip(kept, parts, strict=True)),
            words=None if state.words is None else state.words[used, :longest],
            ahead=None if state.ahead is None else state.ahead[:, used, :longest],
            first=None if state.first is None else state.first[used],
            again=None if state.again is None else state.again[used, :longest],
        )

    def join(self, states: Sequence[State]) -> State:
        """Put the segments of several states of one layer one after another."""
        longest = max(state.mask.shape[1] for state in states)
        before = accumulate((len(state.mask) for state in states), initial=0)
        wide = [_widened(state, longest, count) for state, count in zip(states, before, strict=False)]

        def optional(name: str, texts: int = 0) -> Tensor | None:
            parts = [getattr(state, name) for state in wide]
            return None if parts[0] is None else torch.cat(parts, dim=texts)

        mask = torch.cat([state.mask for state in wide])
        return replace(
            wide[0],
            hidden=torch.cat([state.hidden for state in wide]),
            mask=mask,
            padding=attention_mask(mask),
            pooled=torch.cat([state.pooled for state in wide]),
            rows={name: torch.cat([state.rows[name] for state in wide]) for name in wide[0].rows},
            words=optional("words"),
            ahead=optional("ahead", texts=1),
            first=optional("first"),
            again=optional("again"),
        )

    def forward(self, batch: Batch, score: Tensor | None = None) -> tuple[dict[str, Tensor], State]:
        """Run all layers; return the outputs of every exit, stacked (exits, segments), and the last state."""
        return self.read_exits(self.start(batch), score)

    def read_exits(
        self, state: State, score: Tensor | None = None, early_gradient: float = 1.0
    ) -> tuple[dict[str, Tensor], State]:
        """Outputs of every exit from a state on; exits below it are read from the pooled vectors it holds.

        Of the gradients of exits before the last, the encoder gets the share ``early_gradient``.
        """
        found = []
        for layer in self.exits:
            if layer > state.layer:
                state = self.advance(state, layer)
            pooled = state.pooled[:, : layer + 1]
            if layer < self.exits[-1] and early_gradient < 1:
                pooled = early_gradient * pooled + (1 - early_gradient) * pooled.detach()
            found.append(self.read(replace(state, layer=layer, pooled=pooled), score))
        if self.tagger is not None and state.layer < self.word_layer:
            state = self.advance(state, self.word_layer)
        return {name: torch.stack([out[name] for out in found]) for name in found[0]}, state

    def _kinds(self, ids: Tensor) -> Tensor | None:
        """BERT's kinds of tokens: 1 after the first separator, 0 up to it."""
        if self.config.kinds_after < 0:
            return None
        separators = (ids == self.config.kinds_after).long()
        return (separators.cumsum(dim=1) - separators > 0).long()

    def _first(self, ids: Tensor) -> Tensor | None:
        """How many tokens stand before the one that ends the first text."""
        if self.config.pooling != "parts":
            return None
        return ((ids == self.config.separator).cumsum(dim=1) == 0).sum(dim=1)

    def _pool(self, hidden: Tensor, mask: Tensor, first: Tensor | None = None) -> Tensor:
        """One vector a sequence, normalised per sentence if the mix wants it.

        The normalisation subtracts a number and divides by one, both of the whole sentence and layer, so
        that it may follow the pooling.
        """
        weight = mask.to(hidden)[:, :, None]
        if self.config.pooling == "cls":
            pooled = hidden[:, 0]
        elif first is not None:
            before = (torch.arange(mask.shape[1], device=mask.device)[None, :] < first[:, None])[:, :, None]
            shares = torch.cat([weight * before, weight * ~before], dim=2)
            means = torch.einsum("tlp,tlh->tph", shares / shares.sum(dim=1, keepdim=True), hidden)
            pooled = means.flatten(1)
        else:
            pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        if not (self.config.mix_norm and self.config.layer_mix != "none"):
            return pooled
        count = weight.sum(dim=(1, 2)) * hidden.shape[2]
        mean = (hidden * weight).sum(dim=(1, 2)) / count
        spread = (((hidden - mean[:, None, None]) * weight) ** 2).sum(dim=(1, 2)) / count
        return (pooled - mean[:, None]) / torch.sqrt(spread + 1e-12)[:, None]


def _widened(state: State, length: int, before: int) -> State:
    """A state with room for so many tokens, whose texts are counted from a number on."""
    more = length - state.mask.shape[1]

    def padded(tokens: Tensor | None) -> Tensor | None:
        return None if tokens is None else functional.pad(tokens, (0, 0, 0, more))

    return replace(
        state,
        hidden=functional.pad(state.hidden, (0, 0, 0, more)),
        mask=functional.pad(state.mask, (0, more)),
        rows={name: index + before for name, index in state.rows.items()},
        words=padded(state.words),
        ahead=padded(state.ahead),
        again=padded(state.again),
    )


def ranking_score(vectors: Mapping[str, Tensor]) -> Tensor:
    """Ranking models: one over one plus the harmonic mean of the distances to source and reference."""
    distance = torch.nn.functional.pairwise_distance
    to_src, to_ref = distance(vectors["mt"], vectors["src"]), distance(vectors["mt"], vectors["ref"])
    harmonic = 2 * to_src * to_ref / (to_src + to_ref)
    return 1 / (1 + harmonic)
