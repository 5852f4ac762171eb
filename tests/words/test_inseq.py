"""Surprisal and entropy against Inseq's step scores on the same models (``golden/make_inseq.py``)."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from doubtless.words.forced import open_translation_model
from doubtless.words.signals import token_signals

FOLDER = Path(__file__).parent / "golden"
RECIPE = runpy.run_path(str(FOLDER / "make_inseq.py"))
GOLDEN = json.loads((FOLDER / "inseq.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", GOLDEN)
def test_surprisal_and_entropy_are_those_of_inseq(kind, tmp_path):
    RECIPE["build"](kind, tmp_path)
    model = open_translation_model(tmp_path, languages=RECIPE["LANGUAGES"][kind])
    found = token_signals(model, RECIPE["SOURCES"], RECIPE["TRANSLATIONS"], ["surprisal", "entropy"])
    for own, theirs in zip(found, GOLDEN[kind], strict=True):
        names, count = theirs["tokens"], len(own.tokens)
        # Inseq also scores tags and ends.
        start = next(i for i in range(len(names)) if names[i : i + count] == own.tokens)
        text = slice(start, start + count)
        surprisal = -np.log(theirs["probability"][text])
        np.testing.assert_allclose(own.values["surprisal"], surprisal, rtol=0, atol=1e-5)
        np.testing.assert_allclose(own.values["entropy"], theirs["entropy"][text], rtol=0, atol=1e-5)
        assert np.ptp(surprisal) > 1  # predictions that differ, so that a shift by a token would show
