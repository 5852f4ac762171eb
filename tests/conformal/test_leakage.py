from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from doubtless.conformal.leakage import MOST_KEPT, Sketch, fingerprints


def table(start: int, stop: int) -> pl.DataFrame:
    numbers = range(start, stop)
    return pl.DataFrame(
        {"src": [f"source {i}" for i in numbers], "mt": [f"translation {i}" for i in numbers]}
    )


def test_fingerprints_are_the_same_everywhere():
    assert fingerprints(table(0, 1)).tolist() == [0xD477A34FE3CE097D]


def test_parts_of_a_table_have_its_fingerprints(monkeypatch):
    whole = fingerprints(table(0, 20)).tolist()
    monkeypatch.setattr("doubtless.conformal.leakage._AT_ONCE", 7)
    assert fingerprints(table(0, 20)).tolist() == whole
    assert len(set(whole)) == 20


def test_cells_do_not_run_into_each_other():
    one = pl.DataFrame({"a": ["x", "xy"], "b": ["yz", "z"], "c": [None, ""]})
    assert len(set(fingerprints(one).tolist())) == 2
    null_or_empty = pl.DataFrame({"a": [None, ""]}, schema={"a": pl.String})
    assert len(set(fingerprints(null_or_empty).tolist())) == 2


def test_small_tables_are_compared_exactly():
    sketch = Sketch.of(fingerprints(table(0, 1_000)))
    assert sketch.seen_again(fingerprints(table(900, 1_500))) == 100
    assert sketch.seen_again(fingerprints(table(1_000, 1_500))) == 0


def test_the_overlap_of_large_tables_is_estimated():
    sketch = Sketch.of(fingerprints(table(0, 50_000)))
    assert len(sketch.kept) == MOST_KEPT
    estimate = sketch.seen_again(fingerprints(table(40_000, 60_000)))
    assert estimate == pytest.approx(10_000, rel=0.1)
    assert sketch.seen_again(fingerprints(table(50_000, 70_000))) == 0


def test_an_empty_sketch_has_seen_nothing():
    assert Sketch.of(np.empty(0, dtype=np.uint64)).seen_again(fingerprints(table(0, 3))) == 0
