"""What the language pair of a segment changes: how its source is read, and what corrects its score."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from doubtless.neural.config import ModelConfig
from doubtless.neural.rows import Texts
from doubtless.neural.stepper import Array
from doubtless.neural.tagged import sides_of, tagged
from doubtless.surface.model import Surface


def told(config: ModelConfig, texts: Texts) -> Texts:
    """The texts as a model reads them: one that is told the language has it before each source.

    >>> told(ModelConfig(language_tags=True), {"src": ["Hund"], "mt": ["dog"], "lp": ["de-en"]})
    {'mt': ['dog'], 'src': ['en | Hund']}
    """
    read = {name: values for name, values in texts.items() if name != "lp"}
    if config.language_tags and "lp" in texts and "src" in read:
        sources = read.pop("src")
        read["src"] = [tagged(src, lp) for src, lp in zip(sources, texts["lp"], strict=True)]
    return read


def pair_of(lp: str | None) -> str:
    """A language pair by the codes of its languages alone, however it is written.

    >>> [pair_of(lp) for lp in ("et-en", "et_en", "et_EE-en_XX", "EN-zh-CN", "en", None)]
    ['et-en', 'et-en', 'et-en', 'en-zh', 'en-', '-']
    """
    return "-".join(re.split("[-_]", side)[0].lower() for side in sides_of(lp))


def correction_of(surface: Surface | None, texts: Texts) -> Array | None:
    """What is added to the scores of segments; None if nothing is."""
    if surface is None or not {"lp", "src", "mt"} <= set(texts):
        return None
    return surface.correction([pair_of(lp) for lp in texts["lp"]], texts["src"], texts["mt"])


def corrected(outputs: Mapping[str, Array], correction: Array | None) -> dict[str, Array]:
    """Outputs with corrected scores and quantiles (segments, or exits by segments)."""
    if correction is None:
        return dict(outputs)
    moved = {"score": correction, "quantiles": np.asarray(correction)[..., None]}
    return {name: values + moved[name] if name in moved else values for name, values in outputs.items()}
