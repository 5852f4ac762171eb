"""``doubtless gp features``, ``gp fit`` and ``gp score``: Gaussian processes on features of translations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    import polars as pl

    from doubtless.errors import InputError
    from doubtless.gp.features import Extractor
    from doubtless.gp.quest import Quest
    from doubtless.segments import Floats, Table

gp = typer.Typer(help="Fit a Gaussian process to features of translations, and score with it.", **o.SETTINGS)

_FEATURES, _MODEL = "Features", "Model"
# From this share of equal labels on, a learned warping is warned of.
_MANY_EQUAL = 0.05
FeatureFile = Annotated[
    str | None,
    typer.Option("--features", help="File of numbers, one line a row.", rich_help_panel=_FEATURES),
]
Corpus = Annotated[
    str | None,
    typer.Option(
        help="Parallel corpus with src and tgt: compute the 17 QuEst features.", rich_help_panel=_FEATURES
    ),
]
CorpusWhere = Annotated[
    str | None,
    typer.Option(help="Keep rows of the corpus: \"lp = 'en-de'\".", rich_help_panel=_FEATURES),
]
GlassBox = Annotated[
    bool | None,
    typer.Option(
        "--glass-box/--no-glass-box",
        help="Use nmt_logprobs. Default: if there is such a column.",
        rich_help_panel=_FEATURES,
    ),
]


@gp.command(help="Add features of the texts to a table, a column each.")
def features(
    file: o.File,
    corpus: Corpus = None,
    corpus_where: CorpusWhere = None,
    glass_box: GlassBox = None,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Add features of the texts to a table, a column each."""
    given = locals()
    from doubtless.gp.features import Extractor

    table = o.read_table(given)
    extractor = Extractor(texts=_texts(table, given), glass_box=_glass_box(table, given))
    if not extractor.names:
        raise _no_features("--corpus")
    found = extractor.read(table)
    frame = _with_columns(table, dict(zip(extractor.names, found.T, strict=True)))
    _give(frame, given, {"n": len(table), "features": list(extractor.names)})


@gp.command(help="Fit a Gaussian process to human scores.")
def fit(
    file: o.File,
    output: Annotated[str, typer.Option("--output", "-o", help="Folder of the model to write.")],
    human: o.Human = "human",
    features: FeatureFile = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns that are features: C,C,… or quest*.", rich_help_panel=_FEATURES),
    ] = None,
    corpus: Corpus = None,
    corpus_where: CorpusWhere = None,
    glass_box: GlassBox = None,
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
    from doubtless.gp.model import GaussianProcess, most_frequent
    from doubtless.gp.optimise import Search
    from doubtless.gp.store import Model, save

    process = GaussianProcess(kernel, warp, ard=ard, search=Search(restarts=restarts, seed=seed))
    table = _table(given)
    extractor, x, y = _training_rows(table, given)
    extractor, x = extractor.without_constants(x)
    if extractor.left_out:
        warn(f"these features are the same in all rows and were left out: {', '.join(extractor.left_out)}")
    label, share = most_frequent(y)
    if warp.startswith("tanh") and share > _MANY_EQUAL:
        warn(
            f"{share:.0%} of the labels are {label:g}: a learned warping turns into a step there, and its"
            " likelihood says nothing (compare --warp none)"
        )
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
    prefix: Annotated[str, typer.Option(help="Put before the names of the new columns.")] = "",
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
    import numpy as np

    from doubtless.gp.store import load

    o.checked_output(output)
    loaded = load(model)
    table = _table(given)
    forecast = loaded.fitted.forecast(loaded.extractor.read(table, features))
    new = {"score": forecast.score, "sd": np.sqrt(forecast.variance)}
    new |= {f"q{p:g}": forecast.quantile(p) for p in (alpha / 2, 1 - alpha / 2)}
    named = {prefix + name: values for name, values in new.items()}
    frame = _with_columns(table, named, hint="choose a --prefix for the new ones")
    summary = {"n": len(table), "score": float(forecast.score.mean()), "alpha": alpha}
    _give(frame, given, {**summary, "signature": loaded.signature})


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

    from doubtless.errors import InputError
    from doubtless.gp.features import Extractor, read_numbers

    y = table.numbers(given["human"], missing=True)
    known = ~np.isnan(y)
    if not known.any():
        raise InputError(f"{table.name}: no row has a number in column '{given['human']}'")
    if given["warp"] == "log" and (y <= 0).any():
        row = int((y <= 0).argmax())
        found = f"{table.place(row)}: column '{given['human']}' is {y[row]:g}"
        raise InputError(f"{found}, but a log warp needs positive labels (tanh1 to tanh3 take any)")
    width = 0
    if given["features"]:
        width = read_numbers(given["features"], len(table), table.name).shape[1]
    extractor = Extractor(
        width, _columns(table, given["columns"]), _texts(table, given), _glass_box(table, given)
    )
    if not extractor.names:
        raise _no_features("--features, --columns or --corpus")
    if width:
        return extractor, extractor.read(table, given["features"])[known], y[known]
    return extractor, extractor.read(table.take(known)), y[known]


def _columns(table: Table, wishes: str | None) -> tuple[str, ...]:
    """The columns that are named, or match a pattern such as ``quest*``."""
    from fnmatch import fnmatchcase

    from doubtless.errors import InputError

    found: dict[str, None] = {}
    for wish in o.names(wishes):
        matching = [name for name in table.frame.columns if fnmatchcase(name, wish)]
        if not matching and "*" in wish:
            raise InputError(f"{table.name}: no column matches '{wish}'")
        found |= dict.fromkeys(matching or [wish])
    return tuple(found)


def _texts(table: Table, given: dict[str, Any]) -> Quest | None:
    """What the QuEst features need of the corpus, if one is given."""
    from doubtless.cli.render import warn
    from doubtless.errors import InputError
    from doubtless.gp.features import train_texts
    from doubtless.segments import read

    if not given["corpus"]:
        if given["corpus_where"]:
            raise InputError("--corpus-where needs --corpus")
        return None
    corpus = read(given["corpus"])
    corpus = corpus.where(given["corpus_where"]) if given["corpus_where"] else corpus
    texts, shared = train_texts(corpus, table)
    if shared:
        warn(f"{shared:,} of {len(corpus):,} rows of the corpus are in {table.name} and were left out")
    return texts


def _glass_box(table: Table, given: dict[str, Any]) -> bool:
    from doubtless.gp import glassbox

    wish: bool | None = given["glass_box"]
    return table.has(glassbox.COLUMN) if wish is None else wish


def _no_features(options: str) -> InputError:
    from doubtless.errors import InputError

    return InputError(f"no features: give {options}, or a column nmt_logprobs")


def _with_columns(table: Table, columns: dict[str, Floats], hint: str = "") -> pl.DataFrame:
    import polars as pl

    table.check_free(columns, hint)
    return table.frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def _give(frame: pl.DataFrame, given: dict[str, Any], summary: dict[str, Any]) -> None:
    """Write the table to a file or print it, or print the summary."""
    from doubtless.cli.render import print_json, print_table
    from doubtless.segments import write

    to_file = o.is_file(given["output"])
    if to_file:
        signature = summary.get("signature")
        write(frame, given["output"], {"doubtless.signature": signature} if signature else {})
    if given["json"]:
        print_json(summary)
    elif not to_file:
        print_table(frame)
