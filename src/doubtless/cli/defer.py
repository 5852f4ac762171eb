"""``doubtless defer``: which segments people should score, what that is worth, and what follows from it."""

from __future__ import annotations

from typing import Annotated

import typer

from doubtless.cli import options as o

_RULE, _BUDGET, _DRAW, _SIMULATE = "Rule", "Budget", "Drawing, and estimating from it", "Simulating"

# The modes in which an option means something; "" is that of marking the most urgent. All others mean
# something in each of them.
_MEANT_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("budget", "rule", "only"), ("", "draw")),
    **dict.fromkeys(("unit", "per_word", "per_segment", "by", "seed"), ("", "draw", "simulate")),
    **dict.fromkeys(("threshold", "loss", "w", "scenario", "range_"), ("", "draw", "simulate")),
    "name": ("", "draw", "estimate"),
    "even": ("draw", "simulate"),
    **dict.fromkeys(("rules", "resamples"), ("simulate",)),
}
_INSTEAD = {"rule": " (--rules names those to simulate)", "budget": " (every budget is shown)"}


def defer(
    context: typer.Context,
    file: o.File,
    budget: Annotated[
        str,
        typer.Option(
            help="How much people can do: a number, or a share of all: 20%.", rich_help_panel=_BUDGET
        ),
    ] = "20%",
    unit: Annotated[
        str,
        typer.Option(help="What is counted: segments, or words of the translation.", rich_help_panel=_BUDGET),
    ] = "segments",
    per_word: Annotated[
        float | None,
        typer.Option(help="Money or time for a word: the budget is in that unit.", rich_help_panel=_BUDGET),
    ] = None,
    per_segment: Annotated[
        float | None,
        typer.Option(help="Money or time for a segment, added to that of words.", rich_help_panel=_BUDGET),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Column (or columns C,C) of groups that all get their share: system.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    rule: Annotated[
        str, typer.Option(help="confidence, score, width, chance, loss or random.", rich_help_panel=_RULE)
    ] = "confidence",
    threshold: Annotated[
        float | None,
        typer.Option(help="chance: scores worse than this are bad.", rich_help_panel=_RULE),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="loss: al, aq or linex (see risk).", rich_help_panel=_RULE)
    ] = "al",
    w: Annotated[
        float, typer.Option("--w", help="loss: weight of the costly mistakes.", rich_help_panel=_RULE)
    ] = 3.0,
    scenario: Annotated[
        str,
        typer.Option(
            help="loss: pessimistic (a truth worse than the score costs more) or optimistic.",
            rich_help_panel=_RULE,
        ),
    ] = "pessimistic",
    better: Annotated[
        str, typer.Option(help="Whether higher or lower scores are better.", rich_help_panel=_RULE)
    ] = "higher",
    calibration: Annotated[
        str | None,
        typer.Option(
            help="chance, loss: use the predictive distribution of this calibration file.",
            rich_help_panel=_RULE,
        ),
    ] = None,
    draw: Annotated[
        bool,
        typer.Option(
            "--draw",
            help="Draw segments, with chances that grow with the doubt, instead of taking the first.",
            rich_help_panel=_DRAW,
        ),
    ] = False,
    even: Annotated[
        float, typer.Option(help="Part of the chances that is equal for all.", rich_help_panel=_DRAW)
    ] = 0.5,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Estimate the systems' means from drawn segments that people have scored (--human).",
            rich_help_panel=_DRAW,
        ),
    ] = False,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Show how well systems are ranked at each budget, from human scores of all (--human).",
            rich_help_panel=_SIMULATE,
        ),
    ] = False,
    rules: Annotated[
        str | None, typer.Option(help="Rules to simulate: A,B,…", rich_help_panel=_SIMULATE)
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of segments, for intervals.", rich_help_panel=_SIMULATE)
    ] = 200,
    human: Annotated[str | None, typer.Option(help="Column of human scores.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the new columns: NAME, NAME_reason, …")] = "defer",
    only: Annotated[bool, typer.Option("--only", help="Write only the rows for people.")] = False,
    score: o.Score = None,
    samples: o.Samples = None,
    sd: o.Sd = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    level: o.Level = None,
    error: o.Error = None,
    warp: o.Warp = None,
    floor: o.Floor = 1e-6,
    range_: Annotated[str | None, typer.Option("--range", help="Range LOW,HIGH of human scores.")] = None,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    ref: o.ReferenceText = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Choose the segments that people should score."""
    given = locals()
    from doubtless.cli import deferring
    from doubtless.errors import InputError

    if (simulate or estimate) and human is None:
        raise InputError(f"--{'simulate' if simulate else 'estimate'} needs human scores (--human)")
    if simulate + estimate + draw > 1:
        raise InputError("--draw, --estimate and --simulate exclude each other")
    mode = next((name for name in ("simulate", "estimate", "draw") if given[name]), "")
    _refuse_meaningless(context, mode)
    o.checked_output(output)
    table = o.read_table(given)
    if simulate:
        deferring.simulate(given, table)
    elif estimate:
        deferring.estimate(given, table)
    else:
        deferring.mark(given, table)


def _refuse_meaningless(context: typer.Context, mode: str) -> None:
    """Refuse options that would be ignored in a mode: silence would be taken for consent."""
    from doubtless.errors import InputError

    for parameter in context.command.params:
        modes = _MEANT_FOR.get(parameter.name or "", (mode,))
        source = context.get_parameter_source(parameter.name or "")
        if mode in modes or source is None or source.name == "DEFAULT":
            continue
        needed = " or ".join(f"--{name}" for name in modes if name)
        where = f"with --{mode}" if mode else f"without {needed}"
        hint = _INSTEAD.get(parameter.name or "", "") if mode == "simulate" else ""
        raise InputError(f"{parameter.opts[0]} has no meaning {where}{hint}")
