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
    json: o.Json = False,
) -> None:
    """Run a table or figure of the papers on real data and print ours beside theirs."""
    from doubtless.cli.render import print_json, print_list, print_reproduction
    from doubtless.reproduce import find, listing

    if name is None:
        print_list(listing())
        return
    study = find(name)
    rows = study.run(data, splits=splits, seed=seed)
    if json:
        print_json(rows)
    else:
        print_reproduction(study, rows)
