"""``doubtless calibrate``: forecasts and human scores to a calibration file."""

from __future__ import annotations

from typing import Annotated

import typer

from doubtless.cli import options as o


def calibrate(
    file: o.File,
    output: Annotated[str, typer.Option("--output", "-o", help="Calibration file to write.")],
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
    weights: Annotated[
        str | None, typer.Option(help="Likelihood ratio of each row, for weighted calibration under shift.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="conformal, or ece: least calibration error, no promise.")
    ] = "conformal",
    side: Annotated[str, typer.Option(help="both, or only a lower or an upper bound.")] = "both",
    range_: o.Range = None,
    unseen: Annotated[
        str, typer.Option(help="New groups without calibration: error, pooled, unbounded.")
    ] = "error",
    small: Annotated[
        str, typer.Option(help="Groups too small for alpha: error, pooled, unbounded.")
    ] = "error",
    borrow: Annotated[
        float, typer.Option(help="Share of the factor of all rows in that of each group, 0 to 1.")
    ] = 0.0,
    distribution: Annotated[
        bool, typer.Option("--distribution", help="Keep all residuals, for `apply --below`.")
    ] = False,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    json: o.Json = False,
) -> None:
    """Make a calibration file from forecasts and human scores."""
    given = locals()
    from doubtless.cli.render import print_calibration, print_json, warn
    from doubtless.conformal.calibrate import CalibrationPlan
    from doubtless.conformal.store import Reading, as_json, save

    columns = o.forecast_columns(given)
    reading = Reading(columns, o.names(by), bins, weights)
    plan = CalibrationPlan(
        alpha=alpha,
        method=method,  # type: ignore[arg-type]
        side=side,  # type: ignore[arg-type]
        bounds=o.score_range(range_),
        unseen=unseen,  # type: ignore[arg-type]
        small=small,  # type: ignore[arg-type]
        borrow=borrow,
        bins=bin_count,
        distribution=distribution,
    )
    plan.check(reading)
    table = o.read_table(given, reading.names | {human, "src", "mt", "system", "adapted"})
    if repeated := table.repeated():
        warn(f"{repeated} of {len(table)} rows repeat the src and mt of another row")
    calibration = plan.calibrate(table, reading, human)
    if output == "-":
        print_json(as_json(calibration))
        return
    save(calibration, output)
    if json:
        summary = as_json(calibration)
        for bulky in ("reference", "fingerprints", "distribution", "scores", "mass"):
            summary.pop(bulky, None)
        print_json({"output": output, "signature": calibration.signature, **summary})
    else:
        print_calibration(calibration, output)
