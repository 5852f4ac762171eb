"""Dropping candidates while they are being generated (Zouhar et al. 2025, appendix G).

A model that can score unfinished translations looks at all candidates of a source when a quarter, a half and
three quarters of the expected length are there, and only the best share goes on. The expected length is that
of the source times a *fertility*, which depends on the languages.

This module plans, and plays plans through on candidates that were recorded whole;
:mod:`doubtless.decide.generate` prunes inside Hugging Face's ``generate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from doubtless.decide.budget import Mask
from doubtless.errors import InputError
from doubtless.forecast import Floats
from doubtless.neural.engine import Engine

Integers = np.ndarray[Any, np.dtype[np.int64]]

# Sources and beginnings of their translations to scores; the flag says that translations are unfinished.
Scorer = Callable[[Sequence[str], Sequence[str], bool], ArrayLike]

_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PIECE = re.compile(f"\\s*(?:[{_SPACELESS}]|[^\\s{_SPACELESS}]+)|\\s+$")


@dataclass(frozen=True)
class Plan:
    """When to look at unfinished candidates, and how many of them to keep.

    Parameters
    ----------
    at
        Shares of the expected length, increasing.
    keep
        Share of a source's unfinished candidates that go on after each look; at least one does. One number
        for all, or one each.
    fertility
        Length of a translation over that of its source, in tokens.

    Examples
    --------
    >>> plan = Plan(keep=(0.5,), fertility=1.1)
    >>> plan.looks([10, 40]).tolist()
    [[3, 6, 8], [11, 22, 33]]
    """

    at: tuple[float, ...] = (0.25, 0.5, 0.75)
    keep: tuple[float, ...] = (0.5, 0.5, 0.5)
    fertility: float = 1.0

    def __post_init__(self) -> None:
        if len(self.keep) == 1:
            object.__setattr__(self, "keep", self.keep * len(self.at))
        if len(self.keep) != len(self.at) or not self.at:
            raise InputError(
                f"{len(self.at)} looks at candidates need as many shares to keep, or one for all"
            )
        if (
            not all(0 < low < high for low, high in zip(self.at, self.at[1:], strict=False))
            or self.at[0] <= 0
        ):
            raise InputError("candidates are looked at when increasing shares of their length are there")
        if not all(0 < share <= 1 for share in self.keep):
            raise InputError("the share of candidates to keep lies above 0 and is at most 1")
        if not 0 < self.fertility < np.inf:
            raise InputError(f"fertility must be positive, found {self.fertility}")

    def looks(self, source_lengths: ArrayLike) -> Integers:
        """After how many tokens the candidates of each source are looked at: (sources, looks)."""
        lengths = np.asarray(source_lengths, dtype=np.float64)[:, None] * self.fertility
        return np.maximum(np.round(lengths * np.array(self.at)), 1).astype(np.int64)

    @property
    def kept(self) -> float:
        """The share of candidates that is left after all looks."""
        return prod(self.keep)


def fertility(source_lengths: ArrayLike, target_lengths: ArrayLike) -> float:
    """Length of translations over that of their sources: the ratio of the sums.

    >>> fertility([10, 20], [12, 21])
    1.1
    """
    total = float(np.sum(source_lengths))
    if total <= 0:
        raise InputError("fertility cannot be estimated from empty sources")
    return float(np.sum(target_lengths)) / total


def survivors(scores: ArrayLike, source: ArrayLike, keep: float) -> Mask:
    """Mark the best share of each source's candidates, rounded up; of equal ones the first.

    >>> survivors([0.3, 0.9, 0.5, 0.1], [0, 0, 0, 1], 0.5).tolist()
    [False, True, True, True]
    """
    values, group = np.asarray(scores, dtype=np.float64), np.asarray(source)
    _, code, count = np.unique(group, return_inverse=True, return_counts=True)
    order = np.lexsort((np.arange(len(values)), -values, code))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    place = np.empty(len(values), dtype=np.int64)
    place[order] = np.arange(len(values)) - first[code[order]]
    return place < np.ceil(keep * count[code] - 1e-9)


def engine_scorer(engine: Engine, lp: str | None = None) -> Scorer:
    """Score with a model that was trained on unfinished translations, as the bundled one.

    >>> scorer = engine_scorer(open_engine(), "zh-en")  # doctest: +SKIP
    """

    def scorer(sources: Sequence[str], translations: Sequence[str], unfinished: bool) -> Floats:
        texts = {"src": sources, "mt": translations, "lp": [lp or ""] * len(sources)}
        return engine.score(texts, partial=unfinished).score

    return scorer


def pieces(text: str) -> list[str]:
    """Cut a text into words, or characters where a script has no spaces; joined they are the text again.

    >>> pieces("Hi there, 世界")
    ['Hi', ' there,', ' 世', '界']
    """
    return _PIECE.findall(text)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Whole candidates with the scores of their beginnings, on which any share to keep can be played through.

    Parameters
    ----------
    source
        The source of each candidate, as a number.
    length
        Tokens of each candidate.
    looks
        Tokens that are there at each look: (looks, candidates).
    partial
        Scores at each look: (looks, candidates).
    final
        Scores of the whole candidates.
    """

    source: Integers
    length: Integers
    looks: Integers
    partial: Floats
    final: Floats


def record(
    sources: Sequence[str],
    candidates: Sequence[Sequence[str]],
    scorer: Scorer,
    plan: Plan,
    cut: Callable[[str], list[str]] = pieces,
) -> Recorded:
    """Score candidates that were recorded whole, and their beginnings at each look.

    Parameters
    ----------
    sources, candidates
        Texts, and the translations of each.
    scorer
        See :func:`engine_scorer`.
    plan
        Says when to look.
    cut
        Cuts a text into tokens that give the text again when they are joined.

    Examples
    --------
    >>> made = record(["a b c d"], [["A B C D", "X"]], lambda src, mt, partial: [len(x) for x in mt], Plan())
    >>> made.partial.tolist()
    [[1.0, 1.0], [3.0, 1.0], [5.0, 1.0]]
    """
    rows = np.repeat(np.arange(len(sources)), [len(texts) for texts in candidates])
    tokens = [cut(text) for texts in candidates for text in texts]
    length = np.array([len(token) for token in tokens])
    looks = plan.looks([len(cut(source)) for source in sources])[rows].T
    given = [sources[row] for row in rows.tolist()]
    final = np.asarray(scorer(given, ["".join(token) for token in tokens], False), dtype=np.float64)
    partial = np.empty(looks.shape)
    for number, look in enumerate(looks):
        # What is finished is not marked as unfinished.
        partial[number] = final
        cut_off = np.flatnonzero(length > look)
        if len(cut_off):
            begun = ["".join(tokens[row][: look[row]]) for row in cut_off]
            partial[number, cut_off] = scorer([given[row] for row in cut_off], begun, True)
    return Recorded(rows, length, looks, partial, final)


@dataclass(frozen=True, eq=False)
class Replayed:
    """What a plan would have chosen and generated.

    ``chosen`` is the candidate of each source; ``tokens`` counts what was generated of all candidates.
    """

    chosen: Integers
    tokens: int
    left: Mask


def replay(recorded: Recorded, keep: Sequence[float], by: Floats | None = None) -> Replayed:
    """Play through what would be generated and chosen if these shares were kept.

    Candidates that are finished at a look cost nothing more and stay; the others are ranked among themselves.
    The final choice is the best score of what is left.

    Parameters
    ----------
    recorded
        Made by :func:`record`.
    keep
        Share to keep at each look.
    by
        Scores to rank by instead of those recorded, (looks, candidates): for comparisons.

    Examples
    --------
    >>> source, length = np.array([0, 0]), np.array([4, 3])
    >>> made = Recorded(source, length, np.array([[2, 2]]), np.array([[0.9, 0.1]]), np.array([0.5, 0.7]))
    >>> replay(made, [0.5]).tokens, replay(made, [1.0]).tokens, replay(made, [1.0]).chosen.tolist()
    (6, 7, [1])
    """
    ranked = recorded.partial if by is None else by
    if len(keep) != len(ranked):
        raise InputError(f"{len(ranked)} looks at candidates need as many shares to keep")
    left = np.ones(len(recorded.length), dtype=bool)
    generated = recorded.length.copy()
    for look, scores, share in zip(recorded.looks, ranked, keep, strict=True):
        live = np.flatnonzero(left & (recorded.length > look))
        if len(live):
            dropped = live[~survivors(scores[live], recorded.source[live], share)]
            left[dropped] = False
            generated[dropped] = look[dropped]
    best = np.where(left, recorded.final, -np.inf)
    order = np.lexsort((np.arange(len(best)), -best, recorded.source))
    _, first = np.unique(recorded.source[order], return_index=True)
    return Replayed(order[first], int(generated.sum()), left)
