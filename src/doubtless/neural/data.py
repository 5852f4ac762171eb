"""Segments to batches. Tokens are made once; what a batch holds is a pure function of seed and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.encoder import batch_of
from doubtless.neural.model import Batch, State
from doubtless.neural.tokens import Tokenized, Tokens

if TYPE_CHECKING:
    from doubtless.neural.cache import States

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

SHARES = (0.25, 0.5, 0.75, 1.0)
NO_LABEL = -100
_POOL = 50  # batches whose rows are sorted by length together


@dataclass(frozen=True, eq=False)
class Rows:
    """Segments with their tokens.

    ``texts`` holds each distinct text once and ``which`` says, by name, which of them each row has;
    ``labels`` belong to the tokens of each row's translation, ``auxiliary`` has a line a row and a column for
    each further number that is learnt (NaN: not known); ``groups`` those that figures are averaged over.
    """

    texts: Sequence[Tokenized]
    which: Mapping[str, Ints]
    human: Floats
    score: Floats | None = None
    labels: Sequence[Sequence[int]] | None = None
    fertility: Floats | None = None
    auxiliary: Floats | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.human)

    @property
    def target(self) -> Floats:
        """What is learnt: the human score, for error models the distance of the other score from it."""
        return self.human if self.score is None else np.abs(self.score - self.human)

    def scaled(self, mean: float, sd: float) -> Rows:
        """Human scores, and the other model's, in deviations from a mean."""
        score = None if self.score is None else (self.score - mean) / sd
        return replace(self, human=(self.human - mean) / sd, score=score)

    def digest(self) -> str:
        """Sixteen hex digits of all that training sees."""
        digest = sha256(repr([text.ids for text in self.texts]).encode())
        for name in sorted(self.which):
            digest.update(name.encode() + self.which[name].tobytes())
        for numbers in (self.human, self.score, self.fertility, self.auxiliary):
            digest.update(b"-" if numbers is None else numbers.tobytes())
        digest.update(repr(self.labels).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Layout:
    """Token sequences, each distinct one once, and which of them a row consists of.

    ``rows`` has one line a segment and one column a pass of a joint model; ``first`` counts the tokens of
    a sequence that belong to the translation, ``lengths`` those of the longest sequence of each row.
    """

    sequences: Sequence[Sequence[int]]
    rows: Mapping[str, Ints]
    first: Ints
    lengths: Ints

    @property
    def width(self) -> int:
        """Sequences a row has."""
        return sum(index.shape[1] for index in self.rows.values())


@dataclass(frozen=True)
class Examples:
    """A batch with its targets: token sequences, or their states at the layer that was cached."""

    start: Batch | State
    human: Tensor
    score: Tensor | None = None
    labels: Tensor | None = None
    auxiliary: Tensor | None = None

    def to(self, device: torch.device) -> Examples:
        """The same on a device."""
        return _moved(self, device)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, Examples | Batch | State):
        return replace(value, **{name: _moved(item, device) for name, item in vars(value).items()})
    return value


def token_labels(text: Tokenized, marks: Sequence[int]) -> list[int]:
    """The label of each token: the worst (last in the list of tags) of its characters."""
    worst = [max(marks[start:end], default=-1) for start, end in text.offsets]
    return [NO_LABEL if label < 0 else label for label in worst]


def rows_of(frame: pl.DataFrame, config: ModelConfig, tokens: Tokens) -> Rows:
    """Tokenize the texts of segments, each distinct one once."""
    names: list[str] = [name for name in ("mt", "src", "ref") if name in frame.columns]
    texts = pl.concat([frame[name] for name in names]).unique(maintain_order=True)
    place = {text: i for i, text in enumerate(texts)}
    made = tokens.encode(texts.to_list())
    which = {name: np.array([place[text] for text in frame[name]], dtype=np.int64) for name in names}
    if "unfinished" in frame.columns:
        rows = np.flatnonzero(frame["unfinished"].fill_null(False).to_numpy())
        # A prefix may also be the whole translation of another row: it becomes a text of its own.
        began, number = np.unique(which["mt"][rows], return_inverse=True)
        which["mt"][rows] = len(made) + number
        made += [tokens.unfinished(made[i]) for i in began]
    labels = None
    if config.word_tags:
        labels = [token_labels(made[i], m) for i, m in zip(which["mt"], frame["marks"], strict=True)]
    kept = [replace(text, offsets=[]) for text in made]  # offsets are large, and only labels need them
    numbers = {
        name: frame[name].to_numpy() if name in frame.columns else None for name in ("score", "fertility")
    }
    human = frame["human"].to_numpy()
    extra = frame.select(config.auxiliary).to_numpy() if config.auxiliary else None
    groups = frame["group"].to_numpy() if "group" in frame.columns else None
    return Rows(kept, which, human, numbers["score"], labels, numbers["fertility"], extra, groups)


def prefix_shares(count: int, seed: int, epoch: int) -> Floats:
    """How much of each translation is shown in an epoch: a quarter, half, three quarters or all."""
    return np.random.default_rng([seed, epoch, 1]).choice(np.array(SHARES), count)


def prefix_lengths(rows: Rows, shares: Floats) -> Ints:
    """Tokens of each translation that are shown: a share of the source's tokens times fertility.

    All of it means the whole translation, however long: that is what the authors' code does.
    """
    inner = np.array([len(text.ids) - 2 for text in rows.texts], dtype=np.int64)
    fertility = 1.0 if rows.fertility is None else rows.fertility
    cut = np.maximum(1, (shares * fertility * inner[rows.which["src"]]).astype(np.int64))
    whole = inner[rows.which["mt"]]
    return np.where(shares >= 1, whole, np.minimum(cut, whole))


def lay_out(rows: Rows, config: ModelConfig, tokens: Tokens, shares: Floats | None = None) -> Layout:
    """Make the sequences of every row, of prefixes of the translations if shares are given."""
    cuts = None if shares is None else prefix_lengths(rows, shares)
    joint = config.inputs == "joint"
    wanted = {"joint": config.passes} if joint else {name: ((name,),) for name in config.texts}
    places: dict[tuple[int, ...], int] = {}
    sequences: list[Sequence[int]] = []
    first: list[int] = []
    found = {name: np.zeros((len(rows), len(passes)), dtype=np.int64) for name, passes in wanted.items()}
    for name, passes in wanted.items():
        for number, parts in enumerate(passes):
            for row in range(len(rows)):
                cut = int(cuts[row]) if cuts is not None and "mt" in parts else -1
                key = (cut, *(int(rows.which[part][row]) for part in parts))
                if key not in places:
                    places[key] = len(sequences)
                    texts = [rows.texts[i] for i in key[1:]]
                    if 0 <= cut < len(texts[0].ids) - 2:
                        texts[0] = tokens.unfinished(prefix(texts[0], cut))  # the translation comes first
                    made = tokens.join(texts) if joint else None
                    sequences.append(texts[0].ids if made is None else made.ids)
                    first.append(len(texts[0].ids) if made is None else min(made.first, len(made.ids)))
                found[name][row, number] = places[key]
    sizes = np.array([len(sequence) for sequence in sequences])
    lengths = np.max([sizes[index].max(axis=1) for index in found.values()], axis=0)
    return Layout(sequences, found, np.array(first), lengths)


def prefix(text: Tokenized, count: int) -> Tokenized:
    """The first ``count`` tokens of a text between its special ones."""
    return replace(text, ids=[*text.ids[: count + 1], text.ids[-1]])


def batches(layout: Layout, seed: int, epoch: int, size: int | None, tokens: int | None) -> list[Ints]:
    """Cut the rows into batches of similar length, in an order that depends on seed and epoch only.

    Rows are shuffled, sorted by length within pools of some fifty batches and cut; then the batches are
    shuffled. Sorting all rows at once would put the same rows together in every epoch.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(layout.lengths))
    typical = size or max(1, (tokens or 1) // max(1, int(layout.lengths.mean()) * layout.width))
    found: list[Ints] = []
    for start in range(0, len(order), _POOL * typical):
        pool = order[start : start + _POOL * typical]
        found += cut(layout, pool[np.argsort(layout.lengths[pool], kind="stable")], size, tokens)
    return [found[i] for i in random.permutation(len(found))]


def cut(layout: Layout, order: Ints, size: int | None, tokens: int | None) -> list[Ints]:
    """Cut rows in a given order into batches of so many rows, or of at most so many tokens with padding."""
    found, begin, longest = [], 0, 0
    for end, row in enumerate(order):
        longest = max(longest, int(layout.lengths[row]))
        count = end + 1 - begin
        full = count > size if size else count * layout.width * longest > (tokens or 0)
        if full and count > 1:
            found.append(order[begin:end])
            begin, longest = end, int(layout.lengths[row])
    return [*found, order[begin:]]


def grouped(found: list[Ints], accumulation: int, processes: int = 1) -> list[list[Ints]]:
    """Batches of each step of the optimiser, as many for each process: the last step may repeat some."""
    size = accumulation * processes
    groups = [found[i : i + size] for i in range(0, len(found), size)]
    missing = -len(groups[-1]) % processes
    groups[-1] = groups[-1] + [found[i % len(found)] for i in range(missing)]
    return groups


def assemble(rows: Rows, layout: Layout, index: Ints, padding: int, states: States | None = None) -> Examples:
    """Make the batch of some rows; each pass of a joint model is a segment of its own."""
    parts = {name: places[index].ravel() for name, places in layout.rows.items()}
    used, place = np.unique(np.concatenate(list(parts.values())), return_inverse=True)
    split = np.split(place, np.cumsum([len(part) for part in parts.values()])[:-1])
    where = {name: torch.from_numpy(part) for name, part in zip(parts, split, strict=True)}
    start: Batch | State
    if states is None:
        ids, mask = batch_of([layout.sequences[i] for i in used], padding)
        start = Batch(ids, mask, where)
    else:
        start = states.start(used, where)
    passes = len(next(iter(parts.values()))) // len(index)

    def numbers(values: Floats) -> Tensor:
        return torch.from_numpy(np.repeat(values[index], passes)).float()

    labels = None
    if rows.labels is not None:
        width = start.mask.shape[1]
        labels = torch.full((len(index) * passes, width), NO_LABEL, dtype=torch.long)
        for line, (row, sequence) in enumerate(zip(np.repeat(index, passes), parts["joint"], strict=True)):
            known = rows.labels[int(row)][: int(layout.first[sequence]) - 1]
            labels[line, : len(known)] = torch.tensor(known, dtype=torch.long)
    score = None if rows.score is None else numbers(rows.score)
    extra = None
    if rows.auxiliary is not None:
        extra = torch.stack([numbers(column) for column in rows.auxiliary.T])
    return Examples(start, numbers(rows.target), score, labels, extra)


def spread_of(rows: Rows) -> tuple[float, float]:
    """Mean and deviation of the human scores."""
    mean, sd = float(rows.human.mean()), float(rows.human.std())
    if sd == 0:
        raise InputError("all human scores are equal: there is nothing to learn")
    return mean, sd
