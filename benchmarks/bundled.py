"""The bundled model: time against COMET with XLM-R-large, memory over a long table, time to the first score.

    python benchmarks/bundled.py [--comet-python PATH] [--rows 60] [--rounds 2] [--long 100000]

PATH is the interpreter of an environment with unbabel-comet 2.2.7; without it that part is left out. COMET
runs its reference-free estimator on XLM-R-large (24 layers of 1024, random weights) on the same sentences,
the project's own examples, with the same tokenizer; each turn is a process of its own in which only scoring
is timed, on one thread. Memory and first score are those of the whole command ``doubtless score``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import polars as pl

from doubtless import bundled
from scoring import _BUILD, _COMET, _OURS, turn

EXAMPLES = Path(__file__).parents[1] / "examples" / "segments.tsv"
PAIR = "en-de"  # whatever the pair is: with one that the model knows it does all that it can
COMMAND = [sys.executable, "-m", "doubtless.cli.main", "score"]


def examples() -> pl.DataFrame:
    rows = pl.read_csv(EXAMPLES, separator="\t", quote_char=None).select("src", "mt").drop_nulls()
    return rows.with_columns(lp=pl.lit(PAIR))


def write_large_encoder(folder: Path) -> None:
    """XLM-R-large's configuration with the bundled model's tokenizer."""
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig

    names = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
        "mask": "<mask>",
    }
    tokenizer = str(bundled.folder() / "tokenizer.json")
    fast = PreTrainedTokenizerFast(tokenizer_file=tokenizer, **{f"{k}_token": v for k, v in names.items()})
    fast.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": "XLMRobertaTokenizerFast"})
    )
    XLMRobertaConfig(
        vocab_size=250_002,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=514,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        type_vocab_size=1,
    ).save_pretrained(folder)


def against_comet(python: str, rows: int, rounds: int, folder: Path) -> None:
    encoder, model, data = folder / "encoder", folder / "comet", folder / "data.json"
    write_large_encoder(encoder)
    build = [python, "-c", _BUILD, "referenceless_regression_metric", str(encoder), str(model)]
    made = subprocess.run(build, capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(made.stderr[-2000:])
    data.write_text(json.dumps(examples().head(rows).to_dicts()))
    pairs = [
        (
            turn(python, _COMET, str(model), str(data)),
            turn(sys.executable, _OURS, str(bundled.folder()), str(data)),
        )
        for _ in range(rounds)
    ]
    theirs, ours = (median(pair[side]["seconds"] for pair in pairs) * 1000 / rows for side in (0, 1))
    peaks = [median(pair[side]["peak"] for pair in pairs) for side in (0, 1)]
    print(
        f"CPU ms a segment: comet large {theirs:.0f}   bundled {ours:.1f}   ratio {theirs / ours:.1f}"
        f"   memory {peaks[0]:.0f} / {peaks[1]:.0f} MB",
        flush=True,
    )


def command(*arguments: str) -> tuple[float, float, float]:
    """Run ``doubtless score``; return its CPU seconds, wall seconds and peak memory in MB."""
    code = (
        "import resource, subprocess, sys, time; start = time.monotonic();"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(used.ru_utime + used.ru_stime, time.monotonic() - start, used.ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMAND, *arguments], capture_output=True, text=True, check=True
    )
    cpu, wall, peak = map(float, done.stdout.split())
    return cpu, wall, peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comet-python")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--long", type=int, default=100_000, help="rows of the long table (0: leave it out)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src.txt").write_text("The meeting was moved to Friday.\n", encoding="utf-8")
        (folder / "mt.txt").write_text("Die Sitzung wurde auf Freitag verschoben.\n", encoding="utf-8")
        first = [
            command("-s", str(folder / "src.txt"), "-t", str(folder / "mt.txt"), "--lp", PAIR)
            for _ in range(5)
        ]
        cpu, wall, peak = (median(values) for values in zip(*first, strict=True))
        print(f"first score: {cpu:.2f} s CPU, {wall:.2f} s, {peak:.0f} MB", flush=True)
        if options.comet_python:
            against_comet(options.comet_python, options.rows, options.rounds, folder)
        if options.long:
            some = examples()
            # Numbered, so that no two rows are the same.
            rows = pl.concat([some] * (options.long // len(some) + 1)).head(options.long)
            number = pl.int_range(pl.len()).cast(pl.String)
            rows = rows.with_columns(pl.format("{} {}", pl.col("mt"), number).alias("mt"))
            rows.write_csv(folder / "long.tsv", separator="\t", quote_style="never")
            cpu, wall, peak = command(str(folder / "long.tsv"), "-o", str(folder / "out.parquet"))
            print(
                f"{options.long} segments: {cpu:.0f} s CPU, {wall:.0f} s, {peak:.0f} MB at most", flush=True
            )


if __name__ == "__main__":
    main()
