"""Test sets in folders, score files, annotations, and baselines on texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from testset import write_test_set

from doubtless.errors import InputError
from doubtless.metaeval.folder import PairFolder, language_pairs, read_scores, write_scores
from doubtless.metaeval.ratings import esa_scores, mqm_scores, read_ratings
from doubtless.segments import as_table, read


def test_a_folder_is_read_as_the_task_lays_it_out(tmp_path):
    human = write_test_set(tmp_path)
    folder = PairFolder(tmp_path, "en-de")
    grid = folder.grid("mqm", "refA")
    assert language_pairs(tmp_path) == ["en-de"]
    assert grid.systems == ("A", "B", "C")
    assert set(grid.metrics) == {"good", "poor[noref]"}  # the third used another reference
    assert np.array_equal(grid.human, human[:3], equal_nan=True)
    assert grid.missing == 3
    assert grid.system_scores("good")[0] == pytest.approx(np.nanmean(human[:3], axis=1))
    with_humans = folder.grid("mqm", "refA", humans=True, outliers=["B"])
    assert with_humans.systems == ("A", "C", "refB")
    news = folder.grid("mqm", "refA", domain="news")
    assert news.human.shape == (3, 15)
    table = folder.table("refA")
    assert table.frame["mt"][0] == "segment number 0 A"
    assert len(table) == 4 * 30


def test_a_metric_that_lacks_a_system_is_left_out_and_named(tmp_path):
    write_test_set(tmp_path)
    file = tmp_path / "metric-scores" / "en-de" / "good-refA.seg.score"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("B\t")))
    folder = PairFolder(tmp_path, "en-de")
    assert "good" not in folder.grid("mqm", "refA").metrics
    assert folder.left_out == {"metric 'good'": "no seg scores for B"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("A 1.0\nA\n", "x.seg.score:2: 1 field, expected a system and a score"),
        ("A one\n", "x.seg.score:1: 'one' is not a number"),
        ("A inf\n", "x.seg.score:1: 'inf' is not a finite number"),
        ("", "x.seg.score: the file holds no scores"),
    ],
)
def test_a_bad_score_file_is_said_with_its_line(tmp_path, content, sentence):
    file = tmp_path / "x.seg.score"
    file.write_text(content)
    with pytest.raises(InputError, match=sentence):
        read_scores(file)


def test_wrong_folders_are_said(tmp_path):
    with pytest.raises(InputError, match="no folder human-scores"):
        language_pairs(tmp_path)
    write_test_set(tmp_path)
    folder = PairFolder(tmp_path, "en-de")
    with pytest.raises(InputError, match=r"no reference 'refZ' for en-de \(there are: refA, refB\)"):
        folder.grid("mqm", "refZ")
    with pytest.raises(InputError, match=r"no 'esa' scores of segments for en-de \(there are: mqm\)"):
        folder.grid("esa", "refA")
    file = tmp_path / "metric-scores" / "en-de" / "good-refA.seg.score"
    file.write_text(file.read_text() + "A\t1.0\n")
    with pytest.raises(InputError, match="good-refA.seg.score: 31 scores for 'A', expected 30"):
        folder.grid("mqm", "refA")


def test_scores_survive_a_round_trip(tmp_path):
    scores = {"A": np.array([0.1, np.nan, 1e-300]), "B": np.array([1 / 3, 2.0, -5.5])}
    write_scores(tmp_path / "m.seg.score", scores)
    again = read_scores(tmp_path / "m.seg.score")
    assert all(np.array_equal(scores[s], again[s], equal_nan=True) for s in scores)


def test_mqm_errors_become_penalties_averaged_over_raters():
    rows = [
        {"system": "A", "seg_id": 1, "rater": "r1", "severity": "Major", "category": "Accuracy/Omission"},
        {"system": "A", "seg_id": 1, "rater": "r1", "severity": "Minor", "category": "Fluency/Punctuation"},
        {"system": "A", "seg_id": 1, "rater": "r2", "severity": "no-error", "category": "no-error"},
        {"system": "B", "seg_id": 1, "rater": "r1", "severity": "Major", "category": "Non-translation!"},
    ]
    found = mqm_scores(as_table(rows), item=("seg_id",)).frame
    assert found["human"].to_list() == pytest.approx([-2.55, -25.0])
    assert found["raters"].to_list() == [2, 1]
    assert found["errors"].to_list() == [2, 1]
    with pytest.raises(InputError, match="row 1: 'grave' is no known severity"):
        mqm_scores(as_table([{"system": "A", "seg": 1, "severity": "grave", "category": ""}]))


def test_ratings_as_lists_and_rating_files_agree(tmp_path):
    rating = {"errors": [{"start": 0, "end": 3, "severity": "major", "category": "Style"}]}
    file = tmp_path / "en-de.mqm.merged.seg.rating"
    file.write_text(f'A\t{json.dumps(rating)}\tr1\nA\tNone\nA\t{{"errors": []}}\tr2\n')
    table = read_ratings(file)
    assert table.frame["seg"].to_list() == [0, 2]
    assert mqm_scores(table).frame["human"].to_list() == [-5.0, 0.0]
    file.write_text("A\t[]\tr1\n")
    with pytest.raises(InputError, match="rating:1: the rating is no JSON object with errors"):
        read_ratings(file)


def test_esa_scores_are_averaged_and_spans_counted():
    rows = [
        {"system": "A", "seg": 1, "score": 80.0, "error_spans": '[{"start_i": 0}]'},
        {"system": "A", "seg": 1, "score": 60.0, "error_spans": "[]"},
        {"system": "B", "seg": 1, "score": None, "error_spans": None},
    ]
    found = esa_scores(as_table(rows)).frame
    assert found.rows() == [("A", 1, 70.0, 2, 1)]
    with pytest.raises(InputError, match="an ESA score of 120, expected 0 to 100"):
        esa_scores(as_table([{"system": "A", "seg": 1, "score": 120.0}]))


@pytest.mark.data
def test_published_mqm_penalties_come_out_of_the_annotations(data):
    table = read(data / "mqm_spans.parquet").where(
        "seg is not null and lp = 'en-de' and \"set\" = 'wmt21_news'"
    )
    ours = mqm_scores(table, item=("doc", "seg")).frame
    theirs = table.frame.group_by(["lp", "system", "doc", "seg"], maintain_order=True).agg(_mean("mqm"))
    assert ours["human"].to_list() == pytest.approx((-theirs["mqm"]).to_list(), abs=1e-5)


def _mean(name):
    import polars as pl

    return pl.col(name).mean()


def test_lexical_baselines_carry_their_signatures():
    pytest.importorskip("sacrebleu")
    from doubtless.metaeval.baselines import lexical

    mt, ref = ["the cat sat", "a dog barked loudly"], ["the cat sat", "the dog barked"]
    for name in ("BLEU", "chrF", "TER"):
        found = lexical(name, mt, ref, ["A", "A"], ["de-en", "de-en"])
        assert found.segments[0] > found.segments[1]  # higher is better, for TER too
        assert set(found.systems) == {("de-en", "A")}
        assert found.signatures[0].startswith(f"metric:{name}|nrefs:1")
        assert "version:" in found.signatures[0]
        assert ("eff:yes" in found.signatures[-1]) == (name != "TER")
    for pair in ("en-zh", "en-zh_CN"):
        assert "tok:zh" in lexical("BLEU", ["我们去"], ["我们去"], ["A"], [pair]).signatures[0]
    with pytest.raises(InputError, match="there is no baseline 'METEOR'"):
        lexical("METEOR", mt, ref, ["A", "A"], ["de-en", "de-en"])


def test_greedy_matching_finds_the_same_text_best(tmp_path):
    pytest.importorskip("torch")
    from tiny import TEXTS, write_encoder

    from doubtless.metaeval.greedy import GreedyMatcher

    matcher = GreedyMatcher(write_encoder(tmp_path / "encoder"), layer=2, batch=3)
    scores = matcher.score([TEXTS[0], TEXTS[2], ""], [TEXTS[0], TEXTS[8], TEXTS[0]])
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert 0 <= scores[1] < 1
    assert scores[2] == 0
    alone = GreedyMatcher(tmp_path / "encoder", layer=2, batch=1).score([TEXTS[2]], [TEXTS[8]])
    assert alone[0] == pytest.approx(scores[1], abs=1e-4)  # padding changes nothing
    assert "encoder:encoder|layer:2" in matcher.signature
    with pytest.raises(InputError, match="the encoder has 3 layers, there is no layer 9"):
        GreedyMatcher(tmp_path / "encoder", layer=9)
    with pytest.raises(InputError, match="there is no such folder"):
        GreedyMatcher(tmp_path / "nowhere")
