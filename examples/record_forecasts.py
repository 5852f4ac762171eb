"""Record five lexical metric scores for every translation in ``segments.tsv``.

Five metrics of one translation form a small "ensemble": their mean is a score, and their spread is a (weak)
notion of how uncertain that score is. Weak, because all five compare the same letters and words with the same
reference, so they tend to be wrong together.

The script reads ``segments.tsv`` and writes ``forecasts.tsv`` next to it: the same columns, then

chrf2, chrf4, chrf6
    chrF with character n-grams up to 2, 4 and 6, without words.
chrfpp
    chrF++: character n-grams up to 6 and word n-grams up to 2.
ter100
    100 minus the translation edit rate, clipped to 0..100.

All are sentence-level scores of ``mt`` against ``ref`` from 0 to 100, higher is better, with two decimals.
The recorded numbers come from sacrebleu 2.6.0 (``pip install sacrebleu==2.6.0``).

The column ``human`` holds the authors' own judgements (0 to 100), made for demonstration. They were written
together with the texts by a language model that worked on the project; no human annotators were asked.
"""

from __future__ import annotations

import csv
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import CHRF, TER

HERE = Path(__file__).resolve().parent
METRICS = {
    "chrf2": CHRF(char_order=2, word_order=0),
    "chrf4": CHRF(char_order=4, word_order=0),
    "chrf6": CHRF(char_order=6, word_order=0),
    "chrfpp": CHRF(char_order=6, word_order=2),
    "ter100": TER(),
}


def score(name: str, mt: str, ref: str) -> float:
    """Score one translation against its reference.

    Parameters
    ----------
    name
        A key of ``METRICS``.
    mt, ref
        The translation and the reference.

    Returns
    -------
    float
        From 0 to 100, higher is better.
    """
    value = float(METRICS[name].sentence_score(mt, [ref]).score)
    if name == "ter100":  # an error rate: turn it round; long outputs have rates above 100
        value = 100.0 - value
    return min(max(value, 0.0), 100.0)


def record(source: Path, target: Path) -> int:
    """Write the rows of ``source`` with their scores to ``target``; return the number of rows."""
    with source.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        columns = [*(reader.fieldnames or []), *METRICS]
        rows = list(reader)
    with target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(
            out, columns, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n"
        )
        writer.writeheader()
        for row in rows:
            scores = {name: f"{score(name, row['mt'], row['ref']):.2f}" for name in METRICS}
            writer.writerow({**row, **scores})
    return len(rows)


if __name__ == "__main__":
    count = record(HERE / "segments.tsv", HERE / "forecasts.tsv")
    print(f"recorded {count} rows with sacrebleu {sacrebleu.__version__}")
