"""What the language pair of a segment changes: how its source is read, and what corrects its score."""

from __future__ import annotations

from collections.abc import Mapping

from doubtless.neural.config import ModelConfig
from doubtless.neural.rows import Texts
from doubtless.neural.stepper import Array
from doubtless.neural.tagged import tagged
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


def correction_of(surface: Surface | None, texts: Texts) -> Array | None:
    """What is added to the scores of segments; None if nothing is."""
    if surface is None or not {"lp", "src", "mt"} <= set(texts):
        return None
    return surface.correction(texts["lp"], texts["src"], texts["mt"])


def corrected(outputs: Mapping[str, Array], correction: Array | None) -> dict[str, Array]:
    """Outputs with corrected scores (segments, or exits by segments)."""
    if correction is None:
        return dict(outputs)
    return {**outputs, "score": outputs["score"] + correction}
