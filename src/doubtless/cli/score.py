"""``doubtless score``: segments to scores with their doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    import polars as pl

    from doubtless.neural.uncertainty import Quantified
    from doubtless.segments import Table

_TEXT, _RUN = "Parallel text", "Running"


def score(
    file: Annotated[
        str | None,
        typer.Argument(help="Table with src, mt and perhaps ref, or - for standard input."),
    ] = None,
    sources: Annotated[
        str | None, typer.Option("--sources", "-s", help="Source text.", rich_help_panel=_TEXT)
    ] = None,
    translations: Annotated[
        list[str] | None,
        typer.Option("--translations", "-t", help="Translation, one for each system.", rich_help_panel=_TEXT),
    ] = None,
    references: Annotated[
        str | None, typer.Option("--references", "-r", help="Reference text.", rich_help_panel=_TEXT)
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="Model: folder (ours or COMET's) or hub name; several: an ensemble."
        ),
    ] = None,
    uncertainty: Annotated[
        str | None,
        typer.Option(help="instant, hts, quantile, mcd:PASSES, ensemble, dup, bt or none. [by the model]"),
    ] = None,
    error_model: Annotated[str | None, typer.Option(help="Model of errors, for dup.")] = None,
    exit: Annotated[
        str | None, typer.Option(help="Leave early: TOLERANCE, constant:LAYER or variance:THRESHOLD.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Calibration file: adds intervals.")] = None,
    spans: Annotated[
        bool, typer.Option("--spans", help="Add the errors that the model marks in each translation.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of MC dropout.", rich_help_panel=_RUN)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.", rich_help_panel=_RUN)] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1, rich_help_panel=_RUN)] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16.", rich_help_panel=_RUN)] = "float32",
    batch_tokens: Annotated[int, typer.Option(help="Most tokens of a batch.", rich_help_panel=_RUN)] = 4096,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Score translations and say how far each score can be trusted."""
    given = locals()
    from doubtless.cli.render import print_json, print_table, warn
    from doubtless.conformal.store import load as load_calibration
    from doubtless.errors import InputError
    from doubtless.segments import format_of, write

    if output and output != "-":
        format_of(output)  # an unknown ending should not cost a run
    table = _table(given)
    known = None if calibration is None else load_calibration(calibration)
    options: dict[str, Any] = {"device": device, "dtype": dtype, "batch_tokens": batch_tokens}
    doubt: dict[str, Any] = {
        "uncertainty": uncertainty,
        "error_model": error_model,
        "exit": exit,
        "seed": seed,
    }
    found, flags, signature = _score(table, model or [], threads, options, **doubt)
    if spans and found.scored.spans is None:
        raise InputError("nothing marks errors here: --spans needs one model with word tags, without --exit")
    frame = _with_scores(table, found, flags, with_layer=exit is not None, with_spans=spans)
    summary: dict[str, Any] = {}
    if known is not None:
        frame, summary, warnings = _with_intervals(frame, table, known, flags)
        signature = f"{signature}|{known.signature}"
        for sentence in warnings:
            warn(sentence)
    if output and output != "-":
        write(frame, output, {"doubtless.signature": signature})
    if json:
        mean = float(found.forecast.score.mean())
        layers = float(found.scored.layer.mean())
        print_json({"n": len(table), "score": mean, "layers": layers, **summary, "signature": signature})
    elif not output or output == "-":
        print_table(frame)


def _table(given: dict[str, Any]) -> Table:
    from doubtless.errors import InputError
    from doubtless.segments import read_parallel

    file, sources, translations = given["file"], given["sources"], given["translations"] or []
    if (file is None) == (sources is None and not translations):
        raise InputError("give a table, or source and translations (-s and -t)")
    if file is not None:
        return o.read_table(given)
    if sources is None or not translations:
        raise InputError("parallel text needs both -s and -t")
    return read_parallel(sources, translations, given["references"])


def _score(
    table: Table,
    models: list[str],
    threads: int | None,
    options: dict[str, Any],
    *,
    uncertainty: str | None,
    error_model: str | None,
    exit: str | None,
    seed: int,
) -> tuple[Quantified, list[str], str]:
    import doubtless
    from doubtless.cli.progress import progress_bar
    from doubtless.errors import DoubtlessError, InputError

    if not models:
        raise InputError("no model was given (--model)")
    try:
        import torch

        from doubtless.neural.checkpoint import load
        from doubtless.neural.engine import Engine, sanity_flags, texts_of
        from doubtless.neural.exits import ExitRule
        from doubtless.neural.uncertainty import Quantifier, quantify
    except ModuleNotFoundError as error:
        raise DoubtlessError(f"{error.name} is missing: pip install 'doubtless[torch]'") from None
    rule = None if exit is None else ExitRule.parse(exit)
    asked = None if uncertainty is None else Quantifier.parse(uncertainty)
    if threads is not None:
        torch.set_num_threads(threads)
    engines = [Engine(load(name), **options) for name in models]
    errors = None if error_model is None else Engine(load(error_model), **options)
    natural = Quantifier("dup") if errors else Quantifier.natural(engines[0].config, len(engines))
    quantifier = asked or natural
    if errors and quantifier.kind != "dup":
        raise InputError(f"a model of errors serves dup, not '{quantifier.kind}'")
    texts: dict[str, list[str]] = {}
    for engine in [*engines, *([errors] if errors else [])]:
        texts |= texts_of(table, engine.config)
    runs = quantifier.passes or len(engines)
    with progress_bar(len(table) * runs) as progress:
        found = quantify(engines, texts, quantifier, errors=errors, exit=rule, seed=seed, progress=progress)
    flags = sanity_flags(texts, found.scored.truncated)
    kinds = "+".join(engine.model.fingerprint() for engine in engines)
    parts = [f"model:{engines[0].model.name}", f"weights:{kinds}"]
    parts += [f"uncertainty:{uncertainty or quantifier.kind}"] + ([f"exit:{exit}"] if exit else [])
    return found, flags, "|".join([*parts, f"version:{doubtless.__version__}"])


def _with_scores(
    table: Table, found: Quantified, flags: list[str], *, with_layer: bool, with_spans: bool
) -> pl.DataFrame:
    import polars as pl

    from doubtless.errors import InputError

    columns: dict[str, Any] = dict(found.columns)
    if with_layer:
        columns["layer"] = found.scored.layer
    if with_spans:
        columns["spans"] = found.scored.spans
    for name in (*columns, "flags"):
        if name in table.frame.columns:
            raise InputError(f"{table.name}: there is a column '{name}' already")
    return table.frame.with_columns(**{k: pl.Series(v) for k, v in columns.items()}, flags=pl.Series(flags))


def _with_intervals(
    frame: pl.DataFrame, table: Table, calibration: Any, flags: list[str]
) -> tuple[pl.DataFrame, dict[str, Any], list[str]]:
    from dataclasses import replace

    import polars as pl

    from doubtless.conformal.calibrate import apply

    bare = replace(table, frame=frame.drop("flags"))
    applied = apply(calibration, bare, keep_score=True)
    joined = [" ".join(filter(None, pair)) for pair in zip(flags, applied.frame["flags"], strict=True)]
    summary = {"alpha": calibration.fitted.alpha, "width": applied.width, "warnings": applied.warnings}
    return applied.frame.with_columns(flags=pl.Series(joined)), summary, applied.warnings
