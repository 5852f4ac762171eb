"""COMET's own classes beside doubtless on the same checkpoints: tokens, scores, errors and spans.

    python benchmarks/comet_parity.py --comet-python PYTHON [--fork DIR] [--record]

PYTHON is an interpreter with unbabel-comet; DIR holds the package comet_early_exit of the early-exit fork,
whose classes are left out without it. That interpreter runs this file, too: it makes tiny encoders and, for
each class, a checkpoint of random weights (layer mixes, heads and taggers included), saved as Lightning does,
loaded again by COMET and used to score a few segments, some of them empty or too long. Here the same folders
are loaded by doubtless. Prints one line a checkpoint and fails if anything differs by more than 1e-5.
--record keeps checkpoints and COMET's results for tests/neural/test_comet.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "neural" / "golden"
TOLERANCE = 1e-5

LONG = "the bank raised the rates again and nobody on the road was hurt because the cat sleeps, "
SEGMENTS = [
    {"src": s, "mt": m, "ref": r}
    for s, m, r in [
        (
            "The dog sleeps under the roof.",
            "Die Katze schläft auf dem Dach.",
            "Der Hund schläft unter dem Dach.",
        ),
        ("Rates rose in May.", "Im Mai stiegen die Zinsen.", "Die Zinsen stiegen im Mai."),
        ("Nobody knows the road.", "", "Niemand kennt die Straße."),
        ("", "Niemand kennt die Straße.", ""),
        ("", "", ""),
        ("央行上调了利率。", "The central bank raised rates.", "The bank has raised its interest rates."),
        ("I do not know the bank.", "我不知道银行在哪里。", "我不认识这家银行。"),
        (LONG * 3, LONG * 4, LONG * 3),
        ("The road is open.", LONG * 2, "Die Straße ist frei."),
        (LONG, "Die Straße", LONG * 5),
        ("  Two  spaces,\ta tab ", " Zwei  Leerzeichen,\tein Tab ", "Zwei Leerzeichen, ein Tab"),
        ("ﬁne ½ 🙂", "gut ½ 🙂 ﬁn", "gut 1⁄2 🙂"),
        ("I do not know.", "I do not know.", "I do not know."),
    ]
]

HEAD = {"hidden_sizes": [12, 6]}
SPARSE, PATCH = {"layer_transformation": "sparsemax"}, {"layer_transformation": "sparsemax_patch"}
AVERAGE = {**HEAD, "pool": "avg", "layer_transformation": "softmax", "layer_norm": True}
FIRST = {**HEAD, **SPARSE, "pool": "cls", "layer_norm": False}
SECOND = {**FIRST, "layer": 2, "final_activation": "Sigmoid"}
MT_SRC, MT_REF = {"input_segments": ["mt", "src"]}, {"input_segments": ["mt", "ref"]}
JOINT = {**HEAD, "layer_transformation": "softmax", "word_layer": 2}
WORDS = {**JOINT, "word_level_training": True, "cross_entropy_weights": [0.1, 0.4, 0.5]}
KIWI = {**WORDS, **SPARSE, **MT_SRC}
XCOMET = {**HEAD, **SPARSE, "layer_norm": False, "word_layer": 3}
LAST, HUMAN = {"confidence_target": "last"}, {"confidence_target": "human"}

# Class, encoder, options, and what else is special: the yaml's own mix, the threshold of tags, no reference.
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("RegressionMetric", "XLM-RoBERTa", AVERAGE, {"note": "average, softmax, norm"}),
    ("RegressionMetric", "XLM-RoBERTa", SECOND, {"note": "first, layer 2, sigmoid"}),
    ("RegressionMetric", "BERT", AVERAGE, {}),
    ("RegressionMetric", "XLM-RoBERTa-XL", AVERAGE, {}),
    ("ReferencelessRegression", "XLM-RoBERTa", FIRST, {"note": "first, sparsemax"}),
    ("ReferencelessRegression", "XLM-RoBERTa", {**AVERAGE, "dropout": 0.0}, {"note": "no dropout"}),
    ("ReferencelessRegression", "MiniLM", AVERAGE, {}),
    ("ReferencelessRegression", "RemBERT", AVERAGE, {}),
    ("RankingMetric", "XLM-RoBERTa", {"pool": "avg", "layer_norm": False}, {}),
    ("UnifiedMetric", "XLM-RoBERTa", WORDS, {"note": "mt+src+ref, tags"}),
    ("UnifiedMetric", "XLM-RoBERTa", WORDS, {"reference": False, "note": "the same without ref"}),
    ("UnifiedMetric", "XLM-RoBERTa", KIWI, {"yaml": PATCH, "note": "mt+src, sparsemax_patch"}),
    ("UnifiedMetric", "XLM-RoBERTa", {**JOINT, **MT_REF, "sent_layer": 3}, {"note": "mt+ref, layer 3"}),
    ("UnifiedMetric", "BERT", WORDS, {"note": "mt+src+ref, tags"}),
    ("UnifiedMetric", "RemBERT", {**WORDS, **MT_SRC}, {"note": "mt+src, tags"}),
    ("UnifiedMetric", "MiniLM", JOINT, {"note": "mt+src+ref"}),
    ("XCOMETMetric", "XLM-RoBERTa", XCOMET, {}),
    ("XCOMETMetric", "XLM-RoBERTa", XCOMET, {"reference": False, "note": "without ref"}),
    ("XCOMETMetric", "XLM-RoBERTa", XCOMET, {"threshold": 0.6, "note": "threshold 0.6"}),
    ("XCOMETMetric", "XLM-RoBERTa-XL", XCOMET, {}),
    ("InstantConfRegression", "XLM-RoBERTa", FIRST, {}),
    ("EarlyExitRegression", "XLM-RoBERTa", {**AVERAGE, **SPARSE}, {"note": "pool avg (ignored), norm"}),
    ("EarlyExitConfRegression", "XLM-RoBERTa", {**FIRST, **HUMAN}, {}),
    ("EarlyExitMultiRegression", "XLM-RoBERTa", FIRST, {}),
    ("EarlyExitConfMultiRegression", "XLM-RoBERTa", {**AVERAGE, **LAST}, {"note": "norm"}),
    ("EarlyExitConfMultiRegression", "XLM-RoBERTa", {**FIRST, **LAST, "layer": 3}, {"note": "no mix"}),
]


# The side of COMET.


def write_encoders(folder: Path) -> None:
    import tiny
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tiny.write_encoder(folder / "XLM-RoBERTa", layers=3)
    # MiniLM is a BERT with the tokenizer of XLM-R, which COMET looks for under its hub name.
    tiny.write_encoder(folder / "MiniLM", seed=1, layers=3, kind="bert")
    tiny.write_encoder(folder / "XLM-RoBERTa-XL", seed=2, layers=3)
    shutil.copytree(folder / "MiniLM", folder / "xlm-roberta-base")

    others = ["[CLS]", "[SEP]", "[MASK]"]
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=False)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    of_pieces = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[UNK]", *others])
    words = Tokenizer(models.Unigram())
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    of_words = trainers.UnigramTrainer(special_tokens=["<pad>", "<unk>", *others], unk_token="<unk>")
    for name, made, trainer in (("BERT", pieces, of_pieces), ("RemBERT", words, of_words)):
        made.train_from_iterator(tiny.TEXTS, trainer)
        single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        ids = [("[CLS]", 2), ("[SEP]", 3)]
        made.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
        (folder / name).mkdir()
        made.save(str(folder / name / "tokenizer.json"))
        (folder / name / "tokenizer_config.json").write_text('{"do_lower_case": false}')

    sizes = json.loads((folder / "XLM-RoBERTa" / "config.json").read_text())
    keep = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    common = {name: sizes[name] for name in (*keep, "max_position_embeddings", "vocab_size")}
    special_ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    small = {"input_embedding_size": 8, "output_embedding_size": 8, **special_ids}
    for name, config, model_class in [
        ("BERT", transformers.BertConfig(**common), transformers.BertModel),
        ("RemBERT", transformers.RemBertConfig(**common, **small), transformers.RemBertModel),
        ("XLM-RoBERTa-XL", transformers.XLMRobertaXLConfig(**common), transformers.XLMRobertaXLModel),
    ]:
        config.vocab_size = Tokenizer.from_file(str(folder / name / "tokenizer.json")).get_vocab_size()
        torch.manual_seed(3)
        model = model_class(config)
        spread(model.named_parameters())
        model.save_pretrained(folder / name)


def spread(parameters: Any, scale: float = 0.2) -> None:
    """Draw weights so widely that layers, heads and exits really differ."""
    with torch.no_grad():
        for name, parameter in parameters:
            if parameter.dim() > 1 or "scalar_parameters" in name:
                # Narrower for the mix, or sparsemax would leave one layer only.
                parameter.normal_(0, 0.4 if "scalar" in name else scale)
            elif "gamma" in name:
                parameter.uniform_(0.5, 1.5)
            elif "bias" in name:
                parameter.normal_(0, scale)


def balance(model: Any, given: list[dict[str, str]]) -> None:
    """Shift scores so that some are above 1 (xCOMET cuts them), and tags so that some are no errors."""
    with torch.no_grad():
        inputs = model.prepare_for_inference(given)[0]
        found = model(**inputs)
        model.estimator.ff[-1].bias += 0.95 - found.score.median()
        lead = found.logits[..., 0] - found.logits[..., 1:].max(dim=-1).values
        model.hidden2tag.bias[0] += 0.3 - lead[inputs["label_ids"] != -1].median()


def peer(folder: Path, fork: Path | None) -> None:
    """Make the checkpoints with COMET's classes and write down what COMET says."""
    import logging

    import comet.models

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    packages = [comet.models]
    if fork is not None:
        sys.path.insert(0, str(fork))
        import comet_early_exit.models

        packages.append(comet_early_exit.models)
    write_encoders(folder)
    found = []
    for number, (name, encoder, options, special) in enumerate(CASES):
        package = next((p for p in packages if hasattr(p, name)), None)
        if package is not None:
            torch.manual_seed(100 + number)
            result = peer_case(folder, number, package, (name, encoder, options, special))
            found.append({"number": number, "class": name, "encoder": encoder, **special, **result})
    (folder / "peer.json").write_text(json.dumps(found))


def peer_case(folder: Path, number: int, package: Any, case: Any) -> dict[str, Any]:
    import pytorch_lightning
    import yaml
    from pytorch_lightning.core.saving import save_hparams_to_yaml

    name, encoder, options, special = case
    made = getattr(package, name)(
        encoder_model=encoder, pretrained_model=str(folder / encoder), validation_data=[], **options
    )
    spread(((k, v) for k, v in made.named_parameters() if not k.startswith("encoder.")), scale=0.6)
    if getattr(made, "word_level", False):
        balance(made.eval(), samples(special))
    root = folder / f"model{number}"
    (root / "checkpoints").mkdir(parents=True)
    quiet = {"logger": False, "accelerator": "cpu", "enable_checkpointing": False}
    trainer = pytorch_lightning.Trainer(**quiet, enable_progress_bar=False, enable_model_summary=False)
    trainer.strategy.connect(made)
    trainer.save_checkpoint(root / "checkpoints" / "model.ckpt", weights_only=True)
    save_hparams_to_yaml(root / "hparams.yaml", made.hparams)
    if "yaml" in special:
        changed = {**yaml.safe_load((root / "hparams.yaml").read_text()), **special["yaml"]}
        (root / "hparams.yaml").write_text(yaml.safe_dump(changed))

    model = package.load_from_checkpoint(str(root / "checkpoints" / "model.ckpt"), strict=True).eval()
    if "threshold" in special:
        model.set_decoding_threshold(special["threshold"])
    given = samples(special)
    result: dict[str, Any] = {"tokens": peer_tokens(model.prepare_for_inference(given))}
    if package.__name__.startswith("comet."):
        out = model.predict(given, batch_size=5, gpus=0, progress_bar=False, num_workers=0)
        result["score"] = out["scores"]
        spans = out["metadata"].get("error_spans") if "metadata" in out else None
        return result if spans is None else {**result, "spans": spans}
    with torch.no_grad():
        out = model.predict_step(model.prepare_for_inference(given))
    for ours, theirs in (("score", "scores"), ("error", "confidences")):
        if theirs in out:
            # Layers come first.
            result[ours] = out[theirs].T.tolist()
    return result


def peer_tokens(inputs: Any) -> list[list[list[int]]]:
    """The tokens of each sequence of each text (mt, src, ref) or pass."""
    if isinstance(inputs, tuple):
        pairs = [(part["input_ids"], part["attention_mask"]) for part in inputs]
    else:
        names = [name for name in ("mt", "src", "ref") if f"{name}_input_ids" in inputs]
        pairs = [(inputs[f"{name}_input_ids"], inputs[f"{name}_attention_mask"]) for name in names]
    return [[row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True)] for ids, mask in pairs]


def samples(special: dict[str, Any]) -> list[dict[str, str]]:
    with_reference = special.get("reference", True)
    return [{k: v for k, v in row.items() if k != "ref" or with_reference} for row in SEGMENTS]


# Our side.


def ours(folder: Path, case: dict[str, Any], flush_open: bool = False) -> dict[str, Any]:
    """Tokens, scores, errors and spans of the segments by the model in a folder."""
    from doubtless.neural.comet import load_comet
    from doubtless.neural.encoder import batch_of
    from doubtless.neural.model import Batch
    from doubtless.neural.spans import decode_spans, mqm_score, word_probabilities, xcomet_score

    model = load_comet(folder)
    config, tokens = model.config, model.tokens
    rows = samples(case)
    texts = {name: tokens.encode([row[name] for row in rows]) for name in config.texts if name in rows[0]}
    count = torch.arange(len(rows))

    def run(sequences: list[list[int]], places: dict[str, torch.Tensor]) -> Any:
        with torch.inference_mode():
            return model.estimator(Batch(*batch_of(sequences, tokens.padding), places))

    if config.inputs == "separate":
        sequences = [[text.ids for text in texts[name]] for name in config.texts]
        places = {name: count + i * len(rows) for i, name in enumerate(config.texts)}
        outputs, _ = run([ids for part in sequences for ids in part], places)
        found = {name: values.squeeze(0).numpy().T.tolist() for name, values in outputs.items()}
        return {"tokens": sequences, **found}

    passes = config.passes if "ref" in texts or "src" not in texts else (("mt", "src"),)
    sequences = [
        [tokens.join([texts[name][i] for name in names]).ids for i in range(len(rows))] for names in passes
    ]
    results = [run(part, {"joint": count}) for part in sequences]
    scores = np.stack([outputs["score"][0].numpy() for outputs, _ in results])
    if not config.word_tags:
        return {"tokens": sequences, "score": scores.mean(axis=0).tolist()}
    with torch.inference_mode():
        tags = [model.estimator.read_words(state).softmax(dim=-1).numpy() for _, state in results]
    rules = {"threshold": case.get("threshold"), "flush_open": flush_open}
    spans = [
        decode_spans(probabilities, mt.offsets, row["mt"], config.word_tags, **rules)
        for probabilities, mt, row in zip(word_probabilities(tags), texts["mt"], rows, strict=True)
    ]
    mqm = [mqm_score(found) for found in spans]
    score = xcomet_score(scores, mqm) if config.combination == "xcomet" else scores.mean(axis=0)
    return {"tokens": sequences, "score": score.tolist(), "spans": spans}


def difference(theirs: dict[str, Any], mine: dict[str, Any]) -> float:
    """The largest difference of any number; infinite if tokens or spans are not the same."""
    if "tokens" in theirs and theirs["tokens"] != mine["tokens"]:
        return float("inf")
    largest = 0.0
    for name in ("score", "error"):
        if name in theirs:
            gap = np.abs(np.asarray(theirs[name]) - np.asarray(mine[name]))
            largest = max(largest, float(np.nan_to_num(gap, nan=np.inf).max()))
    for one, other in zip(theirs.get("spans", []), mine.get("spans", []), strict=True):
        if [place(span) for span in one] != [place(span) for span in other]:
            return float("inf")
        gaps = [abs(a["confidence"] - b["confidence"]) for a, b in zip(one, other, strict=True)]
        largest = max([largest, *gaps])
    return largest


def place(span: dict[str, Any]) -> tuple[int, int, str]:
    return span["start"], span["end"], span["severity"]


def record(folder: Path, cases: list[dict[str, Any]]) -> None:
    """Keep checkpoints and COMET's results; tensors that several checkpoints share are kept once."""
    import yaml
    from safetensors.torch import save_file

    places: dict[bytes, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    kept = []
    for case in cases:
        root = folder / f"model{case['number']}"
        checkpoint = torch.load(root / "checkpoints" / "model.ckpt", weights_only=True)
        hparams = {**yaml.safe_load((root / "hparams.yaml").read_text()), "pretrained_model": "nowhere"}
        stored = {**checkpoint["hyper_parameters"], "pretrained_model": "nowhere"}
        state = {}
        for key, tensor in checkpoint["state_dict"].items():
            content = tensor.numpy().tobytes() + str(tuple(tensor.shape)).encode()
            state[key] = places.setdefault(content, f"t{len(places)}")
            tensors[state[key]] = tensor.clone()
        data = {name: value for name, value in case.items() if name not in ("tokens", "number")}
        kept.append({**data, "hparams": hparams, "hyper_parameters": stored, "state_dict": state})
    encoders = {
        name: {
            file: json.loads((folder / name / file).read_text()) for file in ("config.json", "tokenizer.json")
        }
        for name in sorted({case["encoder"] for case in cases})
    }
    GOLDEN.mkdir(exist_ok=True)
    save_file(tensors, GOLDEN / "comet.safetensors")
    (GOLDEN / "comet.safetensors").chmod(0o644)
    data = {"made_by": "benchmarks/comet_parity.py --record", "encoders": encoders, "cases": kept}
    (GOLDEN / "comet.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--comet-python", help="an interpreter with unbabel-comet")
    parser.add_argument("--fork", type=Path, help="the folder that holds the package comet_early_exit")
    parser.add_argument("--record", action="store_true", help="keep the results for the tests")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    fork = options.fork.resolve() if options.fork else None
    if options.peer:
        sys.path.insert(0, str(ROOT / "tests" / "neural"))
        peer(options.peer, fork)
        return 0
    if not options.comet_python:
        parser.error("--comet-python is needed")
    # Absolute but not resolved: the interpreter of an environment is a link.
    python = shutil.which(options.comet_python) or parser.error(f"there is no {options.comet_python}")
    python = str(Path(python).absolute())
    # The folder is current so that what COMET takes for hub names is found there, on both sides.
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        command = [python, str(Path(__file__).resolve()), "--peer", str(folder)]
        command += ["--fork", str(fork)] if fork else []
        subprocess.run(command, check=True)
        cases = json.loads((folder / "peer.json").read_text())
        worst = 0.0
        print(f"{'class':29} {'encoder':15} {'options':25} {'n':>3} {'difference':>10} {'spans':>5} flushed")
        for case in cases:
            root = folder / f"model{case['number']}"
            gap = difference(case, ours(root, case))
            worst = max(worst, gap)
            line = f"{case['class']:29} {case['encoder']:15} {case.get('note', ''):25} {len(SEGMENTS):3}"
            line += f" {gap:10.1e}"
            if "spans" in case:
                # By default a span that reaches the end counts, and one without characters does not.
                flushed = ours(root, case, flush_open=True)["spans"]
                line += f" {sum(map(len, case['spans'])):5} {sum(map(len, flushed)):7}"
            print(line)
        if options.record:
            record(folder, cases)
    print(f"largest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
