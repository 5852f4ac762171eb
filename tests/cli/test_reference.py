"""The page on the command line knows every verb and every option."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from doubtless.cli.main import SUBVERBS, VERBS, overview
from doubtless.cli.options import SETTINGS

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
EVERY = "all verbs"


def known_options() -> dict[str, set[str]]:
    """The long options of each command, ``gp fit`` and ``words evaluate`` among them."""
    found = {}
    for verb in (*VERBS, *SUBVERBS):
        app = getattr(import_module(f"doubtless.cli.{verb}"), verb)
        if not isinstance(app, typer.Typer):
            function, app = app, typer.Typer(**SETTINGS)
            app.command()(function)
        command, name = get_command(app), verb.replace("_", " ")
        inner = {f"{name} {own}": part for own, part in getattr(command, "commands", {}).items()}
        for called, part in (inner or {name: command}).items():
            spelled = {option for each in part.params for option in (*each.opts, *each.secondary_opts)}
            found[called] = {option for option in spelled if option.startswith("--")} - {"--help"}
    return found


KNOWN = known_options()


def described_options() -> dict[str, set[str]]:
    """The options in the first cells of the tables below each heading of the page."""
    parts = re.split(r"^#{2,3} (.*)$", PAGE, flags=re.MULTILINE)
    return {
        heading: {
            option
            for cell in re.findall(r"^\| (.*?) \|", text, flags=re.MULTILINE)
            for option in re.findall(r"--[a-z][a-z0-9-]*", cell)
        }
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }


DESCRIBED = described_options()


def own_heading(command: str) -> str:
    """The heading of a command: its name, then arguments."""
    (heading,) = (one for one in DESCRIBED if re.fullmatch(rf"doubtless {command}( [^a-z].*)?", one))
    return heading


@pytest.mark.parametrize("command", KNOWN)
def test_every_option_of_a_verb_is_described(command):
    found = set(DESCRIBED[own_heading(command)])
    for heading, options in DESCRIBED.items():
        sharing = heading.partition(": ")[2].split(", ")
        if {command, EVERY} & set(sharing) or (command.startswith("gp ") and "gp" in sharing):
            found |= options
    assert KNOWN[command] - found == set()


@pytest.mark.parametrize("command", KNOWN)
def test_every_option_that_is_described_for_a_verb_exists(command):
    assert DESCRIBED[own_heading(command)] - KNOWN[command] == set()


def test_the_overview_is_the_one_that_is_printed():
    assert f"$ doubtless --help\n{overview()}\n```" in PAGE
