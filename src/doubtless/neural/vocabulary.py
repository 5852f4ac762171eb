"""A smaller vocabulary for an encoder: most of a multilingual model is embeddings of tokens it never meets.

Pieces are kept by how often they occur in given text of each language, in which small languages count for
more than their share, and, so that languages the text lacks still read well, by how probable the tokenizer
itself holds them. Every single character stays, and what is no known character
falls back to its bytes: no script is lost, rare words only take more tokens.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from doubtless.errors import InputError

BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
_PRIOR = 0.15  # share of a piece's weight that comes from the tokenizer's own probabilities
_SMALL = 0.3  # languages count by this power of their text: with 1 small ones would lose their words
_BLANK = "▁"
_CHUNK = 20_000
_TABLE = "embeddings.word_embeddings.weight"


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """Count how often each token occurs in texts."""
    counts: Counter[int] = Counter()
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _CHUNK:
            counts.update(_ids(tokenizer, chunk))
            chunk = []
    counts.update(_ids(tokenizer, chunk))
    return counts


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterable[int]:
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        yield from encoding.ids


def shares(counts: Mapping[str, Counter[int]]) -> dict[int, float]:
    """How much each token is used, when each language counts by a power of its text.

    >>> found = shares({"en": Counter({1: 900, 2: 100}), "si": Counter({3: 10})})
    >>> round(found[3] / (found[1] + found[2]), 2)  # ten of a thousand would be 0.01
    0.25
    """
    found: dict[int, float] = {}
    for used in counts.values():
        total = sum(used.values())
        for token, count in used.items():
            found[token] = found.get(token, 0.0) + count / total * total**_SMALL
    return found


def chosen(
    pieces: Sequence[tuple[str, float]], counts: Mapping[int, float], special: set[int], size: int
) -> list[int]:
    """The ids to keep, in their order: special tokens, all single characters, then the weightiest pieces.

    Parameters
    ----------
    pieces
        Pieces and their log probabilities, as a unigram tokenizer has them.
    counts
        How often each occurs in the text that the vocabulary is for.
    special
        Ids that stay whatever they are.
    size
        How many to keep.

    Examples
    --------
    >>> pieces = [("<s>", 0.0), ("a", -9.0), ("▁the", -3.0), ("▁thy", -8.0), ("▁dog", -8.0)]
    >>> chosen(pieces, Counter({4: 10}), {0}, 4)
    [0, 1, 2, 4]
    """
    seen = sum(counts.values()) or 1
    likely = [math.exp(score) if i not in special else 0.0 for i, (_, score) in enumerate(pieces)]
    total = sum(likely) or 1.0
    kept = special | {i for i, (piece, _) in enumerate(pieces) if len(piece.removeprefix(_BLANK)) <= 1}
    if len(kept) > size:
        raise InputError(f"a vocabulary of {size} has no room for the {len(kept)} single characters")
    weight = [(1 - _PRIOR) * counts.get(i, 0) / seen + _PRIOR * likely[i] / total for i in range(len(pieces))]
    others = sorted((i for i in range(len(pieces)) if i not in kept), key=lambda i: -weight[i])
    return sorted(kept | set(others[: size - len(kept)]))


def trim(
    encoder: str | Path, texts: Mapping[str, Iterable[str]], size: int, output: str | Path, seed: int = 0
) -> list[int]:
    """Write an encoder folder with a smaller vocabulary; return the old ids of the tokens it kept.

    Parameters
    ----------
    encoder
        Folder of a Hugging Face encoder with a unigram tokenizer (XLM-R, E5, MiniLM).
    texts
        What the vocabulary is for, by language.
    size
        Tokens to keep; 256 bytes come on top.
    output
        The new folder.
    seed
        Bytes begin as the unknown token's vector with a little noise, so that they can be told apart.
    """
    old, new = Path(encoder), Path(output)
    tokenizer = Tokenizer.from_file(str(old / "tokenizer.json"))
    tokenizer.no_truncation()
    definition: dict[str, Any] = json.loads(tokenizer.to_str())
    model = definition["model"]
    if model["type"] != "Unigram":
        raise InputError(f"{old}: the tokenizer is a {model['type']} model, only Unigram can be trimmed")
    special = {int(token["id"]) for token in definition["added_tokens"]}
    used = shares({language: count_tokens(tokenizer, some) for language, some in texts.items()})
    keep = chosen([tuple(p) for p in model["vocab"]], used, special, size)
    place = {before: after for after, before in enumerate(keep)}
    worst = min(score for _, score in model["vocab"])
    model["vocab"] = [model["vocab"][i] for i in keep] + [[name, worst - 10] for name in BYTES]
    model["unk_id"], model["byte_fallback"] = place[model["unk_id"]], True
    for token in definition["added_tokens"]:
        token["id"] = place[token["id"]]
    for token in definition["post_processor"].get("special_tokens", {}).values():
        token["ids"] = [place[i] for i in token["ids"]]
    weights = load_file(old / "model.safetensors")
    names = [name for name in weights if name.endswith(_TABLE)]
    table = weights[names[0]]
    noise = np.random.default_rng(seed).standard_normal((len(BYTES), table.shape[1])) * table.std()
    bytes_ = (table[keep[model["unk_id"]]] + noise).astype(table.dtype)
    weights[names[0]] = np.concatenate([table[keep], bytes_])
    new.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if (old / file).is_file():
            shutil.copy(old / file, new / file)
    config = json.loads((old / "config.json").read_text(encoding="utf-8"))
    config["vocab_size"] = len(weights[names[0]])
    config["pad_token_id"] = place[config["pad_token_id"]]
    (new / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    (new / "tokenizer.json").write_text(json.dumps(definition, ensure_ascii=False), encoding="utf-8")
    save_file(weights, new / "model.safetensors", {"format": "pt"})
    return keep
