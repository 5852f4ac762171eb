"""``doubtless evaluate``: forecasts against humans, by repeated random splits."""

from __future__ import annotations

from typing import Annotated

import typer

from doubtless.cli import options as o


def evaluate(
    file: o.File,
    score: o.Score = None,
    samples: o.Samples = None,
    sd: o.Sd = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    level: o.Level = None,
    error: o.Error = None,
    warp: o.Warp = None,
    floor: o.Floor = 1e-6,
    human: o.Human = "human",
    alpha: o.Alpha = 0.1,
    by: o.By = None,
    bins: o.Bins = None,
    bin_count: o.BinCount = 10,
    range_: o.Range = None,
    splits: Annotated[int, typer.Option(help="Random splits into calibration and test rows.")] = 20,
    share: Annotated[float, typer.Option(help="Share of rows that calibrates.")] = 0.5,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Use equally many rows of each group.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    json: o.Json = False,
) -> None:
    """Measure forecasts against human scores: agreement, coverage, width, by group."""
    given = locals()
    from doubtless.cli.render import print_evaluation, print_json, warn
    from doubtless.columns import attribute
    from doubtless.conformal.calibrate import with_human
    from doubtless.conformal.evaluate import Evaluation
    from doubtless.conformal.store import Reading
    from doubtless.errors import InputError

    columns = o.forecast_columns(given)
    reading = Reading(columns, o.names(by), bins)
    if balanced and not reading.by:
        raise InputError("--balanced needs groups (--by)")
    plan = Evaluation(alpha, splits, share, seed, balanced, bin_count, o.score_range(range_))
    table = o.read_table(given, reading.names | {human, "src", "mt", "system"})
    rows = len(table)
    table, y = with_human(table, human, plan.bounds)
    forecast = columns.read(table, alpha)
    figures = plan.run(
        forecast,
        y,
        groups=table.labels(reading.by) if reading.by else None,
        numbers=attribute(table, forecast, bins, alpha) if bins else None,
        uncertain=columns.has_uncertainty,
    )
    figures["without_human"] = rows - len(table)
    figures["repeated"] = table.repeated()
    figures["crossings"] = getattr(forecast, "crossings", 0)
    if figures["repeated"]:
        warn(
            f"{figures['repeated']} of {len(table)} rows repeat the src and mt of another row:"
            " random splits put copies on both sides, which flatters the calibration"
        )
    if json:
        print_json(figures)
    else:
        print_evaluation(figures, file, by, bins)
