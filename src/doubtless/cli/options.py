"""Options that several verbs share. Nothing here imports more than typer: ``--help`` must be instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from doubtless.columns import ForecastColumns
    from doubtless.conformal.split import Bounds
    from doubtless.segments import Table

# Of every verb's application: mistakes are said by `main`, in one sentence.
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

_COLUMNS = "Columns of the forecast"
_READING = "Reading"
_TEXT = "Parallel text"
_DOUBT = "Doubt"
_RUN = "Running"
_OUTPUT = "Output"

File = Annotated[str, typer.Argument(help="Table: .tsv .csv .jsonl .json .parquet, or - for standard input.")]
CalibrationFile = Annotated[str, typer.Argument(metavar="CALIBRATION", help="File made by `calibrate`.")]

Score = Annotated[str | None, typer.Option(help="Point estimate.", rich_help_panel=_COLUMNS)]
Samples = Annotated[
    str | None,
    typer.Option(help="Samples: C,C,… (one column each) or one column of lists.", rich_help_panel=_COLUMNS),
]
Sd = Annotated[str | None, typer.Option(help="Standard deviation of the score.", rich_help_panel=_COLUMNS)]
Lower = Annotated[str | None, typer.Option(help="Lower end of an interval.", rich_help_panel=_COLUMNS)]
Upper = Annotated[str | None, typer.Option(help="Upper end of an interval.", rich_help_panel=_COLUMNS)]
Level = Annotated[
    float | None,
    typer.Option(help="Level of lower and upper, by default 1 - alpha.", rich_help_panel=_COLUMNS),
]
Error = Annotated[
    str | None, typer.Option(help="Expected absolute error of the score.", rich_help_panel=_COLUMNS)
]
Warp = Annotated[
    str | None,
    typer.Option(help="log: score and sd are those of the logarithm.", rich_help_panel=_COLUMNS),
]
Floor = Annotated[float, typer.Option(help="Smallest spread that is believed.", rich_help_panel=_COLUMNS)]

Human = Annotated[str, typer.Option(help="Column of human scores; rows without one are left out.")]
Alpha = Annotated[float, typer.Option(help="Share of segments that may fall outside their interval.")]
By = Annotated[str | None, typer.Option(help="Column (or columns C,C) of groups to calibrate within.")]
Bins = Annotated[
    str | None,
    typer.Option(
        help="Number to calibrate within bins of: a column, @score, @uncertainty or @source-length."
    ),
]
BinCount = Annotated[int, typer.Option(help="How many bins.")]
Range = Annotated[
    str | None, typer.Option("--range", help="Range LOW,HIGH of human scores: intervals are cut to it.")
]

Where = Annotated[
    str | None,
    typer.Option(help='Keep rows that meet an SQL condition: "not mt_is_ref".', rich_help_panel=_READING),
]
Source = Annotated[
    str | None, typer.Option("--src", help="Column of source texts.", rich_help_panel=_READING)
]
Translation = Annotated[
    str | None, typer.Option("--mt", help="Column of translations.", rich_help_panel=_READING)
]
ReferenceText = Annotated[
    str | None, typer.Option("--ref", help="Column of references.", rich_help_panel=_READING)
]
Format = Annotated[
    str | None,
    typer.Option(help="Format of the table, if its name does not tell.", rich_help_panel=_READING),
]
Quotes = Annotated[
    str,
    typer.Option(
        help="csv: double quotes quote cells; none: they are ordinary characters.", rich_help_panel=_READING
    ),
]

Sources = Annotated[str | None, typer.Option("--sources", "-s", help="Source text.", rich_help_panel=_TEXT)]
Translations = Annotated[
    list[str] | None,
    typer.Option("--translations", "-t", help="Translation, one for each system.", rich_help_panel=_TEXT),
]
Pair = Annotated[
    str | None, typer.Option(help="Language pair of all rows, such as en-de, if no column lp tells it.")
]

CalibrationAlpha = Annotated[
    float | None,
    typer.Option(help="Which of the model's calibrations, by its alpha.", rich_help_panel=_DOUBT),
]
OwnCalibration = Annotated[
    str | None,
    typer.Option(help="Calibration file for the intervals. Default: the model's.", rich_help_panel=_DOUBT),
]
NoIntervals = Annotated[bool, typer.Option("--no-intervals", help="Scores only.", rich_help_panel=_DOUBT)]

Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.", rich_help_panel=_RUN)]
Threads = Annotated[int | None, typer.Option(help="CPU threads.", min=1, rich_help_panel=_RUN)]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16.", rich_help_panel=_RUN)]
BatchTokens = Annotated[int, typer.Option(min=1, help="Most tokens of a batch.", rich_help_panel=_RUN)]
Runtime = Annotated[str, typer.Option(help="auto, torch or onnx.", rich_help_panel=_RUN)]

Pretty = Annotated[
    bool | None,
    typer.Option(
        "--pretty/--plain",
        help="For people, or TSV. Default: by whether this is a terminal.",
        rich_help_panel=_OUTPUT,
    ),
]
MostRows = Annotated[int, typer.Option(min=0, help="Most rows for people.", rich_help_panel=_OUTPUT)]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="File to write, by its ending.", rich_help_panel=_OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON summary.", rich_help_panel=_OUTPUT)]


def forecast_columns(given: Mapping[str, Any]) -> ForecastColumns:
    """Make the columns of a forecast from a verb's options."""
    from dataclasses import fields

    from doubtless.columns import ForecastColumns

    options = {field.name: given[field.name] for field in fields(ForecastColumns)}
    return ForecastColumns(**{**options, "samples": names(options["samples"])})


def running(given: Mapping[str, Any]) -> dict[str, Any]:
    """How a model is to be run, of a verb's options that say so."""
    return {
        name: given[name]
        for name in ("device", "dtype", "batch_tokens", "threads", "runtime")
        if name in given
    }


def is_file(output: str | None) -> bool:
    """Whether ``--output`` is a file, not the standard output."""
    return output not in (None, "-")


def checked_output(*paths: str | None) -> None:
    """Refuse files of an unknown ending before anything is computed: it should not cost a run."""
    from doubtless.segments import format_of

    for path in paths:
        if is_file(path):
            format_of(str(path))


def names(value: str | None) -> tuple[str, ...]:
    """Split ``a,b,c``."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if value else ()


def score_range(value: str | None) -> Bounds:
    """Read ``LOW,HIGH``; without it there are no bounds."""
    from doubtless.conformal.split import UNBOUNDED
    from doubtless.errors import InputError

    if value is None:
        return UNBOUNDED
    try:
        low, high = (float(end) for end in value.split(","))
    except ValueError:
        raise InputError(f"a range is two numbers LOW,HIGH, found '{value}'") from None
    if not low < high:
        raise InputError(f"a range goes from a lower to a higher number, found '{value}'")
    return low, high


def read_table(given: Mapping[str, Any], columns: Collection[str] | None = None) -> Table:
    """Read the table of a verb, by its options; a condition on the rows may use any column."""
    from doubtless.errors import InputError
    from doubtless.segments import read

    if given["quotes"] not in ("csv", "none"):
        raise InputError(f"quotes is csv or none, found '{given['quotes']}'")
    roles = {role: given[role] for role in ("src", "mt", "ref") if given[role]}
    wanted = None if given["where"] else columns
    quotes = given["quotes"] == "csv"
    table = read(given["file"], columns=wanted, roles=roles, format=given["format"], quotes=quotes)
    return table.where(given["where"]) if given["where"] else table
