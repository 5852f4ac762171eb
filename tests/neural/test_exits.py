"""Rules of leaving early, on recorded traces."""

from __future__ import annotations

import numpy as np
import pytest

from doubtless.errors import InputError
from doubtless.neural.exits import predicted_change


def test_a_model_that_predicts_no_error_cannot_tell_its_change():
    with pytest.raises(InputError, match="predicts no error"):
        predicted_change({"score": np.zeros(2)})
    np.testing.assert_array_equal(predicted_change({"error": np.ones(2)}), [1, 1])
