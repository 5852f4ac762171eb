"""``doubtless VERB``: finds the verb, and turns what goes wrong into one sentence and exit code 2.

Only the module of the verb that was asked for is imported, and for ``--help`` none: the list below is all
that the overview needs, so that it answers at once however many verbs there are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from doubtless import __version__
from doubtless.errors import DoubtlessError

VERBS = {
    "score": "Score translations and say how far each score can be trusted.",
    "words": "Shade the words of translations by suspicion; `words evaluate` measures how well that works.",
    "train": "Train a neural estimator from a configuration file; resumes where it stopped.",
    "calibrate": "Make a calibration file from forecasts and human scores.",
    "apply": "Add intervals to new forecasts.",
    "evaluate": "Measure forecasts against human scores: agreement, coverage, width, by group.",
    "rerank": "Choose the best of many candidates without scoring them all.",
    "risk": "Choose the number to act on when one kind of mistake costs more.",
    "defer": "Choose the segments that people should score; rank systems from what they said.",
    "gp": "Fit a Gaussian process to features of translations, and score with it.",
    "reproduce": "Run a table or figure of the papers on real data, ours beside theirs.",
    "models": "List the bundled model and what --model accepts.",
    "selfcheck": "Score recorded segments again: have the scores changed, and how fast is this machine?",
}

# `doubtless words evaluate` is a module of its own, words_evaluate.
SUBVERBS = {"words_evaluate": "Measure suspicions of words against one or several annotators."}


def overview() -> str:
    """The text of ``doubtless --help``."""
    width = max(map(len, VERBS))
    verbs = [f"  {name:<{width}}  {summary}" for name, summary in VERBS.items()]
    lines = [
        "Usage: doubtless VERB [OPTIONS] [ARGUMENTS]",
        "",
        "Score machine translations and say how far each score can be trusted.",
        "",
        "Verbs:",
        *verbs,
        "",
        "Options:",
        f"  {'--version':<{width}}  Print the version.",
        f"  {'--help':<{width}}  Print this overview; `doubtless VERB --help` explains a verb.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    verb, rest = (arguments[0], list(arguments[1:])) if arguments else ("--help", [])
    if verb == "help" and rest:
        verb, rest = rest[0], ["--help"]
    if verb in ("--help", "-h", "help"):
        print(overview())
        return 0
    if verb == "--version":
        print(f"doubtless {__version__}")
        return 0
    if verb not in VERBS:
        raise DoubtlessError(f"there is no verb '{verb}'{_meant(verb)} (doubtless --help lists them)")
    if rest and f"{verb}_{rest[0]}" in SUBVERBS:
        return _run(f"{verb}_{rest[0]}", rest[1:])
    return _run(verb, rest)


def _meant(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, VERBS, n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _run(verb: str, arguments: list[str]) -> int:
    from importlib import import_module

    import typer

    from doubtless.cli.options import SETTINGS

    found = getattr(import_module(f"doubtless.cli.{verb}"), verb)
    if isinstance(found, typer.Typer):  # a verb with verbs of its own: `gp fit`
        app = found
    else:
        app = typer.Typer(**SETTINGS)
        app.command(help=(VERBS | SUBVERBS)[verb])(found)
    called = f"doubtless {verb.replace('_', ' ')}"
    try:
        code = app(args=arguments, prog_name=called, standalone_mode=False)
    except Exception as error:
        # Mistakes in options come from the option parser, whose exceptions can say what they are about.
        if not hasattr(error, "format_message"):
            raise
        sentence = error.format_message().rstrip(".").replace("\n", " ")
        raise DoubtlessError(f"{sentence[:1].lower()}{sentence[1:]} ({called} --help)") from None
    return code if isinstance(code, int) else 0


def run() -> None:
    """Entry point of the command line."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except DoubtlessError as error:
        print(f"doubtless: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        # The reader went away (`| head`): not an error. Keep the interpreter from flushing into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()
