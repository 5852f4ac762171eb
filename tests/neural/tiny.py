"""A tiny multilingual encoder with its tokenizer, made on the spot: real code, no download."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "The cat sleeps on the roof.",
    "Die Katze schläft auf dem Dach.",
    "Prices rose by 3.5 % in May, the bank said.",
    "Im Mai stiegen die Preise um 3,5 %, sagte die Bank.",
    "Nobody was hurt, and the road is open again.",
    "Niemand wurde verletzt, und die Straße ist wieder frei.",
    "央行上调了利率。",
    "The central bank raised interest rates.",
    "No lo sé.",
    "I do not know.",
]


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIAL, unk_token="<unk>")
    made.train_from_iterator(TEXTS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def write_encoder(folder: Path, seed: int = 0, layers: int = 3, kind: str = "xlm-roberta") -> Path:
    """Write an encoder folder as ``save_pretrained`` does."""
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(),
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )
    fast.save_pretrained(folder)
    sizes = {
        "vocab_size": len(fast),
        "hidden_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "max_position_embeddings": 66,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    torch.manual_seed(seed)
    config_class, model_class = {
        "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
        "bert": (transformers.BertConfig, transformers.BertModel),
    }[kind]
    model = model_class(config_class(**sizes), add_pooling_layer=False)
    # The usual initialisation is so narrow that layers hardly differ: spread the weights.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return folder
