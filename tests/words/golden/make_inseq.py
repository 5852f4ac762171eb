"""Record what Inseq 0.7.1 says, so that tests need no Inseq: ``python make_inseq.py > inseq.json``.

Two tiny encoder-decoders, one that scales its logits (T5) and one with language tags (mBART-50), read three
segments; Inseq predicts token by token. Their weights come from NumPy's random numbers in the order of their
names, so that the tests build the same models. Marian is not among them: Inseq 0.7.1 scales its embeddings,
which transformers 5 scales itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SOURCES = ["die Katze schläft auf dem Dach", "ich weiß es nicht", "das Haus"]
TRANSLATIONS = ["the cat sleeps on the roof", "I do not know it", "the house is here"]
LANGUAGES: dict[str, tuple[str, str] | None] = {"t5": None, "mbart": ("de_DE", "en_XX")}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def pieces() -> list[tuple[str, float]]:
    """Some words as a whole, and letters for the others, sentencepiece style."""
    words = ["▁the", "▁cat", "▁on", "▁not", "▁know", "▁die", "▁Katze", "▁auf", "▁Haus"]
    letters = sorted({letter for text in SOURCES + TRANSLATIONS for letter in text if letter != " "})
    return [(piece, -1.0 - i / 10) for i, piece in enumerate([*words, "▁", *letters])]


def build(kind: str, folder: Path) -> None:
    """Write a model folder."""
    import torch

    tokenizer, model = {"t5": _t5, "mbart": _mbart}[kind]()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            width = 2.0 if kind == "t5" and name == "shared.weight" else 0.5  # its logits are scaled down
            values = rng.uniform(-width, width, tuple(weights.shape)) + (weights.dim() == 1)
            weights.copy_(torch.tensor(values))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _t5() -> tuple[Any, Any]:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.Unigram([*((token, 0.0) for token in SPECIAL), *pieces()], unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    ids = {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2}
    config = transformers.T5Config(vocab_size=len(tokenizer), **sizes, **ids)
    return tokenizer, transformers.T5ForConditionalGeneration(config)


def _mbart() -> tuple[Any, Any]:
    import transformers

    vocabulary = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *pieces()]
    tokenizer = transformers.MBart50Tokenizer(vocab=vocabulary)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 64}
    sizes |= {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
    config = transformers.MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=2, **sizes, **heads)
    return tokenizer, transformers.MBartForConditionalGeneration(config)


def record(kind: str) -> list[dict[str, Any]]:
    """Tokens, probabilities and entropies of all segments."""
    import inseq

    codes = LANGUAGES[kind]
    told = {} if codes is None else {"src_lang": codes[0], "tgt_lang": codes[1]}
    names = ["probability", "entropy"]
    wishes = {"step_scores": names, "show_progress": False}
    with tempfile.TemporaryDirectory() as folder:
        build(kind, Path(folder))
        model = inseq.load_model(folder, "dummy", device="cpu", tokenizer_kwargs=told)
        found = [
            model.attribute(*segment, **wishes).sequence_attributions[0]
            for segment in zip(SOURCES, TRANSLATIONS, strict=True)
        ]
    return [
        {
            # What is read first has no scores.
            "tokens": [piece.token for piece in own.target][-len(own.step_scores["entropy"]) :],
            **{name: [float(f"{x:.7g}") for x in own.step_scores[name].tolist()] for name in names},
        }
        for own in found
    ]


def main() -> None:
    json.dump({kind: record(kind) for kind in LANGUAGES}, sys.stdout)


if __name__ == "__main__":
    main()
