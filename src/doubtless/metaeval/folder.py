"""The directory layout of the WMT metrics tasks (that of mt-metrics-eval), from a local folder.

    SET/sources/PAIR.txt                    a segment a line
    SET/documents/PAIR.docs                 DOMAIN DOCUMENT, a segment a line
    SET/references/PAIR.NAME.txt
    SET/system-outputs/PAIR/SYSTEM.txt
    SET/human-scores/PAIR.NAME.LEVEL.score  SYSTEM SCORE a line, system after system; None: no score
    SET/metric-scores/PAIR/NAME-REFERENCE.LEVEL.score

A level is ``seg`` or ``sys``. Files of scores alone can be read with :func:`read_scores`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from doubtless.errors import InputError
from doubtless.formats.files import named, opened
from doubtless.formats.text import decoded_lines, segments_of
from doubtless.formats.words import counted, listed, quoted
from doubtless.metaeval.grid import Grid
from doubtless.metaeval.pairs import Floats
from doubtless.segments import Table

Scores = dict[str, Floats]

_TEXT_FIELDS = {"sources": "source", "references": "target", "system-outputs": "hypothesis"}


def read_scores(path: str | os.PathLike[str]) -> Scores:
    """Read a ``.score`` file: ``SYSTEM SCORE`` a line, the scores of a system in the order of its segments.

    ``None`` is a missing score, and becomes NaN.
    """
    name = named(path)
    found: dict[str, list[float]] = {}
    with opened(path, name) as stream:
        for number, line in enumerate(decoded_lines(stream, name), start=1):
            cells = line.split()
            if len(cells) != 2:
                raise InputError(
                    f"{name}:{number}: {counted(len(cells), 'field')}, expected a system and a score"
                )
            try:
                score = float("nan") if cells[1] == "None" else float(cells[1])
            except ValueError:
                raise InputError(f"{name}:{number}: {quoted(cells[1])} is not a number") from None
            if np.isinf(score):
                raise InputError(f"{name}:{number}: {quoted(cells[1])} is not a finite number")
            found.setdefault(cells[0], []).append(score)
    if not found:
        raise InputError(f"{name}: the file holds no scores")
    return {system: np.array(scores) for system, scores in found.items()}


def write_scores(path: str | os.PathLike[str], scores: Mapping[str, Floats]) -> None:
    """Write a ``.score`` file, whole or not at all."""
    from doubtless.formats.files import replace_file

    lines = [
        f"{system}\t{'None' if np.isnan(value) else repr(float(value))}\n"
        for system, row in scores.items()
        for value in np.atleast_1d(row)
    ]
    replace_file(path, "".join(lines).encode())


@dataclass(frozen=True)
class PairFolder:
    """One language pair of a test set in a folder.

    Parameters
    ----------
    path
        The folder of the test set.
    pair
        The language pair, as in its file names.

    Attributes
    ----------
    left_out
        Metrics that could not be used, and why.
    """

    path: Path
    pair: str
    left_out: dict[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def source(self) -> list[str | None]:
        """The source segments."""
        return _texts(self.path / "sources", self.pair, "sources")

    @cached_property
    def references(self) -> dict[str, list[str | None]]:
        """The references by name."""
        return self._parallel(self.path / "references", f"{self.pair}.", "references")

    @cached_property
    def outputs(self) -> dict[str, list[str | None]]:
        """The translations by system."""
        return self._parallel(self.path / "system-outputs" / self.pair, "", "system-outputs")

    def _parallel(self, folder: Path, prefix: str, kind: str) -> dict[str, list[str | None]]:
        stems = sorted({f.stem for f in folder.glob(f"{prefix}*") if f.suffix in (".txt", ".jsonl")})
        texts = {stem.removeprefix(prefix): _texts(folder, stem, kind) for stem in stems}
        for name, lines in texts.items():
            if len(lines) != len(self.source):
                raise InputError(
                    f"{folder}: {quoted(name)} has {counted(len(lines), 'line')},"
                    f" the source has {len(self.source)}"
                )
        return texts

    @cached_property
    def domains(self) -> list[str]:
        """The domain of each segment; without a file of documents, the empty string."""
        file = self.path / "documents" / f"{self.pair}.docs"
        if not file.exists():
            return [""] * len(self.source)
        with opened(file, named(file)) as stream:
            return [line.split()[0] if line.split() else "" for line in segments_of(stream, named(file))]

    @property
    def human_names(self) -> list[str]:
        """Kinds of human scores, such as ``mqm``."""
        files = (self.path / "human-scores").glob(f"{self.pair}.*.score")
        return sorted({file.name.removeprefix(f"{self.pair}.").rsplit(".", 2)[0] for file in files})

    def human(self, name: str, level: str) -> Scores | None:
        """Human scores by system, or None if there are none of this level."""
        file = self.path / "human-scores" / f"{self.pair}.{name}.{level}.score"
        return read_scores(file) if file.exists() else None

    def metric_files(self, level: str) -> dict[str, tuple[set[str], Path]]:
        """Metrics of a level by full name (``BLEU-refA``), each with the references that it used."""
        found = {}
        for file in sorted((self.path / "metric-scores" / self.pair).glob(f"*.{level}.score")):
            full = file.name.removesuffix(f".{level}.score")
            _, _, refs = full.rpartition("-")
            used = set() if refs == "src" else set(self.references) if refs == "all" else set(refs.split("."))
            found[full] = (used, file)
        return found

    def grid(
        self,
        gold: str,
        reference: str,
        *,
        humans: bool = False,
        outliers: Sequence[str] = (),
        domain: str | None = None,
        extra: Mapping[str, Mapping[str, Scores]] | None = None,
    ) -> Grid:
        """Lay out the scores of the systems that have human scores.

        Parameters
        ----------
        gold
            Kind of human scores.
        reference
            Metrics with other references are left out, and the reference is no system.
        humans
            Whether other references count as systems.
        outliers
            Systems to leave out.
        domain
            Keep the segments of one domain; scores of systems are then means over them.
        extra
            More metrics: name, then level (``seg``, ``sys``), then scores by system.
        """
        if reference not in self.references:
            raise InputError(
                f"{self.path}: no reference {quoted(reference)} for {self.pair}"
                f" (there are: {listed(self.references)})"
            )
        by_level = {level: self.human(gold, level) for level in ("seg", "sys")}
        segments, whole = by_level["seg"], by_level["sys"]
        if segments is None:
            raise InputError(
                f"{self.path}: no {quoted(gold)} scores of segments for {self.pair} (there are:"
                f" {listed(self.human_names)})"
            )
        count = len(self.source)
        refused = {reference, *outliers, *(() if humans else self.references)}
        systems = sorted(
            s
            for s, row in segments.items()
            if s in self.outputs and s not in refused and not np.isnan(row).all()
        )
        human = (
            np.stack([self._row(segments[s], s, count, f"{gold}.seg.score") for s in systems])
            if systems
            else None
        )
        if human is None:
            raise InputError(f"{self.path}: no system of {self.pair} has {quoted(gold)} scores")
        keep = np.ones(count, dtype=bool) if domain is None else np.array([d == domain for d in self.domains])
        metrics: dict[str, Floats] = {}
        metrics_system: dict[str, Floats] = {}
        for level, target in (("seg", metrics), ("sys", metrics_system)):
            for name, scores in self._metrics(level, {reference}, extra or {}):
                lacking = [s for s in systems if s not in scores]
                if lacking:
                    self.left_out[name] = f"no {level} scores for {listed(lacking)}"
                    continue
                rows = [
                    self._row(scores[s], s, count if level == "seg" else 1, f"{name}.{level}")
                    for s in systems
                ]
                target[name] = (
                    np.stack(rows)[:, keep] if level == "seg" else np.array([row[0] for row in rows])
                )
        official = whole is not None and domain is None and all(s in whole for s in systems)
        return Grid(
            self.pair if domain is None else f"{self.pair}:{domain}",
            tuple(systems),
            human[:, keep],
            metrics,
            np.array([whole[s][0] for s in systems]) if official and whole is not None else None,
            metrics_system if domain is None else {},
        )

    def _metrics(
        self, level: str, references: set[str], extra: Mapping[str, Mapping[str, Scores]]
    ) -> list[tuple[str, Scores]]:
        own = [
            (full.rpartition("-")[0] or full, read_scores(file))
            for full, (used, file) in self.metric_files(level).items()
            if used <= references
        ]
        return own + [(name, levels[level]) for name, levels in extra.items() if level in levels]

    def _row(self, row: Floats, system: str, count: int, what: str) -> Floats:
        if len(row) != count:
            raise InputError(
                f"{self.path}: {what} has {len(row)} scores for {quoted(system)}, expected {count}"
            )
        return row

    def table(self, reference: str, systems: Sequence[str] | None = None) -> Table:
        """The texts as a table with ``src mt ref system seg domain``, one row a translation."""
        chosen = list(systems if systems is not None else self.outputs)
        segments = np.tile(np.arange(len(self.source)), len(chosen))
        frame = pl.DataFrame(
            {
                "lp": [self.pair] * len(segments),
                "system": np.repeat(chosen, len(self.source)),
                "seg": segments,
                "domain": self.domains * len(chosen),
                "src": self.source * len(chosen),
                "mt": [text for system in chosen for text in self.outputs[system]],
                "ref": self.references[reference] * len(chosen),
            }
        )
        return Table(frame, f"{self.path}:{self.pair}", segments + 1)


def _texts(folder: Path, stem: str, kind: str) -> list[str | None]:
    plain, lines = folder / f"{stem}.txt", folder / f"{stem}.jsonl"
    file = plain if plain.exists() or not lines.exists() else lines
    with opened(file, named(file)) as stream:
        texts = segments_of(stream, named(file))
    if file is plain:
        return [None if text.rstrip() == "[No translation supplied]" else text for text in texts]
    try:
        return [json.loads(text)[_TEXT_FIELDS[kind]] for text in texts]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{named(file)}: expected a JSON object with {_TEXT_FIELDS[kind]} on each line"
        ) from None


def language_pairs(path: str | os.PathLike[str]) -> list[str]:
    """The language pairs of a test set: those with human scores."""
    folder = Path(path)
    if not (folder / "human-scores").is_dir():
        raise InputError(f"{named(path)}: no folder human-scores, expected a test set of the metrics task")
    return sorted({file.name.split(".")[0] for file in (folder / "human-scores").glob("*.score")})
