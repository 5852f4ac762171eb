"""Annotations of every kind become human scores, beside the rows of a table or the segments of a folder."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from doubtless.errors import InputError
from doubtless.metaeval.rated import beside_rows, by_segment, columns_of_items
from doubtless.metaeval.ratings import human_scores, mqm_scores, together
from doubtless.segments import as_table

# One translation with a major error and a minor punctuation error, one without errors.
EXPECTED = {"A": -5.1, "B": 0.0}


def scores_of(path, **options):
    found = human_scores(path, **options).frame
    return dict(zip(found["system"].to_list(), found["human"].to_list(), strict=True))


def test_one_row_an_error(tmp_path):
    file = tmp_path / "mqm.tsv"
    file.write_text(
        "system\tdoc\tseg_id\trater\tcategory\tseverity\n"
        "A\td\t1\tr1\tAccuracy/Omission\tMajor\n"
        "A\td\t1\tr1\tFluency/Punctuation\tMinor\n"
        "B\td\t1\tr1\tno-error\tno-error\n"
    )
    assert scores_of(file, item=("doc", "seg_id")) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "tsv"])
def test_one_row_a_rating_with_lists(tmp_path, ending):
    rows = [
        {
            "system": "A",
            "seg": 0,
            "severities": ["major", "minor"],
            "categories": ["", "Fluency/Punctuation"],
        },
        {"system": "B", "seg": 0, "severities": [], "categories": []},
    ]
    file = tmp_path / f"mqm.{ending}"
    if ending == "parquet":
        pl.DataFrame(rows).write_parquet(file)
    elif ending == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        texts = [{k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows]
        pl.DataFrame(texts).write_csv(file, separator="\t")
    assert scores_of(file) == pytest.approx(EXPECTED)


def test_errors_marked_in_the_source_count_too():
    row = {"system": "A", "seg": 0, "severities": ["minor"], "categories": ["Style"]}
    table = as_table([row | {"src_severities": ["major"], "src_categories": ["Accuracy/Omission"]}])
    assert mqm_scores(table).frame.rows() == [("A", 0, -6.0, 1, 2)]


def test_rating_files_of_the_metrics_task(tmp_path):
    errors = [
        {"start": 0, "end": 3, "severity": "major", "category": "Accuracy"},
        {"start": 4, "end": 5, "severity": "minor", "category": "Fluency/Punctuation"},
    ]
    file = tmp_path / "en-de.mqm.merged.seg.rating"
    file.write_text(f'A\t{json.dumps({"errors": errors})}\tr1\r\nA\tNone\r\nB\t{{"errors": []}}\tr2\r\n')
    assert scores_of(file) == pytest.approx(EXPECTED)
    assert human_scores(file, item=("line",)).frame.columns[:3] == ["lp", "system", "line"]
    with pytest.raises(InputError, match="segments have numbers here, expected one column of segments"):
        human_scores(file, item=("doc", "seg"))


def test_esa_as_it_was_released(tmp_path):
    spans = [{"start_i": 3, "end_i": 9}, {"start_i": "missing", "end_i": "missing"}]
    common = {"langs": "en-cs", "system": "A", "annotator": "x"}
    rows = [
        {**common, "line_id": 0, "esa_score": 80, "esa_spans": spans[:1]},
        {**common, "line_id": 0, "esa_score": 60, "esa_spans": spans[1:]},
        {**common, "line_id": 1, "esa_score": None, "esa_spans": []},
    ]
    file = tmp_path / "esa.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = human_scores(file, item=("line_id",)).frame
    assert found.columns == ["lp", "system", "line_id", "human", "raters", "errors"]
    assert found.rows() == [("en-cs", "A", 0, 70.0, 2, None)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("system,seg,comet\nA,0,1\n", "no annotations, expected a column severity or severities"),
        ("system,seg,severity,esa\nA,0,minor,90\n", r"both MQM \('severity'\) and ESA \('esa'\)"),
        ("system,seg,severity\nA,0,minor\nA,1,grave\n", "r.csv:3: 'grave' is no known severity"),
        ("system,seg,severity\nA,0,\n", "r.csv:2: '' is no known severity"),
        ("system,seg,severities\nA,0,minor\n", "r.csv:2: expected a list of errors"),
        ("system,seg,score\nA,0,-1\n", "r.csv:2: an ESA score of -1, expected 0 to 100"),
        ("system,seg,score\nA,0,\n", "no row has a number in column 'score'"),
        ("system,line,score\nA,0,50\n", "no column 'seg'"),
    ],
)
def test_what_is_wrong_with_ratings_is_said(tmp_path, text, sentence):
    file = tmp_path / "r.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=sentence):
        human_scores(file)


def test_several_files_are_averaged_over_raters(tmp_path):
    one, two = tmp_path / "r1.csv", tmp_path / "r2.csv"
    one.write_text("system,seg,rater,severity\nA,0,a,minor\nA,0,b,major\n")
    two.write_text("system,seg,rater,severity\nA,0,c,major\nB,0,c,no-error\n")
    found = together([human_scores(one), human_scores(two)]).frame
    assert found.rows() == [("A", "0", pytest.approx(-11 / 3), 3, 3), ("B", "0", 0.0, 1, 0)]
    two.write_text("lp,system,seg,severity\nen-de,A,0,major\n")
    with pytest.raises(InputError, match="ratings by lp, system, seg, but those before by system, seg"):
        together([human_scores(one), human_scores(two)])


def ratings(rows):
    return as_table([dict(zip(("lp", "system", "seg", "human"), row, strict=True)) for row in rows], "r.csv")


def test_ratings_stand_beside_their_rows_whatever_the_columns_are_called():
    table = as_table(
        [{"lp": "en-de", "sys": s, "line": i} for s in "AB" for i in (1.0, 2.0)],  # floats, as from pandas
        "t.csv",
    )
    rated = ratings([("en-de", "B", 1, -1.0), ("en-de", "A", 2, -2.0), ("en-cs", "A", 1, -9.0)])
    found = beside_rows(table, rated, system="sys", item=columns_of_items(["line=seg"]))
    assert found.human.tolist() == pytest.approx([np.nan, -2.0, -1.0, np.nan], nan_ok=True)
    assert (found.rated, found.unused, found.example) == (3, 1, "en-cs A 1")


def test_one_language_pair_needs_no_name():
    table = as_table([{"system": "A", "seg": "0"}], "t.csv")
    assert beside_rows(table, ratings([("en-de", "A", 0, -1.0)])).human.tolist() == [-1.0]
    with pytest.raises(InputError, match=r"t.csv: no column 'lp', but r.csv has 2 language pairs"):
        beside_rows(table, ratings([("en-de", "A", 0, -1.0), ("en-cs", "A", 0, -1.0)]))


def test_ratings_of_something_else_are_said():
    table = as_table([{"system": "A", "seg": 1}], "t.csv")
    with pytest.raises(
        InputError, match=r"no rating belongs to a row of t.csv: .* 'A 0', the table of 'A 1'"
    ):
        beside_rows(table, ratings([("en-de", "A", 0, -1.0)]))
    nameless = as_table([{"system": "A", "seg": 1}, {"system": None, "seg": 1}], "t.csv")
    with pytest.raises(InputError, match="t.csv, row 2: column 'system' is empty"):
        beside_rows(nameless, ratings([("en-de", "A", 1, -1.0)]))


@pytest.mark.parametrize(("numbers", "first"), [([0, 2], None), ([1, 3], None), ([1, 2], 1), ([1, 2], 0)])
def test_segments_of_a_folder_are_counted_from_0_or_1(numbers, first):
    rated = ratings([("en-de", "A", number, float(number)) for number in numbers])
    found = by_segment(rated, "en-de", 3, first=first)["A"]
    begin = first if first is not None else int(0 not in numbers)
    assert {i + begin for i in np.flatnonzero(~np.isnan(found))} == set(numbers)


@pytest.mark.parametrize(
    ("pair", "number", "first", "sentence"),
    [
        ("en-de", 1, None, "are the 3 segments of en-de counted from 0 or from 1"),
        ("en-de", 3, 0, "a rating of segment 3, but en-de has 3, counted from 0"),
        ("en-de", 0.5, 0, "column 'seg' holds no numbers of segments"),
        ("en-cs", 1, 0, r"no ratings of en-cs \(there are: en-de\)"),
    ],
)
def test_segments_that_a_folder_does_not_have_are_said(pair, number, first, sentence):
    with pytest.raises(InputError, match=sentence):
        by_segment(ratings([("en-de", "A", number, 0.0)]), pair, 3, first=first)
