"""The directory layout of the WMT metrics tasks (that of mt-metrics-eval), from a local folder.

    SET/sources/PAIR.txt                    a segment a line
    SET/documents/PAIR.docs                 DOMAIN DOCUMENT, a segment a line
    SET/references/PAIR.NAME.txt
    SET/system-outputs/PAIR/SYSTEM.txt
    SET/human-scores/PAIR.NAME.LEVEL.score  SYSTEM SCORE a line, system after system; None: no score
    SET/metric-scores/PAIR/NAME-REFERENCE.LEVEL.score

A level is ``seg``, ``sys`` or ``domain`` (whose lines begin with the domain). A metric without a reference
(``NAME-src``) is called ``NAME[noref]``. Files of scores alone can be read with :func:`read_scores`.
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


def read_scores(path: str | os.PathLike[str], domain: str | None = None) -> Scores:
    """Read a ``.score`` file: ``SYSTEM SCORE`` a line, the scores of a system in the order of its segments.

    ``None`` is a missing score, and becomes NaN. With a domain the lines are ``DOMAIN SYSTEM SCORE``, and
    those of other domains are left out.
    """
    fields = "a system and a score" if domain is None else "a domain, a system and a score"
    name = named(path)
    found: dict[str, list[float]] = {}
    with opened(path, name) as stream:
        for number, line in enumerate(decoded_lines(stream, name), start=1):
            cells = line.split()
            if len(cells) != (2 if domain is None else 3):
                raise InputError(f"{name}:{number}: {counted(len(cells), 'field')}, expected {fields}")
            system, text = cells[-2:]
            try:
                score = float("nan") if text == "None" else float(text)
            except ValueError:
                raise InputError(f"{name}:{number}: {quoted(text)} is not a number") from None
            if np.isinf(score):
                raise InputError(f"{name}:{number}: {quoted(text)} is not a finite number")
            if domain in (None, cells[0]):
                found.setdefault(system, []).append(score)
    if not found and domain is None:
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
        Metrics and systems that could not be used, and why.
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
            lines = segments_of(stream, named(file))
        if len(lines) != len(self.source):
            raise InputError(
                f"{named(file)}: {counted(len(lines), 'line')}, the source has {len(self.source)}"
            )
        return [line.split()[0] if line.split() else "" for line in lines]

    @property
    def human_names(self) -> list[str]:
        """Kinds of human scores, such as ``mqm``."""
        files = (self.path / "human-scores").glob(f"{self.pair}.*.score")
        return sorted({file.name.removeprefix(f"{self.pair}.").rsplit(".", 2)[0] for file in files})

    def human(self, name: str, level: str, domain: str | None = None) -> Scores | None:
        """Human scores by system, or None if there are none of this level."""
        file = self.path / "human-scores" / f"{self.pair}.{name}.{level}.score"
        return read_scores(file, domain) if file.exists() else None

    def metric_files(self, level: str, reference: str) -> dict[str, Path]:
        """The files of metrics of a level that use this reference, or none."""
        found: dict[str, Path] = {}
        for file in sorted((self.path / "metric-scores" / self.pair).glob(f"*.{level}.score")):
            full = file.name.removesuffix(f".{level}.score")
            base, _, refs = full.rpartition("-")
            used = set() if refs == "src" else set(self.references) if refs == "all" else set(refs.split("."))
            name = f"{base}[noref]" if refs == "src" else base
            if not base or not used <= set(self.references):
                self.left_out[f"metric {quoted(full)}"] = "its name does not end in -src, -all or a reference"
            elif used <= {reference} and name in found:
                self.left_out[f"metric {quoted(full)}"] = f"{found[name].name} has the same name"
            elif used <= {reference}:
                found[name] = file
        return found

    def grid(
        self,
        gold: str | Scores,
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
            Kind of human scores; or scores of segments by system.
        reference
            Metrics with other references are left out, and the reference is no system.
        humans
            Whether other references count as systems.
        outliers
            Systems to leave out.
        domain
            Keep the segments of one domain; scores of systems come from files of domains, or are means.
        extra
            More metrics: name, then level (``seg``, ``sys``), then scores by system.
        """
        if reference not in self.references:
            raise InputError(
                f"{self.path}: no reference {quoted(reference)} for {self.pair}"
                f" (there are: {listed(self.references)})"
            )
        count, whole_level = len(self.source), "sys" if domain is None else "domain"
        segments = self.human(gold, "seg") if isinstance(gold, str) else gold
        if segments is None:
            raise InputError(
                f"{self.path}: no {quoted(str(gold))} scores of segments for {self.pair} (there are:"
                f" {listed(self.human_names)})"
            )
        for system in segments:
            if system not in self.outputs:
                self.left_out[f"system {quoted(system)}"] = "it has human scores, but no system-outputs"
        refused = {reference, *outliers, *(() if humans else self.references)}
        systems = [s for s in sorted(segments) if s in self.outputs and s not in refused]
        systems = [s for s in systems if not np.isnan(segments[s]).all()]
        if not systems:
            what = f"{quoted(gold)} scores" if isinstance(gold, str) else "ratings"
            raise InputError(f"{self.path}: no system of {self.pair} has {what}")
        keep = np.ones(count, dtype=bool) if domain is None else np.array([d == domain for d in self.domains])
        place = f"human-scores/{self.pair}.{gold}.seg.score" if isinstance(gold, str) else "ratings"
        human = self._rows(segments, systems, count, str(self.path / place))[:, keep]
        metrics = self._metrics("seg", reference, systems, count, extra or {})
        # Scores of systems that were given are scores of all segments, not of those of a domain.
        given = extra or {} if domain is None else {}
        metrics_system = self._metrics(whole_level, reference, systems, 1, given, domain)
        whole = self.human(gold, whole_level, domain) if isinstance(gold, str) else None
        official = whole is not None and all(s in whole for s in systems)
        return Grid(
            self.pair if domain is None else f"{self.pair}:{domain}",
            tuple(systems),
            human,
            {name: rows[:, keep] for name, rows in metrics.items()},
            np.array([whole[s][0] for s in systems]) if whole is not None and official else None,
            {name: rows[:, 0] for name, rows in metrics_system.items()},
            gold if isinstance(gold, str) else "ratings",
            reference,
        )

    def _metrics(
        self,
        level: str,
        reference: str,
        systems: Sequence[str],
        count: int,
        extra: Mapping[str, Mapping[str, Scores]],
        domain: str | None = None,
    ) -> dict[str, Floats]:
        """The scores of all metrics of a level that have every system, systems by ``count``."""
        files = self.metric_files(level, reference)
        found = {name: (str(file), read_scores(file, domain)) for name, file in files.items()}
        for name, levels in extra.items():
            if name in found:
                raise InputError(f"{found[name][0]}: there is a metric {quoted(name)} already")
            if level in levels:
                found[name] = (f"{name}.{level}.score", levels[level])
        rows = {}
        for name, (place, scores) in found.items():
            lacking = [s for s in systems if s not in scores]
            if lacking:
                self.left_out[f"metric {quoted(name)}"] = f"no {level} scores for {listed(lacking)}"
            else:
                rows[name] = self._rows(scores, systems, count, place)
        return rows

    def _rows(self, scores: Scores, systems: Sequence[str], count: int, place: str) -> Floats:
        for system in systems:
            if len(scores[system]) != count:
                found = counted(len(scores[system]), "score")
                raise InputError(f"{place}: {found} for {quoted(system)}, expected {count}")
        return np.stack([scores[system] for system in systems])

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


def language_pairs(path: str | os.PathLike[str], rated: bool = False) -> list[str]:
    """The language pairs of a test set: those with human scores; all, if they were ``rated`` elsewhere."""
    kind, pattern = ("sources", "*.*") if rated else ("human-scores", "*.score")
    folder = Path(path) / kind
    if not folder.is_dir():
        raise InputError(f"{named(path)}: no folder {kind}, expected a test set of the metrics task")
    pairs = sorted({file.name.split(".")[0] for file in folder.glob(pattern)})
    if not pairs:
        raise InputError(f"{named(path)}: no language pair in the folder {kind}")
    return pairs
