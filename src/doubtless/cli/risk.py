"""``doubtless risk``: the number to act on, for people to whom one kind of mistake costs more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from collections.abc import Mapping

    from doubtless.decide.losses import Loss
    from doubtless.segments import Floats, Table

_PANEL = "What mistakes cost"


def risk(
    file: o.File,
    w: Annotated[
        str,
        typer.Option("--w", help="Weight of the costly mistakes, or several: 1,3,9.", rich_help_panel=_PANEL),
    ],
    loss: Annotated[
        str,
        typer.Option(
            help="al: linear, aq: quadratic, linex: exponential on the costly side.", rich_help_panel=_PANEL
        ),
    ] = "al",
    scenario: Annotated[
        str,
        typer.Option(
            help="pessimistic: a truth worse than the decision costs more; optimistic: a better one.",
            rich_help_panel=_PANEL,
        ),
    ] = "pessimistic",
    better: Annotated[
        str,
        typer.Option(help="lower for times and costs, higher for scores of quality.", rich_help_panel=_PANEL),
    ] = "lower",
    calibration: Annotated[
        str | None,
        typer.Option(help="Use the predictive distribution of this calibration file, and its columns."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Use the forecasts of this Gaussian process, made by gp fit."),
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="File of numbers that the Gaussian process needs.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(
            help="normal: complete quantiles or an error to a normal shape; samples: take them as they are."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="exact, or paper: linex as if the forecast were normal.")
    ] = "exact",
    range_: Annotated[str | None, typer.Option("--range", help="Range LOW,HIGH of the truth.")] = None,
    human: Annotated[
        str | None, typer.Option(help="Column of human scores, to measure what decisions would have cost.")
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the new column; several weights are put behind it.")
    ] = "decision",
    score: o.Score = None,
    samples: o.Samples = None,
    sd: o.Sd = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="Level of lower and upper, by default 0.9.", rich_help_panel="Columns of the forecast"
        ),
    ] = None,
    error: o.Error = None,
    warp: o.Warp = None,
    floor: o.Floor = 1e-6,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Choose the number to act on when one kind of mistake costs more."""
    given = locals()
    import sys

    import polars as pl

    from doubtless.cli.render import print_json, print_table
    from doubtless.decide.losses import Loss
    from doubtless.decide.risk import decide
    from doubtless.segments import write

    losses = [Loss.in_scenario(loss, weight, scenario, better) for weight in _weights(w)]
    columns = None if calibration or model else _columns(given)
    table = o.read_table(given)
    made = _names(name, losses)
    table.check_free(made, "choose another --name")
    options: dict[str, Any] = {"assume": assume, "method": method}
    if columns is not None:
        forecast = columns.read(table)
    elif model:
        forecast = _of_process(given, table)
    else:
        forecast, known = calibrated(given, table)
        options |= known
    if range_:
        options["bounds"] = o.score_range(range_)
    decisions = [decide(forecast, one, **options) for one in losses]
    truth = None if human is None else table.numbers(human, missing=True)
    figures = [
        {"w": one.w, "column": column, **_figures(one, decision, forecast.score, truth)}
        for one, column, decision in zip(losses, made, decisions, strict=True)
    ]
    frame = table.frame.hstack(pl.DataFrame(dict(zip(made, decisions, strict=True))))
    to_file = o.is_file(output)
    if to_file:
        assert output is not None
        write(frame, output)
    if json:
        costly = losses[0].costly
        print_json(
            {"n": len(table), "loss": loss, "scenario": scenario, "costly": costly, "decisions": figures}
        )
        return
    if not to_file:
        print_table(frame)
    # What is said about the table must not get into it.
    for one, line in zip(losses, figures, strict=True):
        print(_sentence(one, line), file=sys.stdout if to_file else sys.stderr)


def _weights(text: str) -> list[float]:
    from doubtless.errors import InputError

    try:
        weights = [float(part) for part in o.names(text)]
    except ValueError:
        weights = []
    if not weights:
        raise InputError(f"weights are numbers separated by commas, found '{text}'")
    return weights


def _names(name: str, losses: list[Loss]) -> list[str]:
    from doubtless.errors import InputError

    names = [name] if len(losses) == 1 else [f"{name}_{loss.w:g}" for loss in losses]
    if len(set(names)) < len(names):
        raise InputError("a weight is given twice")
    return names


def _columns(given: Mapping[str, Any]) -> Any:
    from doubtless.errors import InputError

    if given["features"]:
        raise InputError("--features needs --model")
    columns = o.forecast_columns(given)
    if not columns.has_uncertainty:
        raise InputError(
            "a score alone says nothing about mistakes: give --sd, --samples, …, --calibration or --model"
        )
    return columns


def _alone(given: Mapping[str, Any], source: str, why: str) -> None:
    """Refuse what would describe the forecast a second time."""
    from doubtless.errors import InputError

    for option in ("score", "samples", "sd", "lower", "upper", "level", "error", "warp", "assume"):
        if given[option] is not None:
            raise InputError(f"--{option} and --{source} exclude each other: {why}")


def _of_process(given: Mapping[str, Any], table: Table) -> Any:
    """The forecasts of a Gaussian process, with all that it knows of their shape."""
    from doubtless.errors import InputError
    from doubtless.gp.store import load

    _alone(given, "model", "the model makes the forecasts")
    if given["calibration"]:
        raise InputError("--model and --calibration exclude each other: score first, then calibrate")
    loaded = load(given["model"])
    return loaded.fitted.forecast(loaded.extractor.read(table, given["features"]))


def calibrated(given: Mapping[str, Any], table: Table) -> tuple[Any, dict[str, Any]]:
    """The forecast that a calibration reads, and what a decision needs of the calibration."""
    from doubtless.conformal.store import load
    from doubtless.errors import InputError

    _alone(given, "calibration", "the calibration knows its columns")
    loaded = load(given["calibration"])
    if loaded.distribution is None:
        raise InputError(
            f"{given['calibration']}: the calibration holds no predictive distribution"
            " (calibrate with --distribution)"
        )
    forecast = loaded.forecast(table)
    groups = loaded.reading.condition(table, forecast, loaded.fitted.alpha)
    return forecast, {"distribution": loaded.distribution, "groups": groups, "bounds": loaded.fitted.bounds}


def _figures(loss: Loss, decision: Floats, score: Floats, truth: Floats | None) -> dict[str, Any]:
    """How far the decisions are from the scores, and what they would have cost."""
    import numpy as np

    from doubtless.decide.risk import best_shift
    from doubtless.errors import InputError

    figures: dict[str, Any] = {"mean_change": float((decision - score).mean())}
    if truth is None:
        return figures
    known = ~np.isnan(truth)
    if not known.any():
        raise InputError("no row has a human score")
    decision, score, truth = decision[known], score[known], truth[known]
    shifted = score + best_shift(score, truth, loss)
    costs = {"decision": decision, "score": score, "oracle": shifted}
    return figures | {
        "n": int(known.sum()),
        **{f"loss_of_{k}": float(loss(v, truth).mean()) for k, v in costs.items()},
    }


def _sentence(loss: Loss, figures: Mapping[str, Any]) -> str:
    from doubtless.cli.render import number

    side = "low" if loss.costly == "under" else "high"
    change = figures["mean_change"]
    moved = f"{number(abs(change))} {'above' if change >= 0 else 'below'} the score on average"
    said = f"{figures['column']} ({loss.kind}, w {loss.w:g}, too {side} costs more): {moved}"
    if "loss_of_score" not in figures:
        return said
    cost = {name: number(figures[f"loss_of_{name}"]) for name in ("decision", "score", "oracle")}
    return (
        f"{said}; mean loss {cost['decision']}, of the score {cost['score']},"
        f" of the best shift in hindsight {cost['oracle']}"
    )
