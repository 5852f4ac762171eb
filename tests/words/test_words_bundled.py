"""Words of MLQE-PE as the studies of the bundled model see them."""

from __future__ import annotations

import numpy as np
import pytest

from doubtless.reproduce.bundled import tagged_pieces, word_values
from doubtless.words.spans import ErrorSpan
from doubtless.words.tagger import TaggedWords

SEGMENT = {
    "mt": "It's a cow-bell.",
    "mt_tok": "It 's a cow-bell .",
    "mt_tags": ["OK", "BAD", "OK", "BAD", "OK"],
    "nmt_tok": "It &apos;s a c@@ ow @-@ bell .",
    "nmt_logprobs": [-0.1, -0.2, -0.3, -0.4, -1.5, -0.6, -0.7, -0.8, -0.9],  # the last one is of the end
}
TAGGED = TaggedWords([(0, 4), (5, 6), (7, 15), (15, 16)], np.array([0.2, 0.1, 0.9, 0.3]), [ErrorSpan(7, 10)])


def test_values_are_those_of_the_worst_token_of_each_tokenised_word():
    found = word_values(SEGMENT, TAGGED)
    assert found["tagger"].tolist() == [0.2, 0.2, 0.1, 0.9, 0.3]
    assert found["spans"].tolist() == [0, 0, 0, 1, 0]
    assert found["surprisal"] == pytest.approx([0.1, 0.2, 0.3, 1.5, 0.8])
    assert found["post-editor"].tolist() == [0, 1, 0, 1, 0]


def test_what_does_not_fit_together_has_no_words():
    assert word_values(SEGMENT | {"nmt_tok": None}, TAGGED) is None
    assert word_values(SEGMENT | {"nmt_tok": "It"}, TAGGED) is None
    assert tagged_pieces(SEGMENT | {"mt_tok": "quite another text"}, TAGGED) is None
    unread = TaggedWords(TAGGED.words, TAGGED.probability, TAGGED.spans, True, 7)
    assert tagged_pieces(SEGMENT, unread) is None
    assert tagged_pieces(SEGMENT, TAGGED) == [(0, 2), (2, 4), (5, 6), (7, 15), (15, 16)]
