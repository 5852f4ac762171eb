"""Tables against dictionaries, units and meetings against loops."""

from zlib import crc32

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from doubtless.surface.table import Table, keys
from doubtless.surface.units import NOTHING, Meetings, Units, in_order

numbers = st.floats(0, 1)
some_keys = st.integers(0, 2**32 - 1) | st.integers(0, 40)  # the second kind fills one bucket


@given(st.dictionaries(some_keys, numbers, min_size=1), st.lists(some_keys, min_size=1))
def test_a_table_finds_what_a_dictionary_finds(entries, wanted):
    table = Table.of([(np.array(list(entries), dtype=np.uint32), np.array(list(entries.values())))])
    asked = np.array([*wanted, *entries], dtype=np.uint32)
    found = table.look(asked, -1.0)
    expected = [round(entries[key] * 255) / 255 if key in entries else -1.0 for key in asked.tolist()]
    assert np.abs(found - expected).max() < 1e-12 + 0.51 / 255
    assert ((found == -1.0) == (np.array(expected) == -1.0)).all()
    assert len(table) == len(entries)


def test_an_empty_table_knows_nothing():
    table = Table.of([(np.zeros(0, np.uint32), np.zeros(0))])
    assert table.look(np.array([1, 2], dtype=np.uint32), 0.5).tolist() == [0.5, 0.5]


def test_the_first_of_several_entries_stays():
    key = np.array([7], dtype=np.uint32)
    assert Table.of([(key, np.array([1.0])), (key, np.array([0.0]))]).look(key, 0.5).tolist() == [1.0]


def test_keys_are_the_same_on_every_machine_and_differ_by_kind_and_order():
    first, second = np.array([1, 2], dtype=np.uint64), np.array([2, 1], dtype=np.uint64)
    assert keys("a", first).tolist() == keys("a", first, NOTHING).tolist()
    made = [*keys("a", first, second), *keys("b", first, second), *keys("a", first)]
    assert len(set(map(int, made))) == 6
    assert keys("et-en forth", np.array([3], dtype=np.uint64), 5).tolist() == [by_hand("et-en forth", 3, 5)]


def by_hand(kind, first, second):
    """The key in Python's own integers."""
    mixed = first * 0x9E3779B97F4A7C15 + (second + crc32(kind.encode())) * 0xC2B2AE3D27D4EB4F
    mixed %= 2**64
    mixed ^= mixed >> 29
    return mixed * 0x9E3779B97F4A7C15 % 2**64 >> 32


def test_keys_collide_about_as_often_as_chance_has_it():
    codes = np.arange(200_000, dtype=np.uint64)
    # Of n keys of 32 bits n**2 / 2**33 pairs are expected to be equal: 4.7.
    assert 200_000 - len(np.unique(keys("seen", codes, codes[::-1]))) < 20


words = st.lists(st.sampled_from(["a", "bb", "ccc", "дом", "家", "!"]), max_size=6).map(" ".join)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_units_meet_all_units_of_their_own_text(rows):
    left, right = (Units.of(pl.Series(side, dtype=pl.String)) for side in zip(*rows, strict=True))
    met = Meetings.of(left, right)
    expected, place = [], 0
    for row in range(len(rows)):
        own = left.codes[left.owner == row].tolist()
        for code in right.codes[right.owner == row].tolist():
            expected += [(source, code, place) for source in [NOTHING, *own]]
            place += 1
    found = list(zip(met.left.tolist(), met.right.tolist(), met.place.tolist(), strict=True))
    assert found == expected


@given(st.lists(st.lists(st.floats(-5, 5), max_size=9), min_size=1, max_size=6))
def test_values_in_order(rows):
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values = np.array([value for row in rows for value in row], dtype=np.float64)
    found = in_order(values, owner, len(rows))
    for row, own in zip(rows, found, strict=True):
        ordered = sorted(row)
        k = max(len(row) // 4, 1)
        expected = (
            [np.mean(row), np.mean(ordered[:k]), np.mean(ordered[-k:]), ordered[0], ordered[len(row) // 2]]
            if row
            else [0.0] * 5
        )
        np.testing.assert_allclose(own, expected, atol=1e-9)


def test_the_unit_before_the_first_is_none():
    units = Units.of(pl.Series(["one two", "", "three"]))
    one, _two, _three = units.codes.tolist()
    assert units.before.tolist() == [NOTHING, one, NOTHING]
    assert units.lengths.tolist() == [2, 0, 1]


def test_units_of_no_text():
    units = Units.of(pl.Series(["", ""]))
    assert len(units.codes) == 0
    assert units.lengths.tolist() == [0, 0]
