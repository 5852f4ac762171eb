"""Surprisal and entropy of forced translations beside Inseq's step scores: CPU time, memory, difference.

    python benchmarks/words.py --inseq-python PATH --model FOLDER [--data DIR] [--rows 12] [--rounds 2]

PATH is the interpreter of an environment with inseq; FOLDER an encoder-decoder of Hugging Face, the same for
both sides (the figures in the documentation are of OPUS-MT zho-eng). Segments are Chinese-English rows of
mqm_spans.parquet. Each turn is a process of its own on one thread, in which only the scoring is timed and the
peak memory is read at the end; turns alternate. Prints Inseq's time and memory over ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

# Not resource's ru_maxrss, which begins with the memory of the process that started this one.
_PEAK = """
def peak_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""

_INSEQ = """
import json, sys, time, logging, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
import torch
torch.set_num_threads(1)
import inseq
from importlib.metadata import version
rows = json.load(open(sys.argv[2]))
model = inseq.load_model(sys.argv[1], "dummy", device="cpu")
start = time.process_time()
names = ["probability", "entropy"]
out = model.attribute([r["src"] for r in rows], [r["mt"] for r in rows], step_scores=names,
                      batch_size=int(sys.argv[3]), show_progress=False)
seconds = time.process_time() - start
peak = peak_memory()
found = [
    {"tokens": [t.token for t in a.target], **{name: a.step_scores[name].tolist() for name in names}}
    for a in out.sequence_attributions
]
print(json.dumps({"seconds": seconds, "peak": peak, "found": found, "version": version("inseq")}))
"""

_OURS = """
import json, sys, time
import torch
torch.set_num_threads(1)
from doubtless.words.forced import open_translation_model
from doubtless.words.signals import token_signals
rows = json.load(open(sys.argv[2]))
model = open_translation_model(sys.argv[1])
start = time.process_time()
out = token_signals(model, [r["src"] for r in rows], [r["mt"] for r in rows], ["surprisal", "entropy"])
seconds = time.process_time() - start
peak = peak_memory()

# Inseq 0.7.1 scales the embeddings of the target, which the decoder of transformers 5 scales itself.
model.decoder.embed_scale *= model.decoder.embed_scale
twice = token_signals(model, [r["src"] for r in rows], [r["mt"] for r in rows], ["surprisal", "entropy"])
def plainly(found):
    return [{"tokens": s.tokens, **{n: values.tolist() for n, values in s.values.items()}} for s in found]
print(json.dumps({"seconds": seconds, "peak": peak, "found": plainly(out), "twice": plainly(twice)}))
"""


def segments(data: Path, rows: int) -> list[dict[str, str]]:
    """Some Chinese-English segments, evenly spread over the file."""
    import polars as pl

    chosen = pl.col("lp") == "zh-en", pl.col("set") == "wmt21_news", pl.col("mt").str.len_chars() <= 250
    frame = pl.read_parquet(data / "mqm_spans.parquet").filter(*chosen)
    return frame.gather_every(max(1, frame.height // rows)).head(rows).select("src", "mt").to_dicts()


def turn(python: str, code: str, *arguments: str) -> dict:
    done = subprocess.run(
        [python, "-c", _PEAK + code, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def largest_difference(theirs: list[dict], twice: list[dict]) -> tuple[int, float]:
    """Over all tokens of text, our model with embeddings scaled as Inseq scales them."""
    import math

    count, worst = 0, 0.0
    for a, own in zip(theirs, twice, strict=True):
        names = a["tokens"][-len(a["entropy"]) :]
        start = next(i for i in range(len(names)) if names[i : i + len(own["tokens"])] == own["tokens"])
        for i in range(len(own["tokens"])):
            worst = max(worst, abs(-math.log(a["probability"][start + i]) - own["surprisal"][i]))
            worst = max(worst, abs(a["entropy"][start + i] - own["entropy"][i]))
            count += 1
    return count, worst


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inseq-python", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--batch", type=int, default=1, help="Inseq's; 0.7.1 fails where lengths differ.")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.json"
        data.write_text(json.dumps(segments(options.data, options.rows)), encoding="utf-8")
        pairs = [
            (
                turn(options.inseq_python, _INSEQ, options.model, str(data), str(options.batch)),
                turn(sys.executable, _OURS, options.model, str(data)),
            )
            for _ in range(options.rounds)
        ]
    seconds = [median(pair[side]["seconds"] for pair in pairs) for side in (0, 1)]
    peaks = [median(pair[side]["peak"] for pair in pairs) for side in (0, 1)]
    count, worst = largest_difference(pairs[0][0]["found"], pairs[0][1]["twice"])
    print(f"{options.rows} segments, {count} tokens, inseq {pairs[0][0]['version']} (batch {options.batch})")
    print(
        f"time    inseq {seconds[0]:7.1f} s   ours {seconds[1]:7.2f} s   ratio {seconds[0] / seconds[1]:.1f}"
    )
    print(f"memory  inseq {peaks[0]:7.0f} MB  ours {peaks[1]:7.0f} MB  ratio {peaks[0] / peaks[1]:.2f}")
    print(f"largest difference, target embeddings scaled twice as Inseq does: {worst:.1e}")


if __name__ == "__main__":
    main()
