"""A trimmed encoder is the same encoder with fewer words."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tiny import TEXTS, write_encoder  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import new_model  # noqa: E402
from doubtless.neural.config import ModelConfig  # noqa: E402
from doubtless.neural.vocabulary import BYTES, trim  # noqa: E402


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary")
    write_encoder(path / "whole")
    kept = trim(path / "whole", {"en": TEXTS[:4:2] * 5, "de": TEXTS[1:4:2]}, 85, path / "small")
    return path / "whole", path / "small", kept


def states(folder, text):
    torch.manual_seed(0)
    model = new_model(ModelConfig(encoder=str(folder)))
    ids = torch.tensor([model.tokens.encode([text])[0].ids])
    with torch.no_grad():
        return model.estimator.encoder.eval().embed(ids, torch.ones_like(ids)), ids


def test_kept_tokens_keep_their_vectors(folders):
    whole, small, kept = folders
    assert len(kept) == 85
    before, old = states(whole, "a b c")
    after, new = states(small, "a b c")
    assert [kept[i] for i in new[0].tolist()] == old[0].tolist()  # single characters are never lost
    torch.testing.assert_close(before, after)


def test_special_tokens_stand_where_the_model_looks_for_them(folders):
    small = folders[1]
    tokens = new_model(ModelConfig(encoder=str(small))).tokens
    made = Tokenizer.from_file(str(small / "tokenizer.json"))
    named = {name: made.token_to_id(name) for name in ("<s>", "<pad>", "</s>", "<mask>")}
    assert (tokens.begin, tokens.padding, tokens.end, tokens.more) == tuple(named.values())
    assert made.get_vocab_size() == 85 + len(BYTES)


@pytest.mark.parametrize("text", ["ᐃᓄᒃᑎᑐᑦ", "ꯃꯤꯇꯩ", "🙂"])
def test_no_script_is_lost(folders, text):
    tokens = new_model(ModelConfig(encoder=str(folders[1]))).tokens
    found = tokens.encode([text, text[::-1] + "x"])
    unknown = Tokenizer.from_str(tokens.definition).token_to_id("<unk>")
    assert unknown not in found[0].ids
    assert found[0].ids != found[1].ids
    assert max(end for _, end in found[0].offsets) == len(text)


def test_too_small_a_vocabulary_is_refused(folders, tmp_path):
    with pytest.raises(InputError, match="no room for the"):
        trim(folders[0], {"en": TEXTS}, 10, tmp_path / "none")
