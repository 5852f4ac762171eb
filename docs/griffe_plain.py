"""Make the docstrings of doubtless readable as Markdown when the site is built.

Doctests outside an Examples section become code blocks, Sphinx roles become links, and parameters that share
one description (``alpha, side, bounds``) get an entry each, with their own types.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([\w.]+)`")
_SHARED = re.compile(r"^(\w+(?:, \w+)+)\n((?:[ ]{4}.*\n?)+)", re.MULTILINE)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


class Plain(griffe.Extension):
    """Rewrite every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Griffe calls this for each module, class, function and attribute."""
        if not obj.is_alias and obj.docstring is not None:
            text = _SHARED.sub(_apart, obj.docstring.value)
            obj.docstring.value = _fenced(_ROLE.sub(_link, text))


def _apart(shared: re.Match[str]) -> str:
    description = shared[2] if shared[2].endswith("\n") else shared[2] + "\n"
    return "".join(f"{name}\n{description}" for name in shared[1].split(", "))


def _link(role: re.Match[str]) -> str:
    path = role[1]
    name = path.rsplit(".", 1)[-1]
    if "." not in path:
        return f"`{name}`"
    return f'<autoref identifier="{path}" optional><code>{name}</code></autoref>'


def _fenced(text: str) -> str:
    """Put doctests into code blocks, up to the first section (its own parser knows doctests)."""
    section = _SECTION.search(text)
    end = section.start() if section else len(text)
    paragraphs = text[:end].split("\n\n")
    fenced = [f"```pycon\n{p.strip()}\n```" if p.lstrip().startswith(">>> ") else p for p in paragraphs]
    return "\n\n".join(fenced) + ("\n\n" if section else "") + text[end:]
