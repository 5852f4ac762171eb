"""``doubtless words``: the words of translations, shaded by suspicion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from doubtless.cli.wording import Wording

_TEXT, _MODEL, _RUN, _OUTPUT = "Parallel text", "Translation model", "Running", "Output"


def words(
    file: Annotated[
        str | None,
        typer.Argument(help="Table with src, mt and perhaps lp, system; or - for standard input."),
    ] = None,
    sources: o.Sources = None,
    translations: o.Translations = None,
    lp: o.Pair = None,
    tagger: Annotated[
        str | None,
        typer.Option(
            help="bundled, a folder (ours or xCOMET's), or none. Default: bundled, or none with --model."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="A tagger's confidence (probability of an error) or binary (1 where a span of its most"
            " probable tags is). Default: confidence."
        ),
    ] = None,
    signals: Annotated[
        str | None,
        typer.Option(
            help="surprisal, entropy, mcd-avg, mcd-var, ll-surprisal[:LAYER], ll-kl[:LAYER], depth,"
            " attention-avg, attention-max, blood[:LAYER]; LAYER is a number or all. Without --model:"
            " surprisal, from columns nmt_tok and nmt_logprobs.",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NUMBER",
            help="Call words bad at or above this: a number, or a file of `words evaluate --control`.",
        ),
    ] = None,
    join: Annotated[str, typer.Option(help="A word's value from its tokens': max, mean or sum.")] = "max",
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Folder or hub name; it reads the translations.", rich_help_panel=_MODEL
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            help="SOURCE,TARGET in the codes of a multilingual model: eng_Latn,deu_Latn.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="What the model reads for a source, with {src} {source} {target}; \\n is a new line.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    passes: Annotated[int, typer.Option(min=2, help="Passes of MC dropout.", rich_help_panel=_MODEL)] = 10,
    probes: Annotated[int, typer.Option(min=1, help="Directions of BLOOD.", rich_help_panel=_MODEL)] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of both.", rich_help_panel=_MODEL)] = 0,
    device: o.Device = "cpu",
    threads: o.Threads = None,
    dtype: o.Dtype = "float32",
    batch_tokens: o.BatchTokens = 2048,
    where: o.Where = None,
    src: o.Source = None,
    mt: o.Translation = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    html: Annotated[
        str | None, typer.Option(help="File for a page with all segments.", rich_help_panel=_OUTPUT)
    ] = None,
    pretty: o.Pretty = None,
    rows: o.MostRows = 40,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Shade the words of translations by suspicion; `words evaluate` measures how well that works."""
    given = locals()
    from doubtless.cli.render import print_json, print_table, wants_pretty, warn
    from doubtless.segments import write

    o.checked_output(output)
    to_file = o.is_file(output)
    found = _found(given)
    for sentence in found.warnings:
        warn(sentence)
    if to_file:
        write(found.frame(), str(output), found.footer)
    if html:
        from doubtless.cli.words_page import page
        from doubtless.formats.files import replace_file

        replace_file(html, page(found).encode())
    if json:
        print_json(found.summary())
    elif output is None and wants_pretty(pretty):
        from doubtless.cli.words_page import print_words

        print_words(found, rows)
    elif not to_file and not (html and output is None and pretty is None):
        print_table(found.frame())


def _found(given: dict[str, Any]) -> Wording:
    from doubtless.cli.score import segments_of
    from doubtless.cli.wording import Wishes, word_table
    from doubtless.cli.words_threshold import Threshold
    from doubtless.errors import InputError
    from doubtless.words.tagger import checked_form

    codes = o.names(given["languages"])
    if codes and len(codes) != 2:
        raise InputError(f"--languages are two codes SOURCE,TARGET, found '{given['languages']}'")
    model, signals = given["model"], o.names(given["signals"])
    if model is None:
        if given["languages"] or given["prompt"]:
            raise InputError("--languages and --prompt are for a translation model: --model")
        if signals not in ((), ("surprisal",)):
            raise InputError("without --model only surprisal is known, from recorded log-probabilities")
    tagger = given["tagger"] or ("none" if model or signals else "bundled")
    if tagger == "none" and not (model or signals):
        raise InputError("nothing to look at: give --tagger, --model or --signals")
    if given["form"] and tagger == "none":
        raise InputError("--form is of what a tagger says: --tagger")
    prompt = given["prompt"]
    wishes = Wishes(
        signals=signals or (("surprisal", "entropy") if model else ()),
        model=model,
        tagger=None if tagger == "none" else tagger,
        form=checked_form(given["form"] or "confidence"),
        join=given["join"],
        passes=given["passes"],
        probes=given["probes"],
        seed=given["seed"],
        languages=(codes[0], codes[1]) if codes else None,
        prompt=None if prompt is None else prompt.replace("\\n", "\n"),
        threshold=None if given["threshold"] is None else Threshold.read(given["threshold"]),
    )
    table = segments_of({**given, "references": None, "ref": None})
    return word_table(table, wishes, o.running(given))
