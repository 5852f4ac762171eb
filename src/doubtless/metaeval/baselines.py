"""Lexical baselines: BLEU, chrF and TER by sacrebleu, of segments and of systems, with their signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from doubtless.errors import DoubtlessError, InputError
from doubtless.metaeval.pairs import Floats

LEXICAL = ("BLEU", "chrF", "TER")
# Scripts without spaces need a tokenizer of their own; ja and ko would need further programs.
_TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}


@dataclass(frozen=True)
class Scored:
    """Scores of segments, of whole systems (by language pair and system), and how they were made."""

    segments: Floats
    systems: dict[tuple[str, str], float]
    signatures: tuple[str, ...]


def lexical(
    name: str,
    translations: Sequence[str],
    references: Sequence[str],
    systems: Sequence[str],
    pairs: Sequence[str],
) -> Scored:
    """Score translations with a lexical metric; higher is better (TER is negated).

    Parameters
    ----------
    name
        ``BLEU``, ``chrF`` or ``TER``.
    translations, references, systems, pairs
        A text, its reference, its system and its language pair, row by row. The target language decides
        how BLEU finds words.

    Examples
    --------
    >>> found = lexical("chrF", ["the cat"], ["the cat"], ["A"], ["de-en"])  # doctest: +SKIP
    >>> found.signatures  # doctest: +SKIP
    ('metric:chrF|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0',)
    """
    kind = next((known for known in LEXICAL if known.lower() == name.lower()), None)
    if kind is None:
        raise InputError(f"there is no baseline '{name}', expected one of: {', '.join(LEXICAL)}")
    sign = -1.0 if kind == "TER" else 1.0
    scores = np.empty(len(translations))
    whole: dict[tuple[str, str], float] = {}
    signatures: dict[str, None] = {}
    cells: dict[tuple[str, str], list[int]] = {}
    for row, cell in enumerate(zip(pairs, systems, strict=True)):
        cells.setdefault(cell, []).append(row)
    for (pair, system), rows in cells.items():
        target = pair.rpartition("-")[2].partition("_")[0]
        segment, corpus = (_metric(kind, target, segment=alone) for alone in (True, False))
        mt, ref = ([texts[i] for i in rows] for texts in (translations, references))
        scores[rows] = [sign * segment.sentence_score(a, [b]).score for a, b in zip(mt, ref, strict=True)]
        whole[pair, system] = sign * corpus.corpus_score(mt, [ref]).score
        # BLEU of a segment has options of its own.
        for line in (str(corpus.get_signature()), str(segment.get_signature())):
            signatures[f"metric:{kind}|{line}{'|negated' if sign < 0 else ''}"] = None
    return Scored(scores, whole, tuple(signatures))


def _metric(kind: str, target: str, *, segment: bool) -> Any:
    try:
        metrics: Any = import_module("sacrebleu.metrics")
    except ModuleNotFoundError:
        raise DoubtlessError("sacrebleu is missing: pip install 'doubtless[metaeval]'") from None
    if kind == "BLEU":
        # Short segments have no 4-grams: without this their BLEU would be 0.
        return metrics.BLEU(tokenize=_TOKENIZERS.get(target, "13a"), effective_order=segment, force=True)
    return metrics.CHRF() if kind == "chrF" else metrics.TER()
