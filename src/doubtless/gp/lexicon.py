"""How many translations a word has: a lexical table from IBM model 1 (Brown et al. 1993)."""

from __future__ import annotations

import numpy as np

from doubtless.gp.ngrams import Ints, Sentences
from doubtless.warp import Floats

# Sentence pairs with more word pairs than this are left out: they are rare and cost most.
_LONGEST = 100 * 100
# With more word pairs in all (some 80 bytes each), only every second, third, … sentence pair is used.
_MOST_MEETINGS = 10_000_000
_ROUNDS = 5


def translations(
    source: Sentences, target: Sentences, source_numbers: Ints, target_numbers: Ints
) -> tuple[Ints, Ints, Floats]:
    """Learn how probable each target word is as the translation of each source word.

    Parameters
    ----------
    source, target
        A parallel corpus: sentence i of one is the translation of sentence i of the other.
    source_numbers, target_numbers
        A number for each token of each side.

    Returns
    -------
    source words, target words and probabilities
        One entry for each pair of words that meet in a sentence pair. The empty word is -1.

    Examples
    --------
    >>> import polars as pl
    >>> source = Sentences.of(pl.Series(["das haus", "das buch"]))
    >>> target = Sentences.of(pl.Series(["the house", "the book"]))
    >>> s, t, p = translations(source, target, np.array([0, 1, 0, 2]), np.array([0, 1, 0, 2]))
    >>> bool(p[(s == 1) & (t == 1)] > 0.6)  # haus, house
    True
    """
    left, right, token = _meetings(source, target, source_numbers, target_numbers)
    width = int(target_numbers.max(initial=0)) + 1
    pairs, place = np.unique((left + 1) * width + right, return_inverse=True)
    source_word, target_word = pairs // width, pairs % width
    probability = np.full(len(pairs), 1.0)
    for _ in range(_ROUNDS):
        share = probability[place]
        share /= np.bincount(token, weights=share)[token]
        expected = np.bincount(place, weights=share, minlength=len(pairs))
        probability = expected / np.bincount(source_word, weights=expected)[source_word]
    return source_word - 1, target_word, probability


def _meetings(
    source: Sentences, target: Sentences, source_numbers: Ints, target_numbers: Ints
) -> tuple[Ints, Ints, Ints]:
    """Every source token, and the empty word, beside every target token of its sentence pair.

    Returns numbers of source words, of target words, and which target token is meant.
    """
    meetings = (source.lengths + 1) * target.lengths
    usable = meetings <= _LONGEST
    step = -(-int(meetings[usable].sum()) // _MOST_MEETINGS)
    usable[usable] = np.arange(int(usable.sum())) % max(step, 1) == 0
    tokens = np.flatnonzero(usable[target.owner])
    owner = target.owner[tokens]
    repeats = source.lengths[owner] + 1
    starts = np.cumsum(source.lengths) - source.lengths
    # The place of each source token in its sentence; the first is the empty word.
    within = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    place = np.repeat(starts[owner], repeats) + within - 1
    numbers = np.append(source_numbers, -1)  # so that the empty word may be looked up too
    left = np.where(within == 0, -1, numbers[place])
    right = np.repeat(target_numbers[tokens], repeats)
    return left, right, np.repeat(np.arange(len(tokens)), repeats)
