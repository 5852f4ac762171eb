"""``doubtless evaluate``: forecasts against humans, by repeated random splits; metrics against each other."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from doubtless.cli import options as o

_METRICS = "Comparing metrics"


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
    ratings: Annotated[
        list[str] | None,
        typer.Option(
            help="MQM or ESA annotations that make the human scores: a table or a .seg.rating file."
        ),
    ] = None,
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
    levels: Annotated[
        str | None, typer.Option(help="Compare metrics on these: segment,system.", rich_help_panel=_METRICS)
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Metrics: C, N=SAMPLE+SAMPLE or N=SCORE:SD, -C where lower is better; names in a folder.",
            rich_help_panel=_METRICS,
        ),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(help="Also score with BLEU,chrF,TER,greedy:ENCODER.", rich_help_panel=_METRICS),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(help="Figures, as segment:acc_eq*/item,system:spa.", rich_help_panel=_METRICS),
    ] = None,
    undefined: Annotated[
        str,
        typer.Option(
            help="Groups without a correlation: drop, or zero to count them as 0.", rich_help_panel=_METRICS
        ),
    ] = "drop",
    preset: Annotated[
        str | None, typer.Option(help="Rules of a year: wmt22, wmt23, wmt24.", rich_help_panel=_METRICS)
    ] = None,
    average: Annotated[
        str, typer.Option(help="Over language pairs: macro or micro.", rich_help_panel=_METRICS)
    ] = "macro",
    draws: Annotated[
        int,
        typer.Option(min=0, help="Permutations of a test without a closed form.", rich_help_panel=_METRICS),
    ] = 1000,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of a bootstrap interval.", rich_help_panel=_METRICS)
    ] = 1000,
    swap: Annotated[
        str,
        typer.Option(help="What tests within items swap: items, scores or pairs.", rich_help_panel=_METRICS),
    ] = "items",
    test: Annotated[
        str,
        typer.Option(help="permutation; williams for system:pearson.", rich_help_panel=_METRICS),
    ] = "permutation",
    system_column: Annotated[
        str, typer.Option(help="Column of systems.", rich_help_panel=_METRICS)
    ] = "system",
    item: Annotated[
        str,
        typer.Option(
            help="Column (or columns C,C) of segments; C=D where the ratings call it D.",
            rich_help_panel=_METRICS,
        ),
    ] = "seg",
    first_segment: Annotated[
        int | None,
        typer.Option(
            min=0, max=1, help="Number of a folder's first segment in the ratings.", rich_help_panel=_METRICS
        ),
    ] = None,
    pairs: Annotated[
        str | None, typer.Option(help="Language pairs of a folder.", rich_help_panel=_METRICS)
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Reference of a folder's metrics.", rich_help_panel=_METRICS)
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="More metrics for a folder: NAME.seg.score, NAME.sys.score.", rich_help_panel=_METRICS
        ),
    ] = None,
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
    if levels or compare or baselines or statistics or preset or os.path.isdir(file):
        from doubtless.cli.evaluate_metrics import evaluate_metrics

        evaluate_metrics(given)
        return
    from doubtless.cli.annotations import with_ratings
    from doubtless.cli.render import new_console, print_evaluation, print_json, warn
    from doubtless.cli.signatures import evaluation_signature
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
    keys = {system_column, "lp", *(name.partition("=")[0] for name in o.names(item))} if ratings else set()
    table = o.read_table(given, reading.names | {human, "src", "mt", "system"} | keys)
    table = with_ratings(table, given)
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
    figures["signature"] = evaluation_signature(plan, given)
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
        new_console().print(figures["signature"], style="dim", soft_wrap=True)
