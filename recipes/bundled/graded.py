"""Good translations, spoilt by a known share of their words: what the bundled model learns from first.

``python recipes/bundled/graded.py --data DIR --rows 48000 --seed 7 -o WORK/graded.parquet``

Post-edits of MLQE-PE (CC0) and human translations of WMT20 (Apache-2.0) are good. Some of their words give
way to others that fit their neighbours, or to what machine translations had in place of such words elsewhere;
some are left out, added or moved, and some stretches come from other sentences. How many is known, and which:
so every row has a score, an HTER and tags that no annotator's taste has moved.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from random import Random

import polars as pl
from prepare import COLUMNS, LONGEST
from spacing import Spacing

from doubtless.neural.tagged import tagged

REFERENCES = ("en-cs", "en-de", "en-pl", "en-ru")
WAYS = {"fit": 0.42, "mistake": 0.2, "drop": 0.12, "add": 0.08, "swap": 0.03, "stretch": 0.1, "cut": 0.05}
UNTOUCHED, UNRELATED = 0.2, 0.06  # share of rows left as they are, and of those with another translation
MOST = 0.8  # share of words that is spoilt at most
BEST, WORST, BEND = 0.8, -1.8, 0.6  # score of a translation with no, and with only spoilt words, and between
TAGGED = 0.5  # share of rows that say which language the translation should be in
START, END = "<s>", "</s>"
TOKEN = re.compile(r"\w+(?:['’\-]\w+)*|[^\w\s]")


@dataclass
class Lexicon:
    """What is said in one language, and what machine translations had in place of it."""

    sentences: list[Sequence[str]] = field(default_factory=list)
    mistakes: dict[tuple[str, ...], list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    after: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    before: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def hear(self, sentence: Sequence[str]) -> None:
        """Take in which words stand beside which."""
        self.sentences.append(sentence)
        whole = [START, *sentence, END]
        for left, right in pairwise(whole):
            self.after[left][right] += 1
            self.before[right][left] += 1

    def compare(self, good: Sequence[str], machine: Sequence[str]) -> None:
        """Take in what a machine translation had instead of the words of its post-edit."""
        for change, start, end, first, last in SequenceMatcher(
            None, good, machine, autojunk=False
        ).get_opcodes():
            if change == "replace" and end - start <= 2 and last - first <= 3:
                self.mistakes[tuple(good[start:end])].append(list(machine[first:last]))

    def fitting(self, left: str, word: str, right: str, rng: Random) -> str:
        """Mostly another word that was seen between these two, sometimes after the first, else any word."""
        follows, leads = self.after[left], self.before[right]
        apt = {w: follows[w] * leads[w] for w in follows if w in leads and w != word and w.isalnum()}
        if len(apt) >= 2 and rng.random() < 0.85:
            return drawn(apt, rng)
        apt = {w: n for w, n in follows.items() if w != word and w.isalnum()}
        if len(apt) >= 2 and rng.random() < 0.7:
            return drawn(apt, rng)
        return rng.choice(rng.choice(self.sentences))


def drawn(counts: Mapping[str, int], rng: Random) -> str:
    """One of the words; frequent ones more often, but less so than they are frequent."""
    return rng.choices(list(counts), [count**0.5 for count in counts.values()])[0]


def spoilt(
    good: Sequence[str], share: float, lexicon: Lexicon, rng: Random
) -> tuple[list[str], list[str], float]:
    """A sentence with about this share of its words spoilt, a tag for each word, and the share.

    Words that were put in are BAD; those that are missing count for the share alone. An attempt that fails
    counts a little, so that there is an end to them.
    """
    words = [(word, "OK") for word in good]
    done = 0.0
    while done < share * len(good) and len(words) > 2:
        way = rng.choices(list(WAYS), list(WAYS.values()))[0]
        at = rng.randrange(len(words))
        word, tag = words[at]
        left = words[at - 1][0] if at else START
        right = words[at + 1][0] if at + 1 < len(words) else END
        if tag == "BAD" and rng.random() < 0.8:
            done += 0.05
        elif way == "fit":
            if word.isalnum():
                words[at] = (lexicon.fitting(left, word, right, rng), "BAD")
            done += 1 if word.isalnum() else 0.02
        elif way == "mistake":
            found = [n for n in (2, 1) if tuple(w for w, _ in words[at : at + n]) in lexicon.mistakes]
            if found:
                key = tuple(w for w, _ in words[at : at + found[0]])
                words[at : at + found[0]] = [(w, "BAD") for w in rng.choice(lexicon.mistakes[key])]
            done += found[0] if found else 0.02
        elif way == "drop":
            del words[at]
            done += 1
        elif way == "cut":
            size = min(rng.randint(2, 5), len(words) - 2)
            del words[at : at + size]
            done += size
        elif way == "add":
            words.insert(at, (lexicon.fitting(left, "", word, rng), "BAD"))
            done += 1
        elif way == "swap" and at + 1 < len(words):
            words[at], words[at + 1] = (right, "BAD"), (word, "BAD")
            done += 1.5
        elif way == "stretch":
            other = rng.choice(lexicon.sentences)
            size = rng.randint(3, 8)
            start = rng.randrange(max(1, len(other) - size))
            words[at : at + size] = [(w, "BAD") for w in other[start : start + size]]
            done += size
    return [word for word, _ in words], [tag for _, tag in words], min(1.0, int(done + 0.5) / len(good))


@dataclass
class Material:
    """Sources with good translations as tokens, by pair, and what is needed to spoil and to write them."""

    good: dict[str, list[tuple[str, list[str]]]] = field(default_factory=lambda: defaultdict(list))
    lexicons: dict[str, Lexicon] = field(default_factory=lambda: defaultdict(Lexicon))
    spacings: dict[str, Spacing] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Material:
        """From the data sets; nothing whose source is in MLQE-PE's dev or test20."""
        made = cls()
        rows = pl.read_parquet(folder / "mlqe_pe.parquet")
        train = rows.filter(pl.col("split") == "train").unique(["lp", "src", "mt"], maintain_order=True)
        train = train.join(rows.filter(pl.col("split") != "train"), on=["lp", "src"], how="anti")
        for (lp,), part in train.sort("lp", maintain_order=True).group_by("lp", maintain_order=True):
            made.add_post_edits(str(lp), part.select("src", "mt", "mt_tok", "pe").iter_rows())
        news = pl.read_parquet(folder / "wmt20_comet.parquet", columns=["lp", "src", "ref"])
        news = news.filter(pl.col("lp").is_in(REFERENCES) & (pl.col("src").str.len_chars() <= LONGEST))
        news = news.unique(maintain_order=True).sort("lp", maintain_order=True)
        for (lp,), part in news.group_by("lp", maintain_order=True):
            made.add_references(str(lp), list(part.select("src", "ref").iter_rows()))
        return made

    def add_post_edits(self, lp: str, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Source, machine translation, its tokens and those of its post-edit."""
        lexicon, spaced = self.lexicons[lp.split("-")[1]], []
        for src, text, machine, edited in rows:
            tokens, good = machine.split(), edited.split()
            spaced.append((text, tokens))
            lexicon.hear(good)
            lexicon.hear(tokens)
            lexicon.compare(good, tokens)
            if 4 <= len(good) <= 45:
                self.good[lp].append((src, good))
        self.spacings[lp] = Spacing.learn(spaced)

    def add_references(self, lp: str, rows: Sequence[tuple[str, str]]) -> None:
        """Source and human translation."""
        lexicon, tokens = self.lexicons[lp.split("-")[1]], [TOKEN.findall(text) for _, text in rows]
        self.spacings[lp] = Spacing.learn(zip([text for _, text in rows], tokens, strict=True))
        for (src, _), good in zip(rows, tokens, strict=True):
            lexicon.hear(good)
            if 4 <= len(good) <= 40:
                self.good[lp].append((src, good))

    def row(self, lp: str, src: str, good: list[str], rng: Random) -> tuple[object, ...]:
        """One training row of a good translation."""
        chance = rng.random()
        if chance < UNTOUCHED:
            words, tags, share = good, ["OK"] * len(good), 0.0
        elif chance < UNTOUCHED + UNRELATED:
            words = rng.choice(self.good[lp])[1]
            share = float(words != good)
            tags = ["BAD" if share else "OK"] * len(words)
        else:
            most = rng.random() ** 1.6 * MOST
            words, tags, share = spoilt(good, most, self.lexicons[lp.split("-")[1]], rng)
        spacing = self.spacings[lp]
        score = BEST - (BEST - WORST) * share**BEND
        text, tokens = spacing.write(words), " ".join(spacing.marks(words))
        return "graded", lp, src, text, score, share, None, tokens, tags, False


def main() -> None:
    """Write a table of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=48_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    rng, material = Random(given.seed), Material.read(given.data)
    good = [(lp, *pair) for lp, pairs in material.good.items() for pair in pairs]
    rows = [material.row(*one, rng) for one in rng.sample(good, given.rows)]
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row").with_columns(
        pl.col("human", "hter", "logprob").cast(pl.Float32)
    )
    said = [
        tagged(src, lp) if rng.random() < TAGGED else src for src, lp in table.select("src", "lp").iter_rows()
    ]
    table.with_columns(pl.Series("src", said)).write_parquet(given.output)


if __name__ == "__main__":
    main()
