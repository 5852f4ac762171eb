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
