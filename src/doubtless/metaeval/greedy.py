"""Greedy matching of token embeddings, in the manner of BERTScore, with any encoder in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from doubtless.errors import DoubtlessError, InputError
from doubtless.metaeval.pairs import Floats

if TYPE_CHECKING:
    from torch import Tensor


class GreedyMatcher:
    """Score translations by how well each token finds its like in the reference.

    Every token is matched with the most similar one of the other text (cosine of hidden states). Precision
    is the mean over tokens of the translation, recall over those of the reference; the score is their
    harmonic mean. Unlike in the original, special tokens are no candidates, and nothing is rescaled.

    Parameters
    ----------
    folder
        A Hugging Face encoder with its tokenizer.
    layer
        Hidden states to use, 0 for the embeddings; by default those after three quarters of the layers.
    batch
        Texts run together.
    """

    def __init__(self, folder: str | os.PathLike[str], layer: int | None = None, batch: int = 32) -> None:
        if not os.path.isdir(folder):
            raise InputError(f"{os.fspath(folder)}: there is no such folder, expected an encoder")
        try:
            from transformers import AutoModel, AutoTokenizer
        except ModuleNotFoundError as error:
            raise DoubtlessError(f"{error.name} is missing: pip install 'doubtless[torch]'") from None
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(folder).eval()
        depth = int(self.model.config.num_hidden_layers)
        self.layer = round(0.75 * depth) if layer is None else layer
        if not 0 <= self.layer <= depth:
            raise InputError(f"the encoder has {depth} layers, there is no layer {self.layer}")
        self.batch = batch
        self.name = os.path.basename(os.path.normpath(folder))

    @property
    def signature(self) -> str:
        """What the scores depend on."""
        from doubtless import __version__

        return f"metric:greedy|encoder:{self.name}|layer:{self.layer}|F1|version:doubtless.{__version__}"

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Floats:
        """Score each translation against its reference; 0 where one of them has no tokens."""
        texts = sorted({*translations, *references}, key=len)
        vectors = self._embed(texts)
        scores = [_match(vectors[mt], vectors[ref]) for mt, ref in zip(translations, references, strict=True)]
        return np.array(scores)

    def _embed(self, texts: Sequence[str]) -> dict[str, Tensor]:
        import torch

        found: dict[str, Tensor] = {}
        for start in range(0, len(texts), self.batch):
            part = list(texts[start : start + self.batch])
            inputs = self.tokenizer(
                part, return_tensors="pt", padding=True, truncation=True, return_special_tokens_mask=True
            )
            special = inputs.pop("special_tokens_mask").bool()
            with torch.inference_mode():
                states = self.model(**inputs, output_hidden_states=True).hidden_states[self.layer]
            states = torch.nn.functional.normalize(states, dim=-1)
            real = inputs["attention_mask"].bool() & ~special
            found |= {text: state[mask] for text, state, mask in zip(part, states, real, strict=True)}
        return found


def _match(translation: Tensor, reference: Tensor) -> float:
    if not (len(translation) and len(reference)):
        return 0.0
    likeness = translation @ reference.T
    precision, recall = float(likeness.amax(dim=1).mean()), float(likeness.amax(dim=0).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
