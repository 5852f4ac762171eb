"""The ONNX runtime: exported models on the processor, without PyTorch.

Sequences of one length go through together and the others apart. So nothing is padded, and what a row gets
depends neither on its neighbours nor on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import onnxruntime as ort

from doubtless.errors import InputError
from doubtless.neural.config import ModelConfig
from doubtless.neural.folder import Folder, damaged
from doubtless.neural.stepper import Array, TokenBatch
from doubtless.neural.weights import dequantised, mapped, table_rows

STEPS = "steps"
EMBEDDING = "encoder.model.embeddings."
_TABLE = f"{EMBEDDING}word_embeddings"

_GROUP_TOKENS = 256
"""Most tokens that go through a layer at once: its intermediate results stay in the processor's cache."""


def layer_prefix(number: int) -> str:
    """Where the weights of a layer (counted from 1) are."""
    return f"encoder.model.encoder.layer.{number - 1}."


def head_prefix(number: int) -> str:
    """Where the weights of a head (counted from 0) are."""
    return f"heads.{number}."


@dataclass(frozen=True)
class _Group:
    """Texts of one length on their way: which they are, their tokens, and how these are pooled.

    Of models that start again from the embeddings, also these (``again``) and, from then on, what had been
    pooled before (``earlier``).
    """

    texts: Array
    hidden: Array
    shares: Array
    words: Array | None = None
    again: Array | None = None
    earlier: Array | None = None

    def keep(self, chosen: Array, texts: Array) -> _Group:
        """Some of the texts, under new numbers."""
        return _Group(texts, **{name: array[chosen] for name, array in self.arrays.items()})

    def restarted(self) -> _Group:
        """The same texts, at their embeddings again."""
        assert self.again is not None
        return replace(self, hidden=self.again, again=None, earlier=self.pooled())

    def pooled(self) -> Array:
        """The vectors of each text (texts, vectors, size)."""
        found: Array = self.shares @ self.hidden
        return found

    @property
    def arrays(self) -> dict[str, Array]:
        """What there is of each text."""
        names = ("hidden", "shares", "words", "again", "earlier")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def nbytes(self) -> int:
        """The memory of its arrays."""
        # Some of them may be the same.
        return sum({id(array): array.nbytes for array in self.arrays.values()}.values())


@dataclass(frozen=True)
class _Running:
    """Texts at a layer, and for each segment the number of its text."""

    layer: int
    groups: tuple[_Group, ...]
    rows: Array


class OnnxStepper:
    """An exported model as a stepper.

    Parameters
    ----------
    folder
        A model folder with steps (:func:`doubtless.neural.export.export`).
    threads
        How many groups of texts are run at a time; None: as many as there are processors.
    """

    def __init__(self, folder: Folder, threads: int | None = None) -> None:
        if folder.steps is None:
            raise InputError(f"{folder.path}: the model was not exported for ONNX Runtime")
        self.folder, self.config = folder, folder.config
        self.threads = threads or _processors()
        try:
            self.exits = tuple(int(layer) for layer in folder.steps["exits"])
            self.word_layer = folder.steps["word_layer"]
            self._fingerprint = str(folder.steps["fingerprint"])
            self._weights = mapped(folder.weights)
            self._sessions: dict[str, tuple[ort.InferenceSession, Mapping[str, Array]]] = {}
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise damaged(folder.path, error) from None

    @property
    def depth(self) -> int:
        """The last layer that is needed."""
        return self.exits[-1]

    def fingerprint(self) -> str:
        """Eight hex digits of the weights and the configuration."""
        return self._fingerprint

    def start(self, batch: TokenBatch) -> _Running:
        """Embed a batch."""
        embed = self._session("embedding", EMBEDDING, floats=True, without=_TABLE)

        def embedded(group: tuple[Array, Array]) -> _Group:
            texts, ids = group
            (hidden,) = embed.run(["hidden"], {"ids": ids, "words": self._words(ids)})
            return _Group(
                texts,
                hidden,
                shares_of(self.config, ids),
                words=hidden if self.word_layer == 0 else None,
                again=hidden if self.config.restart else None,
            )

        groups = self._each(embedded, list(equal_lengths(batch.sequences)))
        return _Running(0, tuple(groups), batch.rows["joint"])

    def _words(self, ids: Array) -> Array:
        """Rows of the table of embeddings."""
        return table_rows(self._weights[f"{_TABLE}.weight"], self._weights.get(f"{_TABLE}.scale"), ids)

    def advance(self, state: _Running, to_layer: int) -> _Running:
        """Run the layers up to ``to_layer``."""
        layers = range(state.layer + 1, to_layer + 1)
        # Sessions are made here and not by the threads that use them.
        sessions = {number: self._session("layer", layer_prefix(number)) for number in layers}

        def advanced(group: _Group) -> _Group:
            for number, session in sessions.items():
                if 0 < self.config.restart == number - 1:
                    group = group.restarted()
                (hidden,) = session.run(["next"], {"hidden": group.hidden})
                group = replace(
                    group, hidden=hidden, words=hidden if number == self.word_layer else group.words
                )
            return group

        return replace(state, layer=to_layer, groups=tuple(self._each(advanced, state.groups)))

    def read(self, state: _Running) -> dict[str, Array]:
        """Outputs of the segments at the current layer."""
        # Pooled here, so that the head is run once for all texts and not once for each length.
        found = self._outputs(state.layer, [group.pooled() for group in state.groups])
        share = self.config.own_share(state.layer, self.depth)
        if share < 1:
            earlier = [group.earlier for group in state.groups if group.earlier is not None]
            before = self._outputs(self.config.restart, earlier)
            found = {name: share * values + (1 - share) * before[name] for name, values in found.items()}
        order = np.argsort(np.concatenate([group.texts for group in state.groups]))[state.rows]
        return {name: values[order] for name, values in found.items()}

    def _outputs(self, layer: int, pooled: Sequence[Array]) -> dict[str, Array]:
        """What the head of an exit gives to the texts of all groups, in the order of these."""
        number = self.exits.index(layer) if self.config.heads == "each" else 0
        head = self._session("head", head_prefix(number), floats=True)
        names = [output.name for output in head.get_outputs()]
        vectors = np.concatenate(pooled)
        as_they_are = np.tile(np.eye(vectors.shape[1], dtype=np.float32), (len(vectors), 1, 1))
        found = head.run(names, {"hidden": vectors, "shares": as_they_are})
        return dict(zip(names, found, strict=True))

    def read_words(self, state: _Running) -> Array:
        """Probabilities of the tags of each token (segments, tokens, tags); zeros beyond a text's end."""
        if state.layer < self.word_layer:
            state = self.advance(state, self.word_layer)
        tagger = self._session("tagger", "tagger.", floats=True)

        def tags(group: _Group) -> Array:
            (found,) = tagger.run(["tags"], {"hidden": group.words})
            return found

        longest = max(group.hidden.shape[1] for group in state.groups)
        texts = sum(len(group.texts) for group in state.groups)
        whole = np.zeros((texts, longest, len(self.config.word_tags)), dtype=np.float32)
        for group, found in zip(state.groups, self._each(tags, state.groups), strict=True):
            whole[group.texts, : found.shape[1]] = found
        return whole[state.rows]

    def keep(self, state: _Running, rows: Array) -> _Running:
        """Go on with some of the segments only."""
        used, kept = np.unique(state.rows[rows], return_inverse=True)
        groups = []
        for group in state.groups:
            chosen = np.isin(group.texts, used)
            if chosen.any():
                groups.append(group.keep(chosen, np.searchsorted(used, group.texts[chosen])))
        return replace(state, groups=tuple(groups), rows=kept)

    def split(self, state: _Running) -> list[_Running]:
        """Each segment as a state of its own, which holds no memory of the others."""
        only = np.zeros(1, dtype=np.int64)
        alone = {
            text: replace(state, groups=(group.keep(np.array([place]), only),), rows=only)
            for group in state.groups
            for place, text in enumerate(group.texts.tolist())
        }
        return [alone[text] for text in state.rows.tolist()]

    def join(self, states: Sequence[_Running]) -> _Running:
        """The segments of several states of one layer, one after another, as one state."""
        counts = [sum(len(group.texts) for group in state.groups) for state in states]
        before = np.cumsum([0, *counts[:-1]])
        groups = [
            replace(group, texts=group.texts + count)
            for state, count in zip(states, before.tolist(), strict=True)
            for group in state.groups
        ]
        rows = np.concatenate([state.rows + count for state, count in zip(states, before, strict=True)])
        return replace(states[0], groups=tuple(_merged(groups)), rows=rows)

    def held(self, state: _Running) -> int:
        """How many bytes a state holds."""
        return sum(group.nbytes for group in state.groups)

    def _each(self, step: Callable[[Any], Any], groups: Any) -> list[Any]:
        """Do a step for each group, some at a time."""
        if self.threads == 1 or len(groups) == 1:
            return [step(group) for group in groups]
        return list(self._pool.map(step, groups))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads)

    def _session(
        self, name: str, prefix: str, *, floats: bool = False, without: str | None = None
    ) -> ort.InferenceSession:
        """The session of a step with the weights below a prefix, as they are stored or as floats."""
        if prefix not in self._sessions:
            weights = {k: v for k, v in self._weights.items() if k.startswith(prefix)}
            if without is not None:
                weights = {k: v for k, v in weights.items() if not k.startswith(without)}
            weights = dequantised(weights) if floats else weights
            try:
                graph = (self.folder.path / STEPS / f"{name}.onnx").read_bytes()
                named = {k.removeprefix(prefix): v for k, v in weights.items()}
                # The weights are kept because the session refers to their memory.
                self._sessions[prefix] = _session_of(graph, named), named
                self._weights.give_back()
            except Exception as error:  # whatever ONNX Runtime throws
                raise damaged(self.folder.path, error) from None
        return self._sessions[prefix][0]


def _session_of(graph: bytes, weights: Mapping[str, Array]) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # Groups run in parallel, not operators: these are short, and waiting for each other would cost more.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # The graphs are written as they should run, and shapes vary.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    _share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options.add_external_initializers(list(weights), values)
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@cache
def _share_memory() -> None:
    """Let all sessions take memory for intermediate results from one place, and not from one each."""
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    exactly, unbounded = 1, -1
    # A process has one; if somebody else has made it already, it is theirs that serves.
    with suppress(RuntimeError):
        ort.create_and_register_allocator(place, ort.OrtArenaCfg(0, exactly, unbounded, unbounded))


def equal_lengths(sequences: Any) -> Iterator[tuple[Array, Array]]:
    """Group sequences by length, few enough to stay in the cache: their numbers and their tokens.

    >>> [(numbers.tolist(), ids.shape) for numbers, ids in equal_lengths([[0, 5, 2], [0, 2], [0, 7, 2]])]
    [([0, 2], (2, 3)), ([1], (1, 2))]
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    for length in sorted(set(lengths.tolist()), reverse=True):
        numbers = np.flatnonzero(lengths == length)
        for part in np.array_split(numbers, -(-len(numbers) * length // _GROUP_TOKENS)):
            if len(part):
                yield part, np.array([sequences[i] for i in part], dtype=np.int64)


def _merged(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Put groups of one length together, as long as they stay in the cache."""
    waiting: dict[int, list[_Group]] = {}
    for group in groups:
        length = group.hidden.shape[1]
        company = waiting.setdefault(length, [])
        if company and (sum(len(g.texts) for g in company) + len(group.texts)) * length > _GROUP_TOKENS:
            yield _together(company)
            company.clear()
        company.append(group)
    for company in waiting.values():
        yield _together(company)


def _together(groups: Sequence[_Group]) -> _Group:
    if len(groups) == 1:
        return groups[0]
    texts = np.concatenate([group.texts for group in groups])
    every = [group.arrays for group in groups]
    return _Group(texts, **{name: np.concatenate([one[name] for one in every]) for name in every[0]})


def shares_of(config: ModelConfig, ids: Array) -> Array:
    """How much of each token goes into each pooled vector (texts, vectors, tokens).

    >>> shares_of(ModelConfig(pooling="mean"), np.array([[0, 5, 2, 2]])).tolist()
    [[[0.25, 0.25, 0.25, 0.25]]]
    """
    if config.pooling == "cls":
        chosen = np.zeros((len(ids), 1, ids.shape[1]), dtype=bool)
        chosen[:, :, 0] = True
    elif config.pooling == "mean":
        chosen = np.ones((len(ids), 1, ids.shape[1]), dtype=bool)
    else:
        before = np.cumsum(ids == config.separator, axis=1) == 0
        chosen = np.stack([before, ~before], axis=1)
    return (chosen / chosen.sum(axis=2, keepdims=True)).astype(np.float32)


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
