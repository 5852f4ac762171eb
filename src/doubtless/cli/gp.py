"""``doubtless gp fit`` and ``doubtless gp score``: Gaussian processes on features of translations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    import polars as pl

    from doubtless.forecast import Distribution
    from doubtless.gp.features import Extractor
    from doubtless.segments import Floats, Table

gp = typer.Typer(help="Fit a Gaussian process to features of translations, and score with it.", **o.SETTINGS)

_FEATURES, _MODEL = "Features", "Model"
FeatureFile = Annotated[
    str | None,
    typer.Option("--features", help="File of numbers, one line a row.", rich_help_panel=_FEATURES),
]


@gp.command(help="Fit a Gaussian process to human scores.")
def fit(
    file: o.File,
    output: Annotated[str, typer.Option("--output", "-o", help="Folder of the model to write.")],
    human: o.Human = "human",
    features: FeatureFile = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns that are features: C,C,…", rich_help_panel=_FEATURES)
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Parallel corpus with src and tgt: compute the 17 QuEst features.", rich_help_panel=_FEATURES
        ),
    ] = None,
    corpus_where: Annotated[
        str | None,
        typer.Option(help="Keep rows of the corpus: \"lp = 'en-de'\".", rich_help_panel=_FEATURES),
    ] = None,
    glass_box: Annotated[
        bool | None,
        typer.Option(
            "--glass-box/--no-glass-box",
            help="Use nmt_logprobs. Default: if there is such a column.",
            rich_help_panel=_FEATURES,
        ),
    ] = None,
    kernel: Annotated[str, typer.Option(help="rbf, mat32 or mat52.", rich_help_panel=_MODEL)] = "mat52",
    warp: Annotated[
        str, typer.Option(help="none, log, tanh1, tanh2 or tanh3.", rich_help_panel=_MODEL)
    ] = "none",
    ard: Annotated[
        bool, typer.Option("--ard", help="A length-scale for each feature.", rich_help_panel=_MODEL)
    ] = False,
    restarts: Annotated[int, typer.Option(min=1, help="Starts of the search.", rich_help_panel=_MODEL)] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.", rich_help_panel=_MODEL)] = 0,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    json: o.Json = False,
) -> None:
    """Fit a Gaussian process to human scores."""
    given = locals()
    from doubtless.cli.render import print_json, print_list, warn
    from doubtless.gp.model import GaussianProcess
    from doubtless.gp.optimise import Search
    from doubtless.gp.store import Model, save

    process = GaussianProcess(kernel, warp, ard=ard, search=Search(restarts=restarts, seed=seed))
    table = _table(given)
    extractor, x, y = _training_rows(table, given)
    extractor, x = extractor.without_constants(x)
    if extractor.left_out:
        warn(f"these features are the same in all rows and were left out: {', '.join(extractor.left_out)}")
    fitted = process.fit(x, y, extractor.names)
    if not fitted.exact:
        count = len(fitted.posterior.rows)
        warn(f"{fitted.n:,} rows are too many for an exact process: it rests on {count} that stand for all")
    model = save(Model(fitted, extractor, human), output)
    relevance = dict(sorted(fitted.relevance.items(), key=lambda item: -item[1]))
    if json:
        summary = {"output": output, "n": fitted.n, "nll": fitted.nll, "exact": fitted.exact}
        print_json({**summary, "relevance": relevance, "signature": model.signature})
        return
    per_row = f"{fitted.nll / fitted.n:.3f} nats a row"
    rows = [("model", output), ("rows", f"{fitted.n:,}"), ("negative log likelihood", per_row)]
    if ard:
        rows.append(("most relevant", ", ".join(list(relevance)[:5])))
    print_list([*rows, ("signature", model.signature)])


@gp.command(help="Score a table with a fitted Gaussian process.")
def score(
    file: o.File,
    model: Annotated[str, typer.Option("--model", "-m", help="Folder of the model.")],
    alpha: Annotated[
        float, typer.Option(help="The quantiles alpha/2 and 1 - alpha/2 are written.", min=0.001, max=0.999)
    ] = 0.1,
    features: FeatureFile = None,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Add score, sd and quantiles to a table."""
    given = locals()
    from doubtless.cli.render import print_json, print_table
    from doubtless.gp.store import load
    from doubtless.segments import format_of, write

    if output and output != "-":
        format_of(output)  # an unknown ending should not cost a run
    loaded = load(model)
    table = _table(given)
    forecast = loaded.fitted.forecast(loaded.extractor.read(table, features))
    frame = _with_forecast(table, forecast, alpha)
    if output and output != "-":
        write(frame, output, {"doubtless.signature": loaded.signature})
    if json:
        mean = float(forecast.score.mean())
        print_json({"n": len(table), "score": mean, "alpha": alpha, "signature": loaded.signature})
    elif not output or output == "-":
        print_table(frame)


def _table(given: dict[str, Any]) -> Table:
    from doubtless.errors import InputError

    if given["features"] and given["where"]:
        raise InputError(
            "a file of features goes with all rows of its table: --where cannot choose among them"
        )
    return o.read_table(given)


def _training_rows(table: Table, given: dict[str, Any]) -> tuple[Extractor, Floats, Floats]:
    """Features and labels of the rows that have a human score, and where the features come from."""
    import numpy as np

    from doubtless.cli.render import warn
    from doubtless.errors import InputError
    from doubtless.gp import glassbox
    from doubtless.gp.features import Extractor, read_numbers, train_texts
    from doubtless.segments import read

    if given["corpus_where"] and not given["corpus"]:
        raise InputError("--corpus-where needs --corpus")
    y = table.numbers(given["human"], missing=True)
    texts, width = None, 0
    if given["features"]:
        width = read_numbers(given["features"], len(table), table.name).shape[1]
    if given["corpus"]:
        corpus = read(given["corpus"])
        corpus = corpus.where(given["corpus_where"]) if given["corpus_where"] else corpus
        texts, shared = train_texts(corpus, table)
        if shared:
            warn(f"{shared:,} of {len(corpus):,} rows of the corpus are in {table.name} and were left out")
    wish = given["glass_box"]
    glass_box = table.has(glassbox.COLUMN) if wish is None else wish
    extractor = Extractor(width, o.names(given["columns"]), texts, glass_box)
    if not extractor.names:
        raise InputError("no features: give --features, --columns or --corpus, or a column nmt_logprobs")
    known = ~np.isnan(y)
    if not known.any():
        raise InputError(f"{table.name}: no row has a number in column '{given['human']}'")
    if width:
        return extractor, extractor.read(table, given["features"])[known], y[known]
    return extractor, extractor.read(table.take(known)), y[known]


def _with_forecast(table: Table, forecast: Distribution, alpha: float) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    from doubtless.errors import InputError

    columns: dict[str, Any] = {"score": forecast.score, "sd": np.sqrt(forecast.variance)}
    for p in (alpha / 2, 1 - alpha / 2):
        columns[f"q{p:g}"] = forecast.quantile(p)
    for name in columns:
        if name in table.frame.columns:
            raise InputError(f"{table.name}: there is a column '{name}' already")
    return table.frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})
