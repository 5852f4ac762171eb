"""The 17 baseline features of QuEst (Specia et al. 2013), from raw text and a parallel corpus.

=====  ======================================================================================================
1001   tokens of the source
1002   tokens of the translation
1006   mean length of the source's tokens
1009   log probability of the source under a language model of the corpus
1012   log probability of the translation, likewise
1015   tokens of the translation a distinct token
1022   mean number of translations of a source token with a probability above 0.2 (IBM model 1)
1036   the same above 0.01, each divided by the token's frequency in the corpus
1046   share of the source's words in the rarest quarter of the corpus's words
1049   ... in the most frequent quarter
1050   the same for pairs of words: rarest quarter
1053   ... most frequent quarter
1054   the same for triples: rarest quarter
1057   ... most frequent quarter
1058   share of the source's words that the corpus knows
1074   punctuation marks of the source
1075   punctuation marks of the translation
=====  ======================================================================================================

Numbers are QuEst's. Its external tools are replaced by compact ones of our own, so that the values differ in
detail; what they measure is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.gp.lexicon import translations
from doubtless.gp.ngrams import Ints, NgramModel, Sentences
from doubtless.warp import Floats

NAMES = tuple(
    f"quest{number}"
    for number in (
        *(1001, 1002, 1006, 1009, 1012, 1015, 1022, 1036),
        *(1046, 1049, 1050, 1053, 1054, 1057, 1058, 1074, 1075),
    )
)
_PUNCTUATION = r"\p{P}"
_LIKELY, _POSSIBLE = 0.2, 0.01


@dataclass(frozen=True, eq=False)
class Quest:
    """What the features need to know of a corpus: a resource, made once a language pair.

    Parameters
    ----------
    source, target
        Words and n-grams of both sides.
    likely, possible
        For each source word, how many translations have a probability above 0.2 and above 0.01.

    Examples
    --------
    >>> quest = Quest.train(pl.Series(["das haus", "ein haus"]), pl.Series(["the house", "a house"]))
    >>> features = quest.features(pl.Series(["das haus !"]), pl.Series(["the house !"]))
    >>> features.shape
    (1, 17)
    >>> features[0, :3]  # tokens of both, mean length
    array([3.        , 3.        , 2.66666667])
    """

    source: NgramModel
    target: NgramModel
    likely: Ints
    possible: Ints

    @classmethod
    def train(cls, source: pl.Series, target: pl.Series) -> Quest:
        """Learn from a parallel corpus."""
        left, right = Sentences.of(source), Sentences.of(target)
        if not len(left.words) or not len(right.words):
            raise InputError("the corpus holds no words")
        source_model, target_model = NgramModel.train(left), NgramModel.train(right)
        words, _, probability = translations(
            left, right, source_model.numbers(left.words), target_model.numbers(right.words)
        )
        counts = [
            np.bincount(words[(words >= 0) & (probability > least)], minlength=len(source_model.words))
            for least in (_LIKELY, _POSSIBLE)
        ]
        return cls(source_model, target_model, counts[0], counts[1])

    def features(self, source: pl.Series, translation: pl.Series) -> Floats:
        """Compute the features, one row a segment, columns in the order of ``NAMES``."""
        left, right = Sentences.of(source), Sentences.of(translation)
        numbers = self.source.numbers(left.words)
        frequency, _ = self.source.frequencies(left, 1)
        likely, possible = (np.append(table, 0)[numbers] for table in (self.likely, self.possible))
        columns = [
            left.lengths,
            right.lengths,
            left.mean(left.words.str.len_chars().to_numpy().astype(np.float64)),
            self.source.log10_probability(left),
            self.target.log10_probability(right),
            right.lengths / np.maximum(_distinct(right), 1),
            left.mean(likely.astype(np.float64)),
            left.mean(possible / np.maximum(frequency, 1)),
            *(share for n in (1, 2, 3) for share in self._outer_quarters(left, n)),
            left.mean((frequency > 0).astype(np.float64)),
            *(
                text.fill_null("").str.count_matches(_PUNCTUATION).to_numpy()
                for text in (source, translation)
            ),
        ]
        return np.stack(columns, axis=1).astype(np.float64)

    def _outer_quarters(self, sentences: Sentences, n: int) -> list[Floats]:
        """Shares of n-grams in the rarest and the most frequent quarter; what was never seen is in none."""
        counts, owner = self.source.frequencies(sentences, n)
        low, high = self.source.quartiles(n)
        total = np.maximum(np.bincount(owner, minlength=sentences.count), 1)
        parts = ((counts > 0) & (counts <= low), counts > high)
        return [np.bincount(owner, weights=part, minlength=sentences.count) / total for part in parts]

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a file."""
        sides = {"source": self.source, "target": self.target}
        found = {f"{side}_{name}": a for side, model in sides.items() for name, a in model.arrays().items()}
        return {**found, "likely": self.likely, "possible": self.possible}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Quest:
        """Make the resource again from :meth:`arrays`."""
        models = [
            NgramModel.from_arrays({k.removeprefix(side): a for k, a in arrays.items() if k.startswith(side)})
            for side in ("source_", "target_")
        ]
        return cls(models[0], models[1], arrays["likely"], arrays["possible"])


def _distinct(sentences: Sentences) -> Ints:
    """How many different tokens each sentence has."""
    pairs = pl.DataFrame({"owner": sentences.owner, "word": sentences.words}).unique()
    return np.bincount(pairs["owner"].to_numpy(), minlength=sentences.count)
