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
    range_: Annotated[str | None, typer.Option("--range", help="Range LOW,HIGH of human scores.")] = None,
    unseen: Annotated[
        str, typer.Option(help="New groups without calibration: error, pooled, unbounded.")
    ] = "error",
    small: Annotated[
        str, typer.Option(help="Groups too small for alpha: error, pooled, unbounded.")
    ] = "error",
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
    from doubtless.cli.render import print_calibration, print_json
    from doubtless.conformal.calibrate import CalibrationPlan
    from doubtless.conformal.store import Reading, save

    columns = o.forecast_columns(
        score=score,
        samples=samples,
        sd=sd,
        lower=lower,
        upper=upper,
        level=level,
        error=error,
        warp=warp,
        floor=floor,
    )
    reading = Reading(columns, o.names(by), bins, weights)
    plan = CalibrationPlan(
        alpha=alpha,
        method=method,  # type: ignore[arg-type]
        side=side,  # type: ignore[arg-type]
        bounds=o.score_range(range_),
        unseen=unseen,  # type: ignore[arg-type]
        small=small,  # type: ignore[arg-type]
        bins=bin_count,
        distribution=distribution,
    )
    texts = {"src", "mt", "ref"}
    table = o.read_table(
        file,
        reading.names | texts | {human},
        where=where,
        src=src,
        mt=mt,
        ref=ref,
        format=format,
        quotes=quotes,
    )
    calibration = plan.calibrate(table, reading, human)
    save(calibration, output)
    if json:
        print_json({"output": output, "n": calibration.fitted.n, "signature": calibration.signature})
    else:
        print_calibration(calibration, output)
