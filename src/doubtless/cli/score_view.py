"""Scores for people: coloured rows with drawn intervals, what to look at, and how the systems compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable
from rich.text import Text

from doubtless.cli.render import interval_bars, new_console, number, one_line, print_segments, row_labels
from doubtless.neural.words import Word, marked

if TYPE_CHECKING:
    from rich.console import Console

    from doubtless.cli.scoring import Result
    from doubtless.systems import SystemTable

_MOST_IN_MATRIX = 12


def print_result(result: Result, most: int) -> None:
    """Print at most so many rows, the table of systems and a short summary."""
    console = new_console()
    _print_rows(console, result, min(most, len(result.table)))
    for table in result.systems:
        print_systems(console, table)
    if result.systems:
        note = (
            "means with 95% intervals: bootstrap over segments; * p < 0.05: paired permutation test,"
            " Holm's correction"
        )
        console.print(note, style="dim")
    _print_summary(console, result)


def _print_rows(console: Console, result: Result, shown: int) -> None:
    scored = result.run.found.scored
    score = result.score[:shown]
    columns: dict[str, list[Any]] = {
        "score": [Text(number(float(x), 2), style=result.look.colour(float(x))) for x in score]
    }
    if result.intervals is not None:
        lower, upper = result.intervals.lower[:shown], result.intervals.upper[:shown]
        heading, bars = interval_bars(score, lower, upper)
        columns[heading] = bars
    if result.run.config.exits == "every" and (scored.layer != result.run.depth).any():
        columns["layer"] = [str(layer) for layer in scored.layer[:shown]]
    columns["look"] = [Text("!" if look else "", style="bold red") for look in result.worth_a_look[:shown]]
    if any(result.flags[:shown]):
        columns["flags"] = [Text(words, style="yellow") for words in result.flags[:shown]]
    coloured = console.is_terminal and not console.no_color
    texts = [one_line(text) for text in result.table.column("mt").head(shown)]
    doubted = scored.words or [[] for _ in texts]
    shown_texts = [_with_words(*pair, coloured) for pair in zip(texts, doubted[:shown], strict=True)]
    print_segments(console, row_labels(result.table, shown), shown_texts, columns, len(result.table))


def _with_words(text: str, words: list[Word], coloured: bool) -> Text:
    """A translation with its suspicious words: the redder, the more probably wrong."""
    if not coloured:
        return Text(marked(text, words))
    made = Text(text)
    for word in words:
        paler = round(200 * (1 - word["probability"]))
        made.stylize(f"black on rgb(255,{80 + paler // 2},{80 + paler // 2})", word["start"], word["end"])
    return made


def print_systems(console: Console, table: SystemTable) -> None:
    """Print the systems of a language pair with their means, intervals and ranks, the best first."""
    rows, order = table.rows(), table.found.order
    missing = any(row["missing"] for row in rows)
    head = ["", "rank", "cluster", "n", *(["missing"] if missing else []), "mean", "95% interval"]
    with_matrix = 1 < len(rows) <= _MOST_IN_MATRIX
    head += [f"P(> {place})" for place in range(1, len(rows) + 1)] if with_matrix else ["better than"]
    made = RichTable(*head, box=None, header_style="dim", pad_edge=False)
    for place, (row, i) in enumerate(zip(rows, order, strict=True), 1):
        best, worst = row["best_rank"], row["worst_rank"]
        cells: list[Any] = [
            Text(f"{place} {one_line(row['system'])}", style="bold"),
            f"{best}" if best == worst else f"{best}-{worst}",
            str(row["cluster"]),
            number(row["n"]),
            *([number(row["missing"])] if missing else []),
            number(row["mean"]),
            f"{number(row['lower'])} … {number(row['upper'])}",
        ]
        if with_matrix:
            cells += ["" if i == j else _chance(table, i, j) for j in order]
        else:
            cells.append(str(len(row["better_than"])))
        made.add_row(*cells)
    console.print(Text.assemble("\n", (f"Systems, {table.lp}" if table.lp else "Systems", "bold")))
    console.print(made)


def _chance(table: SystemTable, i: int, j: int) -> Text:
    better = bool(table.found.better[i, j])
    text = f"{number(float(table.found.chance[i, j]), 2)}{'*' if better else ' '}"
    return Text(text, style="green" if better else "")


def _print_summary(console: Console, result: Result) -> None:
    found = result.summary()
    rule = f" (!): {found['rule']} (--look)"
    count = f"{found['worth_a_look']} of {found['n']} segments are worth a human look"
    console.print(Text.assemble("\n", (count, "bold"), rule))
    lower, upper = found["mean_interval"]
    said = [f"mean score {number(found['mean'])} (95%: {number(lower)} … {number(upper)})"]
    if "width" in found:
        said.append(f"{100 * (1 - found['alpha']):g}% intervals, mean width {number(found['width'], 2)}")
    if found["layers"] < result.run.depth:
        said.append(f"{found['layers']:.1f} of {result.run.depth} layers")
    console.print("; ".join(said))
    console.print(result.signature, style="dim", soft_wrap=True)
