"""``doubtless score``: segments to scores with their doubt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from doubtless.cli.scoring import Result
    from doubtless.conformal.store import Calibration
    from doubtless.segments import Table

_TEXT, _DOUBT, _RUN, _OUTPUT = "Parallel text", "Doubt", "Running", "Output"
_LOOK = (
    "Lower ends of intervals below this score make a segment worth a human look, as flags do."
    " Default: those of the worst fifth of the calibration rows."
)


def score(
    file: Annotated[
        str | None,
        typer.Argument(help="Table with src, mt and perhaps lp, system, ref; or - for standard input."),
    ] = None,
    sources: o.Sources = None,
    translations: o.Translations = None,
    references: Annotated[
        str | None, typer.Option("--references", "-r", help="Reference text.", rich_help_panel=_TEXT)
    ] = None,
    lp: o.Pair = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="Folder (ours or COMET's) or hub name; several: an ensemble. Default: the bundled model.",
        ),
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="The translations are unfinished.")] = False,
    words: Annotated[
        bool, typer.Option("--words", help="Mark suspicious words, in brackets or by colour.")
    ] = False,
    spans: Annotated[
        bool, typer.Option("--spans", help="Add the errors that the model marks in each translation.")
    ] = False,
    exit: Annotated[
        str | None,
        typer.Option(help="Leave early: auto (the model's rule), TOLERANCE, constant:LAYER, variance:LIMIT."),
    ] = None,
    adapt: Annotated[
        str | None,
        typer.Option(
            help="Adapt the model to each system by lessening its doubt: passes=3,k=30,lr=1e-4,"
            "parameters=layer-mix, or auto (only where it should help)."
        ),
    ] = None,
    alpha: o.CalibrationAlpha = None,
    calibration: o.OwnCalibration = None,
    no_intervals: o.NoIntervals = False,
    look: Annotated[float | None, typer.Option(help=_LOOK, rich_help_panel=_DOUBT)] = None,
    uncertainty: Annotated[
        str | None,
        typer.Option(
            help="instant, hts, quantile, mcd:PASSES, ensemble, dup, bt or none. Default: by the model.",
            rich_help_panel=_DOUBT,
        ),
    ] = None,
    error_model: Annotated[
        str | None, typer.Option(help="Model of errors, for dup.", rich_help_panel=_DOUBT)
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of MC dropout and of resampling.", rich_help_panel=_RUN)
    ] = 0,
    device: o.Device = "cpu",
    threads: o.Threads = None,
    dtype: o.Dtype = "float32",
    batch_tokens: o.BatchTokens = 4096,
    runtime: o.Runtime = "auto",
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    systems: Annotated[
        str | None, typer.Option(help="File for the table of systems.", rich_help_panel=_OUTPUT)
    ] = None,
    pretty: o.Pretty = None,
    rows: o.MostRows = 40,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Score translations and say how far each score can be trusted."""
    given = locals()
    from doubtless.cli.adapting import tell
    from doubtless.cli.render import print_json, print_table, wants_pretty, warn
    from doubtless.segments import format_of, write

    o.checked_output(output, systems)
    result = _result(given)
    for sentence in result.warnings:
        warn(sentence)
    if result.run.adapted is not None and not json:
        tell(result.run.adapted)
    to_file = o.is_file(output)
    as_lists = to_file and format_of(str(output)) in ("json", "jsonl", "parquet")
    frame = result.frame(spans=spans, words=words, as_lists=as_lists)
    if to_file:
        write(frame, str(output), {"doubtless.signature": result.signature})
    if systems:
        _write_systems(result, systems)
    if json:
        print_json(result.summary())
    elif not to_file and output is None and wants_pretty(pretty):
        from doubtless.cli.score_view import print_result

        print_result(result, rows)
    elif not to_file:
        print_table(frame)


def _result(given: dict[str, Any]) -> Result:
    from doubtless.cli.adapting import REFUSED, AdaptWish
    from doubtless.cli.scoring import Wishes, run_models, with_doubt
    from doubtless.cli.shipped import Shipped
    from doubtless.errors import InputError

    if given["exit"] is not None and (given["words"] or given["spans"]):
        option = "--words" if given["words"] else "--spans"
        raise InputError(f"{option} reads the last layer, which rows that leave early (--exit) never reach")
    adapt = None if given["adapt"] is None else AdaptWish.parse(given["adapt"], given["seed"])
    if adapt is not None and not adapt.auto and (given["calibration"] or given["alpha"] is not None):
        raise InputError(REFUSED)
    table = segments_of(given)
    shipped = Shipped.of(given["model"] or [])
    exit = shipped.exit(given["exit"])
    known, warnings = calibration_of(given, shipped, exit)
    usual = shipped.calibration(None, None)[0] if adapt is not None and known is None else known
    wishes = Wishes(
        models=given["model"] or [],
        error_model=given["error_model"],
        uncertainty=given["uncertainty"],
        exit=exit,
        partial=given["partial"],
        spans=given["spans"],
        words=shipped.word_threshold() if given["words"] else None,
        seed=given["seed"],
        adapt=adapt,
    )
    run = run_models(table, wishes, o.running(given), usual)
    if known is not None and run.adapted is not None and run.adapted.any:
        known, warnings = None, [f"no intervals: {REFUSED}"]
    if known is not None and given["calibration"] is None:
        if not run.own:
            known, warnings = None, ["the model's calibration is for its own uncertainty: no intervals"]
        elif given["partial"]:
            warnings = [*warnings, "the promise of these intervals was made for whole translations"]
    result = with_doubt(table, run, known, given["look"], given["seed"])
    result.warnings[:0] = warnings
    return result


def calibration_of(
    given: dict[str, Any], shipped: Any, exit: str | None
) -> tuple[Calibration | None, list[str]]:
    """The calibration to use and what is to be said of it: the given one, else the model's."""
    from doubtless.conformal.store import load
    from doubtless.errors import InputError

    path, alpha = given["calibration"], given["alpha"]
    if given["no_intervals"]:
        if path or alpha is not None:
            raise InputError("--no-intervals excludes --calibration and --alpha")
        return None, []
    if path is None:
        found: tuple[Calibration | None, list[str]] = shipped.calibration(alpha, exit)
        return found
    known = load(path)
    if alpha is not None and alpha != known.fitted.alpha:
        raise InputError(f"{path}: the calibration is for alpha {known.fitted.alpha}, not for {alpha}")
    return known, []


def segments_of(given: dict[str, Any]) -> Table:
    """Read the segments that the options name: a table, or parallel files."""
    from doubtless.errors import InputError
    from doubtless.segments import read_parallel

    file, sources, translations = given["file"], given["sources"], given["translations"] or []
    if (file is None) == (sources is None and not translations):
        raise InputError("give a table, or source and translations (-s and -t)")
    if file is not None:
        return with_pair(o.read_table(given), given["lp"])
    if sources is None or not translations:
        raise InputError("parallel text needs both -s and -t")
    return with_pair(read_parallel(sources, translations, given["references"]), given["lp"])


def with_pair(table: Table, lp: str | None) -> Table:
    """The table with a column of the language pair that all its rows have, if that is said."""
    from dataclasses import replace

    import polars as pl

    from doubtless.errors import InputError

    if lp is None:
        return table
    if not re.fullmatch(r"[a-z]{2,3}-[a-z]{2,3}", lp):
        raise InputError(f"a language pair is two codes such as en-de, found '{lp}'")
    if table.has("lp"):
        raise InputError(f"{table.name}: there is a column 'lp' already, --lp would contradict it")
    return replace(table, frame=table.frame.with_columns(lp=pl.lit(lp)))


def _write_systems(result: Result, path: str) -> None:
    import polars as pl

    from doubtless.errors import InputError
    from doubtless.segments import write

    tables = result.systems
    if not tables:
        raise InputError("--systems needs several systems: several -t, or a column 'system'")
    write(pl.DataFrame([row for table in tables for row in table.rows()]), path)
