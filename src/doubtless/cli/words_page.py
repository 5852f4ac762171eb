"""Shaded words for people: on a terminal, and as a page that needs nothing but a browser."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rich.text import Text

from doubtless.cli.render import new_console, number, one_line
from doubtless.cli.wording import TAGGER
from doubtless.neural.words import marked

if TYPE_CHECKING:
    from doubtless.cli.wording import Wording

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
.mt .bad { text-decoration: underline 2px rgb(var(--hot)); text-underline-offset: 3px; }
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
    """Print at most so many segments, their words shaded by the first of the signals, bad ones marked."""
    console = new_console()
    coloured = console.is_terminal and not console.no_color
    shown = min(most, len(found.segments))
    labels = _labels(found)
    for row in range(shown):
        text = _shaded(found, row) if coloured else Text(_bracketed(found, row))
        console.print(Text.assemble((f"{labels[row]}  ", "dim"), text), soft_wrap=True)
    if len(found.segments) > shown:
        left = len(found.segments) - shown
        console.print(f"… and {left} more segments (-o FILE keeps them all)", style="dim")
    console.print(f"\n{number(found.count)} words; {_meaning(found, coloured)}", style="bold")
    if found.threshold is not None and found.threshold.promise:
        console.print(found.threshold.promise)
    console.print(found.signature, style="dim", soft_wrap=True)


def _meaning(found: Wording, coloured: bool) -> str:
    name = found.shown
    if found.threshold is not None:
        marked_as = "underlined" if coloured else "in brackets"
        return f"{marked_as}: the {number(found.bad_count)} that are bad ({found.threshold.rule})"
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
    """The number of each segment, and its flags."""
    width = len(str(len(found.segments)))
    return [f"{row:>{width}} {segment.flags}".rstrip() for row, segment in enumerate(found.segments, 1)]


def _shaded(found: Wording, row: int) -> Text:
    segment, levels = found.segments[row], found.levels[found.shown][row]
    made = Text(one_line(segment.text))
    for (start, end), level in zip(segment.words, levels, strict=True):
        depth = _depth(float(level))
        if depth > 0:
            paler = round(180 * (1 - depth))
            made.stylize(f"black on rgb(255,{70 + paler},{70 + paler})", start, end)
    for (start, end), bad in zip(segment.words, found.bad[row] if found.bad else (), strict=False):
        if bad:
            made.stylize("bold underline", start, end)
    return made


def _depth(level: float) -> float:
    """How deep a colour is: nothing for the less suspicious half."""
    return max(0.0, (level - _FAINT) / (1 - _FAINT))


def _bracketed(found: Wording, row: int) -> str:
    segment, levels = found.segments[row], found.levels[found.shown][row]
    suspicious = _FAINT if found.shown == TAGGER else _STRONG
    doubted = found.bad[row] if found.bad else [level >= suspicious for level in levels]
    places = zip(segment.words, doubted, strict=True)
    return marked(
        one_line(segment.text), [{"start": start, "end": end} for (start, end), bad in places if bad]
    )


def page(found: Wording) -> str:
    """Make a page of all segments: words are shaded by the chosen signal, and tell their values."""
    sources = found.table.column("src") if found.table.has("src") else [None] * len(found.segments)
    articles = [
        _article(found, row, label, source)
        for row, (label, source) in enumerate(zip(_labels(found), sources, strict=True))
    ]
    options = "".join(
        f"<option{' selected' if name == found.shown else ''}>{escape(name)}</option>" for name in found.names
    )
    decided = ""
    if found.threshold is not None:
        said = f"Underlined are the {number(found.bad_count)} bad words: {found.threshold.rule}."
        decided = escape(f"{said} Promised: {found.threshold.promise}." if found.threshold.promise else said)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Suspicious words</title>
<style>{_STYLE}</style>
<h1>Suspicious words</h1>
<header>{len(found.segments)} segments, {found.count} words, shaded by
<select aria-label="signal">{options}</select>.
The tagger's shade is the probability that a word is wrong; that of other signals is the share of
the words here that have a lower value. Hover over a word for its values. {decided}</header>
{"".join(articles)}
<footer>{escape(found.signature)}</footer>
<script>{_SCRIPT}</script>
</html>
"""


def _article(found: Wording, row: int, label: str, source: object) -> str:
    segment, first = found.segments[row], found.names.index(found.shown)
    parts, done = [], 0
    for i, (start, end) in enumerate(segment.words):
        depths = [round(_depth(float(found.levels[name][row][i])), 3) for name in found.names]
        said = ", ".join(f"{name} {number(float(segment.values[name][i]))}" for name in found.names)
        mark = 'class="bad" ' if found.bad and found.bad[row][i] else ""
        attributes = f'{mark}style="--level:{depths[first]}" data-levels="{",".join(map(str, depths))}"'
        word = f'<span {attributes} title="{escape(said)}">{escape(segment.text[start:end])}</span>'
        parts += [escape(segment.text[done:start]), word]
        done = end
    text = "".join(parts) + escape(segment.text[done:])
    above = "" if source is None else f'<p class="src">{escape(str(source))}</p>'
    return f'<article><p class="label">{label}</p>{above}<p class="mt">{text}</p></article>\n'
