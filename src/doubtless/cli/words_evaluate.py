"""``doubtless words evaluate``: suspicions of words against one or several annotators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doubtless.cli import options as o

if TYPE_CHECKING:
    from doubtless.words.control import Rule
    from doubtless.words.judged import Judged

_THRESHOLDS, _DOUBT, _OUTPUT = "Thresholds", "Comparing metrics", "Output"


def words_evaluate(
    file: o.File,
    scores: Annotated[
        str | None,
        typer.Option(
            help="Columns C,C of suspicions: a number a word, lists of them, or spans. C:best is the one of"
            " C:0, C:1, … that is best on --calibration."
        ),
    ] = None,
    annotators: Annotated[
        str,
        typer.Option(
            help="Columns C,C of labels (OK, BAD, 0, 1), lists of them, or spans; NAME=STARTS+ENDS,"
            " NAME=v:C (<v> marks), NAME=pe:C (post-edits)."
        ),
    ] = "",
    annotations: Annotated[
        str | None,
        typer.Option(
            help="Table of segments with the annotators' columns; FILE is then what `words` made of it."
            " --where chooses rows of this table, as it did there."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Column of groups; lp, if there is one.")] = None,
    words: Annotated[
        str | None, typer.Option(help="For spans: column of words. Default: the translation is cut.")
    ] = None,
    segment: Annotated[str, typer.Option(help="One row a word: column that tells segments apart.")] = "row",
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Table that thresholds come from. Default: halves of this one, each by the other.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    calibration_annotations: Annotated[
        str | None,
        typer.Option(
            help="For --calibration what --annotations is for FILE. --where chooses rows of both.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    missed: Annotated[
        float | None,
        typer.Option(
            help="Promise that at most this share of the wrong words is missed, and see how it is kept.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            help="The highest threshold that finds this share of the wrong calibration words.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="The lowest threshold whose flags on calibration words are right this often.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    f1: Annotated[
        bool,
        typer.Option(
            "--f1",
            help="The threshold with the best F1 on calibration words.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Of the promise; without it, it holds in expectation.", rich_help_panel=_THRESHOLDS
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            help="File (JSON) for the threshold: one metric, one annotator.",
            rich_help_panel=_THRESHOLDS,
        ),
    ] = None,
    figure: Annotated[
        str, typer.Option(help="Metrics are compared by ap or f1.", rich_help_panel=_DOUBT)
    ] = "ap",
    resamples: Annotated[
        int, typer.Option(min=0, help="Draws of segments and annotators; 0: none.", rich_help_panel=_DOUBT)
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.", rich_help_panel=_DOUBT)] = 0,
    where: o.Where = None,
    mt: o.Translation = None,
    format: o.Format = None,
    quotes: o.Quotes = "csv",
    curves: Annotated[
        str | None,
        typer.Option(help="File for the precision-recall curves, by its ending.", rich_help_panel=_OUTPUT),
    ] = None,
    json: o.Json = False,
) -> None:
    """Measure suspicions of words against one or several annotators."""
    given = locals()
    from doubtless.cli.render import print_json, wants_pretty
    from doubtless.cli.words_judged import print_judgement
    from doubtless.errors import InputError
    from doubtless.words.difference import check_figure

    o.checked_output(curves)
    check_figure(figure)
    if missed is None and confidence is not None:
        raise InputError("--confidence belongs to a promise: --missed")
    if control and _rule(given) is None:
        raise InputError("--control keeps a threshold: say by --missed, --recall, --precision or --f1 which")
    if _rule(given) is not None and not o.names(scores):
        raise InputError("a threshold is for the suspicions of a metric: --scores")
    if control and (len(o.names(scores)), len(o.names(annotators))) != (1, 1):
        raise InputError("--control keeps the threshold of one metric and one annotator")
    if calibration_annotations and calibration is None:
        raise InputError("--calibration-annotations belong to a table of words: --calibration")
    found = judgement(*_both(given), given)
    if json or not wants_pretty(None):
        print_json({"file": file, **found})
    else:
        print_judgement(file, found)


def _both(given: Mapping[str, Any]) -> tuple[Judged, Judged | None, list[dict[str, Any]]]:
    """The words, those of the calibration table, and how the best layers were chosen on the latter."""
    from doubtless.errors import InputError
    from doubtless.words.layers import asks_for_best, best_layers, with_best_layers

    names, calibration = o.names(given["scores"]), given["calibration"]
    if calibration is None:
        if asks_for_best(names):
            raise InputError("the best layer is chosen on other words than it is judged on: --calibration")
        return _judged(given, names, given["file"], given["annotations"]), None, []
    if asks_for_best(names) and given["missed"] is not None:
        raise InputError("a promise needs words that did not choose the layer: name it instead of best")
    other = _judged(given, names, calibration, given["calibration_annotations"])
    judged = _judged(given, tuple(other.scores), given["file"], given["annotations"])
    if not asks_for_best(names):
        return judged, other, []
    layers = best_layers(other, names)
    kept = with_best_layers(names, layers)
    return judged.of_metrics(kept), other.of_metrics(kept), layers


def _judged(given: Mapping[str, Any], scores: tuple[str, ...], file: str, annotations: str | None) -> Judged:
    """The words of a table, or those that ``words`` made of a table with annotations."""
    from doubtless.cli.render import warn
    from doubtless.segments import read
    from doubtless.words.layers import layer_columns
    from doubtless.words.tables import judged_words, with_word_scores

    table = o.read_table({**given, "file": annotations or file, "src": None, "ref": None})
    words = read(file) if annotations else table
    names = layer_columns(scores, words.frame.columns)
    if annotations:
        total, table = len(table), with_word_scores(table, words, names)
        if len(table) < total:
            warn(f"{total - len(table)} of {total} segments have words without a value: they are left out")
    options = {name: given[name] for name in ("by", "words", "segment")}
    return judged_words(table, names, o.names(given["annotators"]), **options)


def _rule(given: Mapping[str, Any]) -> tuple[Rule, float | None] | None:
    """How a threshold is to be chosen, and the target."""
    from doubtless.errors import InputError

    shares: tuple[Rule, ...] = ("missed", "recall", "precision")
    wished: list[tuple[Rule, float | None]] = [
        (rule, given[rule]) for rule in shares if given[rule] is not None
    ]
    if given["f1"]:
        wished.append(("f1", None))
    if len(wished) > 1:
        raise InputError("a threshold is chosen by one of --missed, --recall, --precision and --f1")
    return wished[0] if wished else None


def judgement(
    judged: Judged, calibration: Judged | None, layers: list[dict[str, Any]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """All that is measured, as plain data; files are written last."""
    from dataclasses import asdict, replace

    import polars as pl

    import doubtless
    from doubtless.cli.words_threshold import recorded_making
    from doubtless.segments import write
    from doubtless.words.agreement import (
        annotator_agreement,
        edit_count_correlations,
        judge,
        precision_recall,
        try_thresholds,
    )
    from doubtless.words.control import save
    from doubtless.words.difference import differences

    seed, several = given["seed"], len(judged.labels) > 1
    found: dict[str, Any] = {
        "segments": len(judged.group),
        "words": len(judged.segment),
        "annotators": list(judged.labels),
        "groups": judged.groups,
        "figures": judge(judged, calibration, seed),
    }
    if layers:
        found["layers"] = layers
    if several:
        found["agreement"] = annotator_agreement(judged)
        found["edit_counts"] = edit_count_correlations(judged, seed)
    if given["resamples"] and len(judged.scores) > 1:
        drawn = differences(judged, given["figure"], resamples=given["resamples"], seed=seed)
        found["differences"] = [asdict(difference) for difference in drawn]
    if (rule := _rule(given)) is not None:
        tested, own = (judged, calibration) if calibration is not None else judged.halves(seed)
        controls, found["thresholds"] = try_thresholds(tested, own, *rule, given["confidence"])
        if given["control"]:
            ((signal, by_annotator),) = controls.items()
            (threshold,) = by_annotator.values()
            made_with = recorded_making(given["calibration"] or given["file"], signal)
            save(replace(threshold, signal=signal, made_with=made_with), given["control"])
    if given["curves"]:
        write(pl.DataFrame(precision_recall(judged)), given["curves"])
    thresholds = "halves" if calibration is None else "calibration"
    parts = [f"thresholds:{thresholds}", f"resamples:{given['resamples']}", f"seed:{seed}"]
    return found | {"signature": "|".join([*parts, f"version:{doubtless.__version__}"])}
