"""How to adapt a model at test time, as data. Nothing here needs PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from doubtless.errors import InputError

Dropout = Literal["head", "all"]

PARAMETERS = ("layer-mix", "layernorm", "estimator")


@dataclass(frozen=True)
class AdaptPlan:
    """How to adapt.

    Parameters
    ----------
    passes
        J: how often all segments of a system are gone through.
    k
        K: passes with dropout that the uncertainty of a segment is estimated from.
    lr
        Learning rate of Adam.
    parameters
        What is adapted: ``layer-mix`` (the weights of the layers and their factor gamma), ``layernorm`` (all
        layer normalisations of the encoder), ``estimator`` (the head); several of them together.
    batch
        Segments to a step.
    dropout
        Where passes differ: ``head``, in the layer mix and the head, as in the code of the paper's authors;
        ``all``, in the encoder too, which is then run once for each of the K passes.
    seed
        Decides batches and dropout; neither depends on the order of the segments.

    Examples
    --------
    >>> AdaptPlan.parse("passes=1,parameters=layer-mix+estimator").parameters
    ('layer-mix', 'estimator')
    >>> print(AdaptPlan())
    passes=3,k=30,lr=0.0001,parameters=layer-mix,batch=16,dropout=head
    """

    passes: int = 3
    k: int = 30
    lr: float = 1e-4
    parameters: tuple[str, ...] = ("layer-mix",)
    batch: int = 16
    dropout: Dropout = "head"
    seed: int = field(default=0, metadata={"own": True})

    def __post_init__(self) -> None:
        for name, least in {"passes": 1, "k": 2, "batch": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} of an adaptation is at least {least}, found {getattr(self, name)}")
        if not 0 < self.lr < 1:
            raise InputError(f"lr of an adaptation lies between 0 and 1, found {self.lr}")
        unknown = [name for name in self.parameters if name not in PARAMETERS]
        if unknown or not self.parameters:
            found = "+".join(self.parameters)
            raise InputError(f"parameters are some of {'+'.join(PARAMETERS)}, found '{found}'")
        if self.dropout not in get_args(Dropout):
            raise InputError(f"dropout is head or all, found '{self.dropout}'")
        if self.dropout == "all" and "layernorm" in self.parameters:
            raise InputError(
                "parameters=layernorm adapts the encoder, whose own dropout stays off: dropout=head"
            )

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> AdaptPlan:
        """Read ``passes=3,k=30,lr=1e-4,parameters=layer-mix``; what is not said keeps its default."""
        readers: dict[str, Any] = {f.name: type(f.default) for f in fields(cls) if not f.metadata}
        readers["parameters"] = lambda value: tuple(value.split("+"))
        options: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in readers:
                raise InputError(
                    f"an adaptation is auto or {','.join(f'{n}=…' for n in readers)}, found '{text}'"
                )
            try:
                options[name] = readers[name](value)
            except ValueError:
                raise InputError(f"{name} of an adaptation is a number, found '{value}'") from None
        return cls(**options, seed=seed)

    def __str__(self) -> str:
        said = {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata}
        said["parameters"] = "+".join(self.parameters)
        return ",".join(f"{name}={value}" for name, value in said.items())
