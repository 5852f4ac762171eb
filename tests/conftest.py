from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# These machines are noisy: a slow example is no failure.
settings.register_profile("doubtless", deadline=None, max_examples=60)
settings.load_profile("doubtless")


@pytest.fixture
def data() -> Path:
    """The directory of the real data sets; the test is skipped where it is not known."""
    directory = os.environ.get("DOUBTLESS_DATA")
    if not directory:
        pytest.skip("real data: set DOUBTLESS_DATA to the directory of the data sets")
    return Path(directory)
