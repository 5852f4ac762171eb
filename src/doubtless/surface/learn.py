"""What is learnt of a language pair from judged and corrected translations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from doubtless.gp.lexicon import translations
from doubtless.gp.ngrams import Sentences
from doubtless.surface.features import LEAST, likeliest, of_count, of_probability
from doubtless.surface.table import Keys, Table, keys
from doubtless.surface.units import NOTHING, Codes, Units
from doubtless.warp import Floats

Entries = tuple[Keys, Floats]

_DOUBT = 0.5  # occurrences by which those of a unit are thought too many
_PRIOR_ALONE, _PRIOR_PAIR = 5.0, 3.0  # occurrences that the usual rate counts as
_TWICE = 2  # occurrences from which on pairs of units are kept


def learn(lp: str, rows: pl.DataFrame) -> list[Entries]:
    """Entries of a table for a pair, from rows as MLQE-PE has them.

    These are ``src``, ``mt`` and its post-edit ``pe``, and ``mt_tok``, ``mt_tags``, ``src_tok`` and
    ``src_tags``, the tokens of both with their tags OK and BAD.
    """
    source, edited = Units.of(rows["src"]), Units.of(rows["pe"])
    entries = [
        _lexicon(f"{lp} forth", source, edited),
        _lexicon(f"{lp} back", edited, source),
        *_counts(f"{lp} source", source),
        *_counts(f"{lp} target", edited),
    ]
    so_far = Table.of(entries)
    words, wrong = _tagged(rows["mt_tok"], rows["mt_tags"])
    _, partner = likeliest(so_far, f"{lp} forth", source, words)
    entries += _rates(f"{lp} wrong", words.codes, None, wrong)
    entries += _rates(f"{lp} wrong pair", words.codes, partner, wrong)
    words, lost = _tagged(rows["src_tok"], rows["src_tags"])
    return entries + _rates(f"{lp} lost", words.codes, None, lost)


def _lexicon(kind: str, left: Units, right: Units) -> Entries:
    """Probabilities of right units as translations of left ones."""
    left_codes, left_numbers, seen = np.unique(left.codes, return_inverse=True, return_counts=True)
    right_codes, right_numbers = np.unique(right.codes, return_inverse=True)
    # IBM model 1 asks for the lengths and owners of sentences only.
    nothing = pl.Series([], dtype=pl.String)
    source, target = (Sentences(nothing, side.owner, side.count) for side in (left, right))
    s, t, probability = translations(source, target, left_numbers, right_numbers)
    # What a rare unit is translated by has been seen too seldom to be sure of.
    occurrences = np.append(seen, left.count)[s]
    probability = probability * occurrences / (occurrences + _DOUBT)
    kept = probability > LEAST
    codes = np.append(left_codes, np.uint64(NOTHING))[s[kept]]
    return keys(kind, codes, right_codes[t[kept]]), of_probability(probability[kept])


def _counts(kind: str, side: Units) -> list[Entries]:
    """How often units occur, alone and one after another."""
    codes, count = np.unique(side.codes, return_counts=True)
    both, together = np.unique(keys(f"{kind} pair", side.codes, side.before), return_counts=True)
    often = together >= _TWICE
    return [
        (keys(kind, codes), of_count(count.astype(np.float64))),
        (both[often], of_count(together[often].astype(np.float64))),
    ]


def _tagged(tokens: pl.Series, tags: pl.Series) -> tuple[Units, Floats]:
    """The units of tokenized texts, and whether each is of a token that is tagged BAD."""
    lists = tokens.str.split(" ")
    flat, labels = lists.explode(), tags.explode()
    row = np.repeat(np.arange(len(tokens)), lists.list.len().to_numpy())
    bad = (labels == "BAD").fill_null(False).to_numpy()
    units = Units.of(flat)
    return Units(units.codes, row[units.owner], len(tokens)), bad[units.owner].astype(np.float64)


def _rates(kind: str, first: Codes, second: Codes | None, wrong: Floats) -> list[Entries]:
    """How often units were wrong, drawn to the usual rate the more the rarer they are."""
    usual = float(wrong.mean())
    prior = _PRIOR_ALONE if second is None else _PRIOR_PAIR
    found, place, count = np.unique(
        keys(kind, first, NOTHING if second is None else second), return_inverse=True, return_counts=True
    )
    rate = (np.bincount(place, wrong) + prior * usual) / (count + prior)
    kept = count >= (1 if second is None else _TWICE)
    always = (keys(kind, np.array([NOTHING], dtype=np.uint64)), np.array([usual]))
    return [always, (found[kept], rate[kept])]


def table_of(parts: Sequence[list[Entries]]) -> Table:
    """One table for several pairs."""
    return Table.of([entry for part in parts for entry in part])
