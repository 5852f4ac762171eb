"""Many translations of a few sources: ``python recipes/candidates.py NMT --data DIR -o FILE``.

Samples candidates for Chinese sources of WMT23 from a Hugging Face translation model such as OPUS-MT zh-en,
from its whole vocabulary and at temperature 1, and writes one row a candidate: ``lp``, ``seg``, ``src``,
``mt``, ``logprob`` (the sum over its tokens) and ``tokens`` (how many, the end included). The file is what
``doubtless rerank`` reads and ``doubtless reproduce rerank-table4 --sets FILE`` studies; it is written anew
after each source, so that a run that is stopped leaves whole sources.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import polars as pl
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from doubtless.datasets import locate
from doubtless.segments import write


def sources(data: str | None, count: int, lengths: tuple[int, int], seed: int) -> pl.DataFrame:
    """Chinese sources of WMT23 of so many characters, drawn at random."""
    rows = pl.read_parquet(locate(data, "wmt23_candidates.parquet")).filter(pl.col("lp") == "zh-en")
    fitting = rows.filter(pl.col("src").str.len_chars().is_between(*lengths)).select("lp", "seg", "src")
    return fitting.sample(min(count, fitting.height), seed=seed).sort("seg")


@torch.inference_mode()
def sample(
    model: Any, inputs: Any, count: int, generator: torch.Generator
) -> tuple[list[list[int]], torch.Tensor]:
    """Sample translations of one source: their tokens, and the sums of the log-probabilities of these."""
    config = model.config
    encoded = model.get_encoder()(**inputs).last_hidden_state.expand(count, -1, -1)
    mask = inputs["attention_mask"].expand(count, -1)
    running = torch.arange(count)
    last = torch.full((count, 1), config.decoder_start_token_id)
    logprob, tokens = torch.zeros(count), [[] for _ in range(count)]
    past = None
    for _ in range(3 * mask.shape[1] + 20):
        out = model(
            encoder_outputs=(encoded,),
            attention_mask=mask,
            decoder_input_ids=last,
            past_key_values=past,
            use_cache=True,
        )
        scores = torch.log_softmax(out.logits[:, -1], dim=-1)
        drawn = torch.multinomial(scores.exp(), 1, generator=generator)
        logprob[running] += scores.gather(1, drawn)[:, 0]
        for row, token in zip(running.tolist(), drawn[:, 0].tolist(), strict=True):
            tokens[row].append(token)
        going = drawn[:, 0] != config.eos_token_id
        if not going.any():
            break
        # Finished ones need not be computed any more.
        running, last, mask, encoded = running[going], drawn[going], mask[going], encoded[going]
        past = out.past_key_values
        past.batch_select_indices(going.nonzero()[:, 0])
    return tokens, logprob


def main() -> None:
    """Write the candidates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a translation model")
    parser.add_argument("--data", help="directory of the data sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sources", type=int, default=50)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--lengths", type=int, nargs=2, default=(10, 40), help="characters of a source")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForSeq2SeqLM.from_pretrained(given.model).eval()
    generator = torch.Generator().manual_seed(given.seed)
    parts = []
    chosen = sources(given.data, given.sources, tuple(given.lengths), given.seed)
    for row in chosen.iter_rows(named=True):
        inputs = tokenizer(row["src"], return_tensors="pt")
        tokens, logprob = sample(model, inputs, given.candidates, generator)
        texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        columns = {"mt": texts, "logprob": logprob.tolist(), "tokens": [len(ids) for ids in tokens]}
        parts.append(pl.DataFrame(columns).select(*(pl.lit(row[k]).alias(k) for k in row), *columns))
        print(f"{len(parts)}: {row['src']} -> {texts[0]}", file=sys.stderr, flush=True)
        write(pl.concat(parts), given.output)


if __name__ == "__main__":
    main()
