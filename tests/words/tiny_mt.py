"""Tiny translation models with their tokenizers, made on the spot: real code, no download."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import torch
import transformers
from tiny import TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "max_position_embeddings": 64}
SIZES |= {"dropout": 0.1, "attention_dropout": 0.1, "init_std": 0.3}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
CAUSAL = "German: {src}\nEnglish: "

SOURCES = ["Die Katze schläft auf dem Dach.", "No lo sé.", "央行上调了利率。"]
TRANSLATIONS = ["The cat sleeps on the roof.", "I do not know.", "The bank raised the rates in May."]


def pieces() -> list[str]:
    """Letters and frequent words, sentencepiece style."""
    found = Counter(word for text in TEXTS for word in text.replace(".", " .").split())
    letters = sorted({letter for text in TEXTS for letter in text if letter != " "})
    return [*(f"▁{word}" for word, _ in found.most_common(30) if len(word) > 1), "▁", *letters]


def unigram() -> list[tuple[str, float]]:
    return [(piece, -1.0 - i / 10) for i, piece in enumerate(pieces())]


def sentencepiece_model(path: Path) -> list[str]:
    import sentencepiece

    # As many pieces as can be had: how many that is depends on the release.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 5),
        model_prefix=str(path / "spm"),
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    made = sentencepiece.SentencePieceProcessor(model_file=str(path / "spm.model"))
    return [made.id_to_piece(i) for i in range(made.get_piece_size())]


def fast(byte_level: bool, template: str) -> transformers.PreTrainedTokenizerFast:
    if byte_level:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet)
        made.train_from_iterator(TEXTS, trainer)
    else:
        made = Tokenizer(models.Unigram([*((token, 0.0) for token in SPECIAL), *unigram()], unk_id=3))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos", "pad", "eos", "unk"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{name}_token": token for name, token in names.items()}
    )


def _marian(folder: Path):
    names = [*sentencepiece_model(folder), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    spm, vocab = str(folder / "spm.model"), str(folder / "vocab.json")
    tokenizer = transformers.MarianTokenizer(source_spm=spm, target_spm=spm, vocab=vocab)
    pad = len(names) - 1
    config = transformers.MarianConfig(
        vocab_size=len(names), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=2, **SIZES
    )
    model = transformers.MarianMTModel(config)
    torch.nn.init.normal_(model.final_logits_bias)  # not zero in real models
    return tokenizer, model


def _m2m(folder: Path):
    names = sentencepiece_model(folder)
    names = [*SPECIAL, *(name for name in names if name not in SPECIAL)]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "spm.model"))
    config = transformers.M2M100Config(vocab_size=len(names) + 120, encoder_layerdrop=0.3, **SIZES)
    return tokenizer, transformers.M2M100ForConditionalGeneration(config)


def _mbart(folder: Path):
    tokenizer = transformers.MBart50Tokenizer(vocab=[("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *unigram()])
    config = transformers.MBartConfig(vocab_size=len(tokenizer), decoder_layerdrop=0.5, **SIZES)
    return tokenizer, transformers.MBartForConditionalGeneration(config)


def _nllb(folder: Path):
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*SPECIAL, *pieces()]))}
    tokenizer = transformers.NllbTokenizer(vocab=vocabulary, merges=[])
    config = transformers.M2M100Config(vocab_size=len(tokenizer), **SIZES)
    return tokenizer, transformers.M2M100ForConditionalGeneration(config)


def _t5(folder: Path):
    tokenizer = fast(False, "$A </s>")
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
    )
    config.update({"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2})
    return tokenizer, transformers.T5ForConditionalGeneration(config)


def _gpt2(folder: Path):
    tokenizer = fast(True, "$A")
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=3, n_head=4, n_positions=128, initializer_range=0.3
    )
    return tokenizer, transformers.GPT2LMHeadModel(config)


def _llama(folder: Path):
    tokenizer = fast(True, "<s> $A")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    return tokenizer, transformers.LlamaForCausalLM(config)


def _cohere(folder: Path):
    tokenizer = fast(True, "<s> $A")
    config = transformers.CohereConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        initializer_range=0.3,
        logit_scale=0.25,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    return tokenizer, transformers.CohereForCausalLM(config)


MAKERS = {
    "marian": (_marian, {}),
    "m2m": (_m2m, {"lp": "de-en"}),
    "mbart": (_mbart, {"lp": "de-en"}),
    "nllb": (_nllb, {"languages": ("deu_Latn", "eng_Latn")}),
    "t5": (_t5, {"template": "translate German to English: {src}"}),
    "gpt2": (_gpt2, {"template": CAUSAL}),
    "llama": (_llama, {"template": CAUSAL}),
    "cohere": (_cohere, {"template": CAUSAL}),
}


def write_model(kind: str, folder: Path) -> Path:
    """Write a model folder as ``save_pretrained`` does."""
    torch.manual_seed(0)
    work = folder / "parts"
    work.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's tokenizer recommends a package
        tokenizer, model = MAKERS[kind][0](work)
    with torch.no_grad():  # norms of new models do nothing: give them something to do
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and "norm" in name.lower().replace("ln_", "norm"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    tokenizer.save_pretrained(folder / "model")
    model.save_pretrained(folder / "model")
    return folder / "model"
