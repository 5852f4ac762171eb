"""Shaded words for people: on a terminal, and as a page that needs nothing but a browser."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rich.text import Text

from doubtless.cli.render import new_console, number, one_line
from doubtless.cli.wording import TAGGER
from doubtless.neural.words import marked

if TYPE_CHECKING:
    from doubtless.cli.wording import Worded, Wording
    from doubtless.segments import Floats

# Words are shaded from here on. Where there are no colours, brackets begin here too for a tagger, whose
# level is a probability; of other signals half of all words would be in brackets.
_FAINT, _STRONG = 0.5, 0.9
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fdfdfb; --dim: #6b6b6b; --hot: 200, 30, 30; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e3; --paper: #17181a; --dim: #9a9a9a; --hot: 235, 75, 60; }
}
body { font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
header, footer, .src, .label { color: var(--dim); font-size: 0.85rem; }
article { margin: 1.2rem 0; }
p { margin: 0; }
.mt { font-size: 1.1rem; }
.mt span { border-radius: 3px; padding: 0 1px; background: rgba(var(--hot), calc(0.55 * var(--level))); }
"""
_SCRIPT = """
const choice = document.querySelector("select");
function shade() {
  const column = choice.selectedIndex;
  for (const word of document.querySelectorAll(".mt span")) {
    const level = Number(word.dataset.levels.split(",")[column]);
    word.style.setProperty("--level", level);
  }
}
choice.addEventListener("change", shade);
"""


def print_words(found: Wording, most: int) -> None:
    """Print at most so many segments, their words shaded by the first of the signals."""
    console = new_console()
    coloured = console.is_terminal and not console.no_color
    name = found.names[0]
    shown = min(most, len(found.segments))
    labels = _labels(found)
    for label, segment, levels in zip(labels, found.segments[:shown], found.levels[name], strict=False):
        text = _shaded(segment, levels) if coloured else Text(_bracketed(segment, levels, name))
        console.print(Text.assemble((f"{label}  ", "dim"), text), soft_wrap=True)
    if len(found.segments) > shown:
        left = len(found.segments) - shown
        console.print(f"… and {left} more segments (-o FILE keeps them all)", style="dim")
    count = sum(len(segment.words) for segment in found.segments)
    console.print(f"\n{number(count)} words; {_meaning(name, coloured)}", style="bold")
    console.print(found.signature, style="dim", soft_wrap=True)


def _meaning(name: str, coloured: bool) -> str:
    if name == TAGGER:
        return (
            "the redder, the more probably wrong"
            if coloured
            else "in brackets: those that are probably wrong"
        )
    if coloured:
        return f"the redder, the higher their {name} among the words here"
    return f"in brackets: the tenth of them with the highest {name}"


def _labels(found: Wording) -> list[str]:
    width = len(str(len(found.segments)))
    return [f"{row:>{width}}" for row in range(1, len(found.segments) + 1)]


def _shaded(segment: Worded, levels: Floats) -> Text:
    made = Text(one_line(segment.text))
    for (start, end), level in zip(segment.words, levels, strict=True):
        depth = _depth(float(level))
        if depth > 0:
            paler = round(180 * (1 - depth))
            made.stylize(f"black on rgb(255,{70 + paler},{70 + paler})", start, end)
    return made


def _depth(level: float) -> float:
    """How deep a colour is: nothing for the less suspicious half."""
    return max(0.0, (level - _FAINT) / (1 - _FAINT))


def _bracketed(segment: Worded, levels: Floats, name: str) -> str:
    doubted = [
        {"start": start, "end": end}
        for (start, end), level in zip(segment.words, levels, strict=True)
        if level >= (_FAINT if name == TAGGER else _STRONG)
    ]
    return marked(one_line(segment.text), doubted)


def page(found: Wording) -> str:
    """Make a page of all segments: words are shaded by the chosen signal, and tell their values."""
    sources = found.table.column("src") if found.table.has("src") else [None] * len(found.segments)
    articles = [
        _article(label, source, segment, [found.levels[name][row] for name in found.names], found.names)
        for row, (label, source, segment) in enumerate(
            zip(_labels(found), sources, found.segments, strict=True)
        )
    ]
    options = "".join(f"<option>{escape(name)}</option>" for name in found.names)
    count = sum(len(segment.words) for segment in found.segments)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Suspicious words</title>
<style>{_STYLE}</style>
<h1>Suspicious words</h1>
<header>{len(found.segments)} segments, {count} words, shaded by
<select aria-label="signal">{options}</select>.
The tagger's shade is the probability that a word is wrong; that of other signals is the share of
the words here that have a lower value. Hover over a word for its values.</header>
{"".join(articles)}
<footer>{escape(found.signature)}</footer>
<script>{_SCRIPT}</script>
</html>
"""


def _article(label: str, source: object, segment: Worded, levels: list[Floats], names: list[str]) -> str:
    parts, done = [], 0
    for i, (start, end) in enumerate(segment.words):
        depths = [round(_depth(float(column[i])), 3) for column in levels]
        said = ", ".join(f"{name} {number(float(segment.values[name][i]))}" for name in names)
        attributes = f'style="--level:{depths[0]}" data-levels="{",".join(map(str, depths))}"'
        word = f'<span {attributes} title="{escape(said)}">{escape(segment.text[start:end])}</span>'
        parts += [escape(segment.text[done:start]), word]
        done = end
    text = "".join(parts) + escape(segment.text[done:])
    above = "" if source is None else f'<p class="src">{escape(str(source))}</p>'
    return f'<article><p class="label">{label}</p>{above}<p class="mt">{text}</p></article>\n'
