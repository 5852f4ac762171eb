from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from doubtless.ranks import earlier_greater


@given(st.lists(st.integers(-4, 4), max_size=70))
def test_counts_equal_the_definition(values):
    expected = [sum(earlier > value for earlier in values[:i]) for i, value in enumerate(values)]
    assert earlier_greater(values).tolist() == expected


def test_reversed_numbers_are_all_inverted():
    assert earlier_greater(np.arange(1000)[::-1]).sum() == 1000 * 999 // 2
