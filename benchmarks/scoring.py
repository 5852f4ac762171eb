"""Scoring beside COMET on the same weights: CPU time, memory and the largest difference, turn by turn.

    python benchmarks/scoring.py --comet-python PATH [--sources 24] [--systems 6] [--rounds 2]

PATH is the interpreter of an environment with unbabel-comet 2.2.7 (it needs setuptools<81). Both sides load
the same random-weight COMET folders (base size: 12 layers of 768), made by COMET itself, and score the same
made-up segments; each turn is a process of its own, in which only the scoring is timed and the peak memory is
read at the end. Prints COMET's time over ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

CLASSES = {"with references": "regression_metric", "without": "referenceless_regression_metric"}
# Made-up words: what they mean makes no difference to the time.
_WORDS = [
    first + last
    for first in ("ba", "ke", "lo", "mi", "nu", "pra", "sto")
    for last in ("l", "rim", "ten", "vos")
]

_COMET = """
import json, resource, sys, time, logging, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
import torch
torch.set_num_threads(1)
from comet import load_from_checkpoint
data = json.load(open(sys.argv[2]))
model = load_from_checkpoint(sys.argv[1] + "/checkpoints/model.ckpt")
start = time.process_time()
scores = model.predict(data, batch_size=16, gpus=0, num_workers=0, progress_bar=False).scores
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak": peak, "scores": scores}))
"""

_OURS = """
import json, resource, sys, time
from doubtless.neural.runtime import open_engine
data = json.load(open(sys.argv[2]))
engine = open_engine(sys.argv[1], threads=1)
texts = {name: [row[name] for row in data] for name in data[0]}
start = time.process_time()
scores = engine.score(texts).score.tolist()
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak": peak, "scores": scores}))
"""

_BUILD = """
import sys, yaml, torch, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from comet.models import RegressionMetric, ReferencelessRegression
kind, encoder, folder = sys.argv[1:]
torch.manual_seed(0)
cls = RegressionMetric if kind == "regression_metric" else ReferencelessRegression
model = cls(pretrained_model=encoder, load_pretrained_weights=False, layer_transformation="sparsemax",
            hidden_sizes=[3072, 1024], local_files_only=True)
(Path(folder) / "checkpoints").mkdir(parents=True)
hparams = {k: v for k, v in dict(model.hparams).items()}
import pytorch_lightning as lightning
torch.save({"state_dict": model.state_dict(), "hyper_parameters": hparams,
            "pytorch-lightning_version": lightning.__version__}, Path(folder) / "checkpoints/model.ckpt")
(Path(folder) / "hparams.yaml").write_text(yaml.safe_dump({**hparams, "class_identifier": kind}))
"""


def write_encoder(folder: Path) -> None:
    """A base-size XLM-R configuration and a word-level tokenizer that both sides can load."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {word: i for i, word in enumerate([*special, *dict.fromkeys(_WORDS)])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
        "mask": "<mask>",
    }
    fast = PreTrainedTokenizerFast(tokenizer_object=made, **{f"{k}_token": v for k, v in names.items()})
    fast.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": "XLMRobertaTokenizerFast"})
    )
    XLMRobertaConfig(
        vocab_size=250_002,
        max_position_embeddings=514,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        type_vocab_size=1,
    ).save_pretrained(folder)


def segments(sources: int, systems: int, with_references: bool) -> list[dict[str, str]]:
    import numpy as np

    rng = np.random.default_rng(0)

    def text(length: int) -> str:
        return " ".join(rng.choice(_WORDS, max(3, length)))

    lengths = rng.gamma(4, 6, sources).astype(int) + 4
    src, ref = [text(n) for n in lengths], [text(int(n * rng.uniform(0.8, 1.2))) for n in lengths]
    rows = []
    for _ in range(systems):
        for i, n in enumerate(lengths):
            row = {"src": src[i], "mt": text(int(n * rng.uniform(0.8, 1.2)))}
            rows.append(row | {"ref": ref[i]} if with_references else row)
    return rows


def turn(python: str, code: str, *arguments: str) -> dict:
    done = subprocess.run([python, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comet-python", required=True)
    parser.add_argument("--sources", type=int, default=24)
    parser.add_argument("--systems", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encoder = Path(folder) / "encoder"
        write_encoder(encoder)
        for name, kind in CLASSES.items():
            model = Path(folder) / kind
            made = subprocess.run(
                [options.comet_python, "-c", _BUILD, kind, str(encoder), str(model)],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                sys.exit(made.stderr[-2000:])
            for systems in (options.systems, 1):
                sources = options.sources * (options.systems if systems == 1 else 1)
                data = Path(folder) / "data.json"
                data.write_text(json.dumps(segments(sources, systems, name == "with references")))
                pairs = [
                    (
                        turn(options.comet_python, _COMET, str(model), str(data)),
                        turn(sys.executable, _OURS, str(model), str(data)),
                    )
                    for _ in range(options.rounds)
                ]
                theirs, ours = pairs[0]
                gap = max(abs(a - b) for a, b in zip(theirs["scores"], ours["scores"], strict=True))
                seconds = [median(pair[side]["seconds"] for pair in pairs) for side in (0, 1)]
                peaks = [median(pair[side]["peak"] for pair in pairs) for side in (0, 1)]
                label = (
                    f"{name:<16} {systems} system{'s' if systems > 1 else ' '}  {len(theirs['scores'])} rows"
                )
                ratio = seconds[0] / seconds[1]
                times = f"comet {seconds[0]:6.1f} s   ours {seconds[1]:6.1f} s   ratio {ratio:4.2f}"
                memory = f"memory {peaks[0]:5.0f} / {peaks[1]:5.0f} MB"
                print(f"{label}   {times}   {memory}   largest difference {gap:.1e}", flush=True)


if __name__ == "__main__":
    main()
