"""``doubtless rerank``: the best of many candidates, without scoring them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from doubtless.cli.scoring import Result
    from doubtless.conformal.store import Calibration
    from doubtless.decide.candidates import Pools
    from doubtless.decide.rerank import Method, Reranked
    from doubtless.neural.engine import Engine
    from doubtless.segments import Floats, Table

_CHOOSING, _DOUBT, _RUN, _OUTPUT = "Choosing", "Doubt", "Running", "Output"
_METHODS = (
    "race: drop what is behind by more than the doubt; halving: compare at the same layer, a share goes on;"
    " ucb: a bandit that takes out what moves all alike; ucb-paper: the bandit to the letter of the paper;"
    " constant:LAYER, confidence:TOLERANCE: leave early; random, logprob-sum, logprob-avg: score some in"
    " full; similar: those that are like the best so far; full: score all."
)
_ENDS = ("lower", "upper")
_NEW = (
    "score",
    *_ENDS,
    "error",
    "candidates",
    "cost",
    "finishing",
    "runner_up",
    "runner_up_score",
    "chance",
    "flags",
)


def rerank(
    file: Annotated[
        str,
        typer.Argument(
            help="Table with src, mt and perhaps seg, lp, logprob: one row a candidate, or lists of mt."
        ),
    ],
    lp: o.Pair = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Folder of a model with exits. Default: the bundled model."),
    ] = None,
    method: Annotated[str, typer.Option(help=_METHODS, rich_help_panel=_CHOOSING)] = "race",
    budget: Annotated[
        float | None,
        typer.Option(
            help="Share of the cost of scoring all: halving, ucb, ucb-paper, similar, random, logprob-….",
            show_default="0.55",
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviations in the bounds of candidates: race, halving, ucb, ucb-paper, similar.",
            show_default="0.5 for ucb, else 1",
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Layer that all candidates are taken to first: race, halving, ucb, ucb-paper.",
            show_default="1",
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    lead: Annotated[
        float | None,
        typer.Option(
            help="Stop once the best is ahead of all others by more than so many standard deviations.",
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    logprob: Annotated[
        str, typer.Option(help="Column of log-probabilities (sums).", rich_help_panel=_CHOOSING)
    ] = "logprob",
    tokens: Annotated[
        str,
        typer.Option(
            help="Column of numbers of tokens: logprob-avg divides by them.", rich_help_panel=_CHOOSING
        ),
    ] = "tokens",
    alpha: o.CalibrationAlpha = None,
    calibration: o.OwnCalibration = None,
    no_intervals: o.NoIntervals = False,
    memory: Annotated[
        int, typer.Option(min=1, help="Most megabytes of states that are kept.", rich_help_panel=_RUN)
    ] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random and similar.", rich_help_panel=_RUN)] = 0,
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
    prefix: Annotated[
        str, typer.Option(help="Put before the names of the new columns.", rich_help_panel=_OUTPUT)
    ] = "",
    pretty: o.Pretty = None,
    rows: o.MostRows = 40,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Choose the best of many candidates without scoring them all."""
    given = locals()
    from doubtless.cli.render import print_json, print_table, wants_pretty, warn
    from doubtless.cli.score import calibration_of, with_pair
    from doubtless.cli.shipped import Shipped
    from doubtless.decide.candidates import Pools, one_row_each
    from doubtless.decide.rerank import Method
    from doubtless.neural.runtime import open_engine
    from doubtless.segments import write

    o.checked_output(output)
    to_file = o.is_file(output)
    chosen_method = Method.parse(method, budget=budget, gamma=gamma, start=start, lead=lead)
    table = with_pair(one_row_each(o.read_table(given)), lp)
    known, warnings = calibration_of(given, Shipped.of([model] if model else []), None)
    new = [name for name in _NEW if known is not None or name not in _ENDS]
    table.check_free([prefix + name for name in new], "choose a --prefix for the new ones")
    pools = Pools.of(table)
    engine = open_engine(model, **o.running(given))
    found = _reranked(given, engine, table, pools, chosen_method)
    result, chance = _with_doubt(engine, table, found, known, chosen_method)
    if pools.rows.shape[1] == 1:
        warnings = [*warnings, "no source has more than one candidate: there was nothing to choose"]
    for sentence in [*warnings, *result.warnings]:
        warn(sentence)
    columns = _columns(result, table, found, chance)
    frame = table.take(found.row).frame.with_columns(**{prefix + name: columns[name] for name in new})
    if to_file:
        write(frame, str(output), {"doubtless.signature": result.signature})
    if json:
        print_json(_summary(result, pools, found, chance))
    elif output is None and wants_pretty(pretty):
        _print(result, found, chance, rows)
        print(_sentence(_summary(result, pools, found, chance)))
    elif not to_file:
        print_table(frame)


def _reranked(
    given: Mapping[str, Any], engine: Engine, table: Table, pools: Pools, method: Method
) -> Reranked:
    from doubtless.cli.progress import progress_bar
    from doubtless.decide.rerank import rerank
    from doubtless.neural.texts import texts_of

    texts = texts_of(table, engine.config)
    with progress_bar(len(pools), "reranking") as progress:
        return rerank(
            engine,
            texts,
            pools,
            method,
            preference=_preference(given, table, pools, method),
            memory=given["memory"] << 20,
            progress=progress,
        )


def _preference(given: Mapping[str, Any], table: Table, pools: Pools, method: Method) -> Floats | None:
    """Whom the methods that score a subset would score first."""
    import numpy as np

    from doubtless.errors import InputError

    if not method.needs_preference:
        return None
    if method.kind in ("random", "similar"):
        return np.asarray(np.random.default_rng(given["seed"]).random(pools.rows.shape))
    sums = table.numbers(given["logprob"])
    if method.kind == "logprob-sum":
        return pools.matrix(sums)
    counts = table.numbers(given["tokens"])
    if not (counts > 0).all():
        row = int((counts <= 0).argmax())
        raise InputError(f"{table.place(row)}: column '{given['tokens']}' is not a number of tokens")
    return pools.matrix(sums / counts)


def _with_doubt(
    engine: Engine, table: Table, found: Reranked, calibration: Calibration | None, method: Method
) -> tuple[Result, Floats]:
    """The chosen rows with their intervals, and the chance that each is better than its runner-up."""
    from dataclasses import replace

    import numpy as np

    runner_up = np.where(found.runner_up >= 0, found.runner_up, found.row)
    parts = {
        "chosen": (found.row, found.outputs, found.truncated),
        "runner-up": (runner_up, found.other, np.zeros(len(runner_up), dtype=bool)),
    }
    # Columns that are there already and keep their names, by --prefix, are none of these results.
    bare = replace(table, frame=table.frame.drop(*_ENDS, "flags", strict=False))
    results = {
        name: _result(engine, bare.take(rows), outputs, truncated, calibration, method)
        for name, (rows, outputs, truncated) in parts.items()
    }
    spreads = [_sd(result) for result in results.values()]
    return results["chosen"], found.chance(*spreads)


def _result(
    engine: Engine,
    table: Table,
    outputs: Mapping[str, Any],
    truncated: Any,
    calibration: Calibration | None,
    method: Method,
) -> Result:
    import numpy as np

    import doubtless
    from doubtless.cli.scoring import Run, with_doubt
    from doubtless.forecast import ErrorEstimate
    from doubtless.neural.engine import Scored
    from doubtless.neural.texts import pairs_of, sanity_flags, texts_of
    from doubtless.neural.uncertainty import Quantified

    columns = {name: outputs[name] for name in ("score", "error")}
    depth = engine.stepper.depth
    scored = Scored(columns, np.full(len(table), depth), truncated)
    quantified = Quantified(ErrorEstimate(columns["score"], columns["error"]), columns, scored)
    flags = sanity_flags(texts_of(table, engine.config), truncated, pairs_of(table))
    made = [f"model:{engine.name}", f"weights:{engine.fingerprint()}", f"rerank:{method.signature}"]
    signature = "|".join([*made, f"version:{doubtless.__version__}"])
    run = Run(quantified, flags, signature, engine.config, depth, own=True)
    return with_doubt(table, run, calibration, None)


def _sd(result: Result) -> Floats | None:
    """The standard deviation of a normal error that would give the intervals; None without intervals."""
    import numpy as np
    from scipy.special import ndtri

    if result.intervals is None or result.calibration is None:
        return None
    reach = result.intervals.width / 2 / ndtri(1 - result.calibration.fitted.alpha / 2)
    return np.asarray(reach, dtype=np.float64)


def _columns(result: Result, table: Table, found: Reranked, chance: Floats) -> dict[str, pl.Series]:
    """What is known of the chosen rows."""
    import polars as pl

    texts, choices = table.column("mt").to_list(), found.choices
    has_other = pl.Series(found.runner_up >= 0)
    ends = {} if result.intervals is None else {name: getattr(result.intervals, name) for name in _ENDS}
    columns = {
        **result.run.found.columns,
        **ends,
        "candidates": found.candidates,
        "cost": choices.spent / choices.full,
        "finishing": choices.finishing / choices.full,
        "runner_up": [texts[row] if row >= 0 else None for row in found.runner_up.tolist()],
        "runner_up_score": pl.Series(found.other["score"]).set(~has_other, None),
        "chance": pl.Series(chance).fill_nan(None),
        "flags": result.flags,
    }
    return {name: pl.Series(values) for name, values in columns.items()}


def _summary(result: Result, pools: Pools, found: Reranked, chance: Floats) -> dict[str, Any]:
    import numpy as np

    choices, compared = found.choices, ~np.isnan(chance)
    return {
        "sources": len(pools),
        "candidates": int(pools.copies.sum()),
        "different": int(pools.present.sum()),
        "cost": choices.cost,
        "finishing": float(choices.finishing.sum() / choices.full.sum()),
        "run_again": found.again / float(choices.full.sum()),
        "mean": float(result.score.mean()),
        "mean_chance": float(chance[compared].mean()) if compared.any() else None,
        "warnings": result.warnings,
        "signature": result.signature,
    }


def _sentence(summary: Mapping[str, Any]) -> str:
    from doubtless.cli.render import number

    said = (
        f"{summary['sources']:,} sources, {summary['candidates']:,} candidates"
        f" ({summary['different']:,} different); {summary['cost']:.1%} of the full cost, and"
        f" {summary['finishing']:.1%} to finish the chosen ones; mean score {number(summary['mean'])}"
    )
    if summary["run_again"]:
        said += f"; {summary['run_again']:.1%} run again for want of memory (--memory)"
    return said


def _print(result: Result, found: Reranked, chance: Floats, most: int) -> None:
    from rich.text import Text

    from doubtless.cli.render import (
        interval_bars,
        new_console,
        number,
        one_line,
        print_segments,
        row_labels,
    )

    shown = min(most, len(result.table))
    score = result.score[:shown]
    columns: dict[str, list[Any]] = {
        "score": [Text(number(float(x), 2), style=result.look.colour(float(x))) for x in score]
    }
    if result.intervals is not None:
        ends = result.intervals.lower[:shown], result.intervals.upper[:shown]
        heading, bars = interval_bars(score, *ends)
        columns[heading] = bars
    columns["of"] = [str(count) for count in found.candidates[:shown]]
    columns["cost"] = [f"{share:.0%}" for share in (found.choices.spent / found.choices.full)[:shown]]
    columns["P(better)"] = [number(float(x), 2) for x in chance[:shown]]
    if any(result.flags[:shown]):
        columns["flags"] = [Text(words, style="yellow") for words in result.flags[:shown]]
    texts = [Text(one_line(text)) for text in result.table.column("mt").head(shown)]
    print_segments(new_console(), row_labels(result.table, shown), texts, columns, len(result.table))
