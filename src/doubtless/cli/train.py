"""``doubtless train``: a model from a configuration file and human scores."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from doubtless.neural.train import Result


def train(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG.toml", help="File with \\[model], \\[data] and \\[training].")
    ],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over, even if an interrupted run could be resumed.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder of the run, instead of the file's.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Train a model; an interrupted run goes on where it was."""
    from doubtless.cli.render import print_json
    from doubtless.errors import DoubtlessError
    from doubtless.neural.schedule import read_plan

    plan = read_plan(config, output)
    try:
        import accelerate  # noqa: F401
        import torch  # noqa: F401
        from transformers.utils import logging
    except ImportError:
        raise DoubtlessError("training needs PyTorch: pip install 'doubtless[torch]'") from None
    from doubtless.neural.train import train as run

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with _watching() as (say, watch):
        result = run(plan, fresh=fresh, say=say, watch=watch)
    if json:
        print_json(result.as_json())
    else:
        _print(result)


@contextmanager
def _watching() -> Iterator[tuple[Callable[[str], None], Callable[[str, float], None]]]:
    """Sentences and, on a terminal, a progress bar, both on standard error."""

    def say(sentence: str) -> None:
        print(f"doubtless: {sentence}", file=sys.stderr)

    if not sys.stderr.isatty():
        yield say, lambda stage, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("setting up", total=1.0)
        yield say, lambda stage, share: progress.update(task, description=stage, completed=share)


def _print(result: Result) -> None:
    from doubtless.cli.render import number, print_list

    early = " (stopped early)" if result.stopped_early else ""
    print_list(
        [
            ("model", str(result.model)),
            ("rows", f"{result.rows:,} to train on, {result.dev_rows:,} to validate on"),
            ("steps", f"{result.steps:,} in {result.seconds:,.0f} s{early}"),
            ("best", f"step {result.best_step:,} by {result.metric}; of that model on the validation rows:"),
            *((name, number(value)) for name, value in result.figures.items() if isinstance(value, float)),
        ]
    )
