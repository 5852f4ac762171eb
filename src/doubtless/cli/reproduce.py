"""``doubtless reproduce``: a paper's table or figure, ours beside theirs."""

from __future__ import annotations

from typing import Annotated

import typer

from doubtless.cli import options as o


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure; without it, the list of them.")] = None,
    data: Annotated[
        str | None, typer.Option(envvar="DOUBTLESS_DATA", help="Directory of the data sets.")
    ] = None,
    splits: Annotated[int, typer.Option(help="Random splits.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    sets: Annotated[str | None, typer.Option(help="Only these data sets: A,B,…")] = None,
    models: Annotated[str | None, typer.Option(help="Only these models: A,B,…")] = None,
    folds: Annotated[str | None, typer.Option(help="Only these folds: 0,1,…")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small part, where the whole takes long.")] = False,
    json: o.Json = False,
) -> None:
    """Run a table or figure of the papers on real data and print ours beside theirs."""
    from doubtless.cli.render import print_json, print_list, print_reproduction
    from doubtless.errors import InputError
    from doubtless.reproduce import Options, find, listing

    if name is None:
        print_list(listing())
        return
    study = find(name)
    numbers = o.names(folds)
    if not all(number.isdigit() for number in numbers):
        raise InputError(f"folds are whole numbers separated by commas, found '{folds}'")
    chosen = tuple(int(number) for number in numbers)
    rows = study.run(data, Options(splits, seed, o.names(sets), o.names(models), chosen, quick))
    if json:
        print_json(rows)
    else:
        print_reproduction(study, rows)
