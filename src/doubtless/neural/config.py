"""What a neural estimator is made of, as data: one model class serves all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from doubtless.errors import InputError

Inputs = Literal["separate", "joint"]
Uses = Literal["src+mt", "src+mt+ref", "mt+ref"]
Pooling = Literal["cls", "mean", "parts"]
LayerMix = Literal["softmax", "sparsemax", "none"]
Exits = Literal["last", "every"]
Heads = Literal["shared", "each"]
Outputs = Literal[
    "score", "score+error", "score+error+change", "mean+variance", "quantiles", "error", "distance"
]
ErrorTarget = Literal["human", "last"]
Combination = Literal["mean", "xcomet"]

_CHOICES: dict[str, Any] = {
    "inputs": Inputs,
    "uses": Uses,
    "pooling": Pooling,
    "layer_mix": LayerMix,
    "exits": Exits,
    "heads": Heads,
    "outputs": Outputs,
    "error_target": ErrorTarget,
    "combination": Combination,
}


@dataclass(frozen=True)
class ModelConfig:
    """The make-up of a neural estimator.

    Parameters
    ----------
    encoder
        Hub name or folder of a Hugging Face encoder; in a saved model the encoder's own configuration
        lies in the folder and this only says where it came from.
    inputs, uses
        ``separate``: embed each text apart and combine the vectors (COMET). ``joint``: one sequence,
        translation first (UniTE, CometKiwi).
    pooling
        ``cls`` or ``mean`` over the tokens, special ones included; for joint inputs also ``parts``: the
        mean over the translation and that over the rest, which the head compares as if each text had been
        embedded apart.
    layer_mix, mix_norm, layer_dropout
        Weighted sum over layers with softmax or sparsemax weights and a factor gamma; whether each layer
        is normalised per sentence first; the chance that a layer is left out of the mix in training.
    layer
        Without a mix, the layer that is read (-1: the last).
    exits, heads, first_exit
        One output at the last layer or one at every layer from ``first_exit`` on, by one shared head or
        one head a layer.
    restart
        After so many layers the tokens start again from their embeddings, through the layers that are left;
        exits among these mix what they find with what exit ``restart`` found, the last one half and half
        (:meth:`own_share`). So two shallow encoders are one model, whose first half can be left early.
        0: never.
    outputs
        ``score``; ``score+error`` (instant confidence); ``score+error+change`` (and how far the last
        layer's score will be from this one, for early exit); ``mean+variance`` (heteroscedastic);
        ``quantiles``; ``error`` (direct uncertainty prediction: the score of another model goes in);
        ``distance`` (ranking models: no head).
    quantile_levels
        Increasing levels for ``quantiles``.
    error_target
        Whether errors are those against humans or against the last layer's score.
    hidden_sizes, activation, final_activation, dropout
        The head.
    bottleneck
        Size of the layer that features pass before the other model's score joins them (``error``).
    auxiliary
        Names of further numbers that the head learns beside the score, such as ``hter``; they are given as
        they are.
    word_tags, word_layer
        Labels of tokens of the translation, the first meaning no error, and the layer they are read from.
    combination
        How the passes over src+mt, mt+ref and src+mt+ref of a joint model become one score.
    partial
        Whether the model was trained on prefixes of translations.
    language_tags
        Whether sources say which language their translation should be in (:mod:`doubtless.neural.tagged`).
    separator
        For ``parts``: the id of the token that ends the first text.
    max_length
        Most tokens of a sequence; 0: what the encoder allows.
    kinds_after
        For BERT with joint inputs: the id of the separator after whose first appearance tokens are of the
        second kind (``token_type_ids``); -1: all are of the first.
    scale, direction
        What scores mean: a name or range, and whether higher or lower is better.
    score_mean, score_sd
        What the heads give is multiplied by ``score_sd`` and moved by ``score_mean``: a model that was
        trained on standardised human scores answers on the humans' scale.
    """

    encoder: str = ""
    inputs: Inputs = "joint"
    uses: Uses = "src+mt"
    pooling: Pooling = "cls"
    layer_mix: LayerMix = "none"
    mix_norm: bool = False
    layer_dropout: float = 0.1
    layer: int = -1
    exits: Exits = "last"
    heads: Heads = "shared"
    first_exit: int = 1
    restart: int = 0
    outputs: Outputs = "score"
    quantile_levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    error_target: ErrorTarget = "human"
    hidden_sizes: tuple[int, ...] = (2048, 1024)
    activation: str = "Tanh"
    final_activation: str | None = None
    dropout: float = 0.1
    bottleneck: int = 256
    auxiliary: tuple[str, ...] = ()
    word_tags: tuple[str, ...] = ()
    word_layer: int = -1
    combination: Combination = "mean"
    partial: bool = False
    language_tags: bool = False
    separator: int = -1
    max_length: int = 0
    kinds_after: int = -1
    scale: str = "z"
    direction: Literal["higher", "lower"] = "higher"
    score_mean: float = 0.0
    score_sd: float = 1.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                allowed = ", ".join(get_args(choices))
                raise InputError(f"{name} is one of {allowed}, found '{getattr(self, name)}'")
        levels = self.quantile_levels
        proper = list(levels) == sorted(set(levels)) and all(0 < level < 1 for level in levels)
        if self.outputs == "quantiles" and not (proper and 0.5 in levels):
            raise InputError("quantile_levels must increase, lie between 0 and 1 and have 0.5 among them")
        if self.max_length and self.max_length < 5:
            raise InputError(f"max_length must be at least 5, found {self.max_length}")
        if self.outputs == "distance" and (self.inputs != "separate" or self.uses != "src+mt+ref"):
            raise InputError("distance needs separate inputs and src+mt+ref")
        if self.inputs == "separate" and self.word_tags:
            raise InputError("word_tags need joint inputs")
        if self.pooling == "parts" and (self.inputs != "joint" or len(self.passes) > 1 or self.mix_norm):
            raise InputError("pooling parts needs joint inputs of two texts, without mix_norm")
        if self.restart and (
            (self.inputs, self.layer_mix, self.exits, self.heads) != ("joint", "none", "every", "each")
            or self.outputs not in ("score", "score+error", "score+error+change")
            or self.restart < self.first_exit
        ):
            raise InputError(
                "restart needs joint inputs, exits at every layer up to it with a head each, no layer_mix,"
                " and outputs score, score+error or score+error+change"
            )
        if self.exits == "last" and self.outputs == "score+error+change":
            raise InputError("a change needs exits at every layer: after the last one there is none")
        if self.exits == "last" and self.error_target == "last" and self.outputs == "score+error":
            raise InputError(
                "error_target last needs exits at every layer: the last layer has no error to itself"
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that go in, in the order in which a joint sequence has them: translation first."""
        return tuple(name for name in ("mt", "src", "ref") if name in self.uses.split("+"))

    @property
    def passes(self) -> tuple[tuple[str, ...], ...]:
        """The sequences of a joint model: three when it knows source and reference, else one."""
        if self.inputs == "joint" and self.uses == "src+mt+ref":
            return ("mt", "src"), ("mt", "ref"), ("mt", "src", "ref")
        return (self.texts,)

    @property
    def width(self) -> int:
        """How many numbers a head gives."""
        own = {"score": 1, "score+error": 2, "score+error+change": 3, "mean+variance": 2, "error": 1}
        return own.get(self.outputs, len(self.quantile_levels)) + len(self.auxiliary)

    def own_share(self, layer: int, depth: int) -> float:
        """How much of the outputs of an exit is its own; the rest is that of exit ``restart``.

        Beyond a restart a layer that has read little counts for little.

        >>> config = ModelConfig(restart=2, exits="every", heads="each")
        >>> [config.own_share(layer, 6) for layer in (1, 2, 3, 4, 6)]
        [1.0, 1.0, 0.125, 0.25, 0.5]
        """
        if not 0 < self.restart < layer:
            return 1.0
        return (layer - self.restart) / (2 * (depth - self.restart))

    def as_json(self) -> dict[str, Any]:
        """Return plain data for a file."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Make a configuration from plain data; a name that is not known is refused."""
        known = {f.name: f for f in fields(cls)}
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise InputError(f"a model has no option '{unknown[0]}'")
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**options)
