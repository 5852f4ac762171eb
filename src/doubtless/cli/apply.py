"""``doubtless apply``: a calibration file to new forecasts."""

from __future__ import annotations

from typing import Annotated

import typer

from doubtless.cli import options as o


def apply(
    calibration: o.CalibrationFile,
    file: o.File,
    below: Annotated[
        list[float] | None,
        typer.Option(help="Add the chance that the human score is below this (repeatable)."),
    ] = None,
    human: Annotated[
        str | None, typer.Option(help="Column of human scores, to measure the coverage.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Put before the names of the new columns.")] = "",
    pretty: Annotated[
        bool | None,
        typer.Option(
            "--pretty/--plain", help="Table for people, or TSV. Default: by whether this is a terminal."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows of the table for people.")] = 50,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Add intervals to new forecasts."""
    given = locals()
    from doubtless.cli.render import print_intervals, print_json, print_table, wants_pretty, warn
    from doubtless.conformal.calibrate import apply as apply_calibration
    from doubtless.conformal.store import load
    from doubtless.segments import write

    loaded = load(calibration)
    table = o.read_table(given)
    applied = apply_calibration(loaded, table, below=below or (), human=human, prefix=prefix)
    for warning in applied.warnings:
        warn(warning)
    to_file = o.is_file(output)
    if to_file:
        assert output is not None
        write(applied.frame, output, {"doubtless.signature": loaded.signature})
    if json:
        print_json(
            {
                "n": len(table),
                "alpha": loaded.fitted.alpha,
                "coverage": applied.coverage,
                "width": applied.width,
                "warnings": applied.warnings,
                "signature": loaded.signature,
            }
        )
    elif not to_file:
        if wants_pretty(pretty) and output is None:
            print_intervals(applied, loaded, table, human, prefix, rows)
        else:
            print_table(applied.frame)
