"""``doubtless selfcheck``: does this machine score as the one that recorded the scores, and how fast?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from pathlib import Path

    from doubtless.neural.engine import Engine, Scored
    from doubtless.segments import Table

_RECORDED = ("score", "error")
_DIGITS = 6


def selfcheck(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model. Default: the bundled one.")
    ] = None,
    golden: Annotated[
        str | None, typer.Option(help="Table of recorded scores. Default: that of the bundled model.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest difference that is no drift.")] = 0.01,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write the table anew: for a new model, from a checkout.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Score recorded segments again: exit code 1 if the scores have changed."""
    from pathlib import Path

    from doubtless import bundled
    from doubtless.cli.render import print_json, print_list
    from doubtless.errors import InputError
    from doubtless.neural.runtime import open_engine
    from doubtless.segments import read

    if record and model is not None and golden is None:
        raise InputError("the scores of another model are not those of the bundled one: --golden FILE")
    path = Path(golden) if golden else Path(bundled.__file__).parent / "golden.tsv"
    engine = open_engine(model, threads=threads)
    if record:
        _record(engine, path)
        return 0
    found = check(engine, read(path), tolerance)
    if json:
        print_json(found)
    else:
        print_list(_lines(found))
    return 0 if found["ok"] else 1


def check(engine: Engine, golden: Table, tolerance: float) -> dict[str, Any]:
    """Score golden segments twice, the second time by the clock, and compare with what was recorded."""
    import numpy as np

    _score(engine, golden)  # the first run pays for reading the weights
    used = _Used.now()
    scored = _score(engine, golden)
    used = used.until_now()
    recorded = {name: golden.numbers(name) for name in _RECORDED if golden.has(name)}
    apart = {name: np.abs(scored.outputs[name] - values) for name, values in recorded.items()}
    drift = {name: float(values.max()) for name, values in apart.items()}
    n = len(golden)
    return {
        "ok": all(value <= tolerance for value in drift.values()),
        "n": n,
        "drift": drift,
        "tolerance": tolerance,
        "model": engine.name,
        "weights": engine.fingerprint(),
        "versions": _versions(),
        "segments_per_second": n / used.wall,
        "cpu_ms_per_segment": 1000 * used.cpu / n,
        "resident_mb": _resident_mb(),
    }


def _score(engine: Engine, table: Table) -> Scored:
    from doubtless.neural.texts import texts_of

    return engine.score(texts_of(table, engine.config))


def _record(engine: Engine, path: Path) -> None:
    from pathlib import Path

    import doubtless
    from doubtless.errors import InputError
    from doubtless.segments import read, write

    examples = Path(doubtless.__file__).parents[2] / "examples" / "segments.tsv"
    if not examples.is_file():
        raise InputError("the segments to record are in a checkout of the project (examples/segments.tsv)")
    table = read(examples)
    scored = _score(engine, table)
    new = {name: scored.outputs[name].round(_DIGITS) for name in _RECORDED if name in scored.outputs}
    write(table.frame.select("src", "mt", "lp").with_columns(**new), path)
    print(f"{path}: {len(table)} segments by {engine.name}, weights {engine.fingerprint()}")


@dataclass(frozen=True)
class _Used:
    """Seconds on the clock, and of the processor."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> _Used:
        from time import perf_counter, process_time

        return cls(perf_counter(), process_time())

    def until_now(self) -> _Used:
        now = self.now()
        return _Used(now.wall - self.wall, now.cpu - self.cpu)


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    import doubtless

    found = {"doubtless": doubtless.__version__, "python": python_version()}
    for name in ("numpy", "onnxruntime"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def _resident_mb() -> float | None:
    """The memory of this process; None where the system does not tell."""
    import os

    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return None


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    from doubtless.cli.render import number

    drift = ", ".join(f"{name} {value:.2g}" for name, value in found["drift"].items())
    verdict = "as recorded" if found["ok"] else "the scores have changed"
    return [
        ("scores", f"{verdict}: {found['n']} segments, largest difference: {drift}"),
        ("tolerance", f"{found['tolerance']:g}"),
        ("model", f"{found['model']}, weights {found['weights']}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())),
        (
            "speed",
            f"{number(found['segments_per_second'], 1)} segments a second,"
            f" {number(found['cpu_ms_per_segment'], 1)} ms of CPU time a segment",
        ),
        ("memory", f"{number(found['resident_mb'], 0)} MB resident"),
    ]
