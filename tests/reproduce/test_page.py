"""The page on reproduction knows every study."""

from __future__ import annotations

import re
from pathlib import Path

from doubtless.reproduce import listing

PAGE = (Path(__file__).parents[2] / "docs/how-to/reproduce.md").read_text(encoding="utf-8")


def test_the_list_is_the_one_that_is_printed():
    printed = PAGE.partition("$ doubtless reproduce\n")[2].partition("```")[0]
    assert re.findall(r"^(\S+) +(.*)$", printed, flags=re.MULTILINE) == listing()


def test_every_study_says_what_it_needs():
    needs = PAGE.partition("## What each study needs")[2].partition("\n## ")[0]
    assert {name for name, _ in listing()} - set(re.findall(r"`([a-z]+-\w+)`", needs)) == set()
