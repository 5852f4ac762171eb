"""COMET's folders: parity with results that COMET itself gave, and what is refused.

tests/neural/golden holds checkpoints of COMET's own classes, of random weights, and what COMET 2.2.7 and the
early-exit fork made of them: benchmarks/comet_parity.py --record wrote it.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
yaml = pytest.importorskip("yaml")

from safetensors.torch import load_file  # noqa: E402

from doubtless.errors import InputError  # noqa: E402
from doubtless.neural.checkpoint import load, save  # noqa: E402
from doubtless.neural.comet import load_comet, renamed  # noqa: E402
from doubtless.neural.runtime import torch_engine  # noqa: E402
from doubtless.neural.spans import decode_spans, mqm_score, word_probabilities, xcomet_score  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from comet_parity import TOLERANCE, difference, ours, samples  # noqa: E402

GOLDEN = Path(__file__).parent / "golden"
RECORD = json.loads((GOLDEN / "comet.json").read_text(encoding="utf-8"))
CASES = RECORD["cases"]


def title(case: dict[str, Any]) -> str:
    return f"{case['class']}-{case['encoder']}-{case.get('note', '')}".replace(" ", "_")


@cache
def tensors() -> dict[str, Any]:
    return load_file(GOLDEN / "comet.safetensors")


def write_folder(root: Path, case: dict[str, Any], hparams=None, stored=None, state=None) -> Path:
    """Write a COMET folder from the record, with other hyper-parameters or weights where they are given."""
    (root / "checkpoints").mkdir(parents=True)
    (root / "encoder").mkdir()
    for file, content in RECORD["encoders"][case["encoder"]].items():
        (root / "encoder" / file).write_text(json.dumps(content), encoding="utf-8")
    (root / "hparams.yaml").write_text(yaml.safe_dump({**case["hparams"], **(hparams or {})}))
    weights = {key: tensors()[place] for key, place in case["state_dict"].items()}
    checkpoint = {
        "epoch": 0,
        "state_dict": {**weights, **(state or {})},
        "hyper_parameters": {**case["hyper_parameters"], **(stored or {})},
    }
    torch.save(checkpoint, root / "checkpoints" / "model.ckpt")
    return root


def case_of(name: str, **special) -> dict[str, Any]:
    return next(c for c in CASES if c["class"] == name and all(c.get(k) == v for k, v in special.items()))


@pytest.fixture
def regression(tmp_path) -> Path:
    return write_folder(tmp_path / "model", case_of("RegressionMetric"))


def rewrite(root: Path, change) -> Path:
    path = root / "checkpoints" / "model.ckpt"
    data = torch.load(path, weights_only=True)
    change(data)
    torch.save(data, path)
    return root


@pytest.mark.parametrize("case", CASES, ids=title)
def test_scores_errors_and_spans_are_those_of_comet(case, tmp_path):
    mine = ours(write_folder(tmp_path / "model", case), case)
    assert difference(case, mine) < TOLERANCE


@pytest.mark.parametrize("case", [case for case in CASES if not case.get("threshold")], ids=title)
def test_the_engine_gives_the_scores_of_comet(case, tmp_path):
    rows = samples(case)
    texts = {name: [row[name] for row in rows] for name in rows[0]}
    engine = torch_engine(load(write_folder(tmp_path / "model", case)), batch_tokens=200)
    scored = engine.score(texts, spans=True)
    expected = np.asarray(case["score"])
    last = expected if expected.ndim == 1 else expected[:, -1]  # the fork scores at every layer
    np.testing.assert_allclose(scored.score, last, atol=TOLERANCE)
    if "spans" in case:
        assert scored.spans is not None
        for ours_, theirs in zip(scored.spans, case["spans"], strict=True):
            found = {(span["start"], span["end"], span["severity"]) for span in ours_}
            assert found >= {
                tuple(span[k] for k in ("start", "end", "severity")) for span in theirs if span["end"]
            }


def test_every_class_is_recorded_and_the_record_can_fail():
    classes = {case["hparams"]["class_identifier"] for case in CASES}
    assert len(classes) == 10
    for case in CASES:
        assert np.ptp(np.asarray(case["score"]), axis=0).max() > 1e-2, title(case)
    counts = [len(spans) for case in CASES for spans in case.get("spans", [])]
    assert min(counts) == 0
    assert max(counts) > 5


def test_a_wrong_weight_shows(tmp_path):
    case = case_of("XCOMETMetric")
    key = "layerwise_attention.scalar_parameters.1"
    root = write_folder(tmp_path / "model", case, state={key: torch.tensor([0.9])})
    assert difference(case, ours(root, case)) > 1e-3


def test_the_patch_means_softmax_whatever_the_checkpoint_says(tmp_path):
    case = case_of("UnifiedMetric", note="mt+src, sparsemax_patch")
    assert case["hyper_parameters"]["layer_transformation"] == "sparsemax"
    assert load_comet(write_folder(tmp_path / "patch", case)).config.layer_mix == "softmax"
    plain = write_folder(tmp_path / "plain", case, {"layer_transformation": "sparsemax"})
    assert load_comet(plain).config.layer_mix == "sparsemax"
    assert difference(case, ours(plain, case)) > 1e-3


def test_hyper_parameters_of_the_checkpoint_come_first_and_those_of_the_yaml_fill_in(regression):
    def strip(data):
        del data["hyper_parameters"]

    case = case_of("RegressionMetric")
    (regression / "hparams.yaml").write_text(yaml.safe_dump({**case["hparams"], "pool": "cls"}))
    assert load_comet(regression).config.pooling == "mean"
    assert load_comet(rewrite(regression, strip)).config.pooling == "cls"


def test_the_kind_of_tokens_matters_for_bert(tmp_path, monkeypatch):
    case = case_of("UnifiedMetric", encoder="BERT")
    root = write_folder(tmp_path / "model", case)
    assert load_comet(root).config.kinds_after == 3
    monkeypatch.setattr("doubtless.neural.model.Estimator._kinds", lambda self, ids: None)
    assert difference(case, ours(root, case)) > 1e-3


def test_what_is_known_and_not_needed_is_left_out(tmp_path):
    case = case_of("UnifiedMetric", note="mt+src+ref, tags")
    assert "wordloss.weight" in case["state_dict"]
    extra = {
        "encoder.model.embeddings.position_ids": torch.arange(66)[None],
        "encoder.model.pooler.dense.weight": torch.zeros(16, 16),
        "val_corr.0.preds": torch.zeros(3),
        "train_mcc.confmat": torch.zeros(3, 3),
    }
    load_comet(write_folder(tmp_path / "model", case, state=extra))


def test_mix_weights_are_joined_in_the_order_of_their_numbers():
    state = {
        f"layerwise_attention.1.scalar_parameters.{i}": torch.tensor([float(i)]) for i in range(12)[::-1]
    }
    assert renamed(state)["mixes.1.weights"].tolist() == list(range(12))


def test_unknown_and_missing_keys_are_listed(regression):
    def change(data):
        data["state_dict"]["layer_index_param"] = torch.zeros(4)
        del data["state_dict"]["estimator.ff.3.bias"]

    with pytest.raises(InputError, match=r"missing heads.0.layers.3.bias; unknown layer_index_param"):
        load_comet(rewrite(regression, change))


def test_a_missing_mix_weight_is_told(regression):
    def change(data):
        del data["state_dict"]["layerwise_attention.scalar_parameters.1"]

    with pytest.raises(InputError, match=r"mixes.0.weights has shape \(3,\), expected \(4,\)"):
        load_comet(rewrite(regression, change))


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_checkpoint_is_refused_and_not_run(regression, tmp_path, zipped):
    data = {"state_dict": {}, "hyper_parameters": {"note": Evil(tmp_path / "pwned")}}
    path = regression / "checkpoints" / "model.ckpt"
    torch.save(data, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"holds '\w+.mkdir'.*not loaded"):
        load_comet(regression)
    assert not (tmp_path / "pwned").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "pwned").exists(), "the test would not notice code that is run"


def test_code_in_the_yaml_is_refused(regression, tmp_path):
    text = f"class_identifier: !!python/object/apply:os.mkdir ['{tmp_path}/pwned']"
    (regression / "hparams.yaml").write_text(text)
    with pytest.raises(InputError, match=r"hparams.yaml: cannot be read"):
        load_comet(regression)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("hparams.yaml", None, r"hparams.yaml: cannot be read \(.*No such file"),
        ("hparams.yaml", b"- a\n- b\n", "not a list of hyper-parameters"),
        (
            "hparams.yaml",
            b"class_identifier: gemba\n",
            "model class 'gemba' is not supported .*ranking_metric",
        ),
        ("checkpoints/model.ckpt", None, r"model.ckpt: cannot be read \(.*No such file"),
        ("checkpoints/model.ckpt", b"PK\x03\x04 cut off", "model.ckpt: "),
        ("encoder/config.json", None, "config.json is missing"),
        ("encoder/config.json", b"{", "config.json: cannot be read"),
        ("encoder/tokenizer.json", b"{}", "tokenizer.json: cannot be read"),
        ("encoder/tokenizer.json", None, "encoder: the tokenizer is missing"),
    ],
)
def test_missing_and_broken_files_are_named(regression, file, content, message):
    (regression / file).unlink()
    if content is not None:
        (regression / file).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_comet(regression)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("pool", "max", r"pooling 'max' is not supported \(supported: avg, cls\)"),
        ("pool", "default", "pooling 'default' is not supported"),
        ("layer", 4, r"no layer '4' \(the encoder has layers 0 to 3\)"),
        ("layer", "top", "no layer 'top'"),
        ("layer_transformation", "entmax", "layer_transformation 'entmax' is not supported"),
        ("encoder_model", "ModernBERT", "encoder 'ModernBERT' is not supported"),
    ],
)
def test_options_that_are_not_supported_are_named(tmp_path, option, value, message):
    root = write_folder(tmp_path / "model", case_of("RegressionMetric"), stored={option: value})
    with pytest.raises(InputError, match=message):
        load_comet(root)


def test_a_tokenizer_without_the_special_tokens_is_refused(tmp_path):
    case = case_of("RegressionMetric")
    root = write_folder(tmp_path / "model", case, stored={"encoder_model": "BERT"})
    with pytest.raises(InputError, match=r"the tokenizer has no token '\[CLS\]'"):
        load_comet(root)


def test_a_checkpoint_without_weights_is_refused(regression):
    torch.save({"weights": {}}, regression / "checkpoints" / "model.ckpt")
    with pytest.raises(InputError, match="not a Lightning checkpoint"):
        load_comet(regression)


def test_the_encoder_comes_from_beside_the_checkpoint_then_a_folder_then_the_hub(
    regression, tmp_path, monkeypatch
):
    asked = []

    def ask(repository, name):
        asked.append((repository, name))
        raise OSError("no network here")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", ask)
    load_comet(regression)
    (regression / "encoder").rename(tmp_path / "elsewhere")

    def point(data):
        data["hyper_parameters"]["pretrained_model"] = str(tmp_path / "elsewhere")

    load_comet(rewrite(regression, point))
    assert asked == []

    (tmp_path / "elsewhere").rename(tmp_path / "gone")

    def name(data):
        data["hyper_parameters"]["pretrained_model"] = "xlm-roberta-large"

    with pytest.raises(InputError, match=r"xlm-roberta-large: config.json .*no network here.*'encoder'"):
        load_comet(rewrite(regression, name))
    assert asked == [("xlm-roberta-large", "config.json")]


def test_a_comet_model_becomes_one_of_ours_and_keeps_its_scores(tmp_path):
    case = case_of("UnifiedMetric", encoder="BERT")
    model = load(write_folder(tmp_path / "models--Unbabel--kiwi" / "snapshots" / "0a1b", case))
    assert model.name == "Unbabel/kiwi"
    assert (model.config.scale, model.config.direction) == ("comet", "higher")
    save(model, tmp_path / "own")
    again = load(tmp_path / "own")
    assert again.config == model.config
    assert again.fingerprint() == model.fingerprint()
    assert again.tokens.as_json() == model.tokens.as_json()


# Spans. Tags: no error, minor, major, critical.

TAGS = ("O", "minor", "major", "critical")
TEXT = "Die Kuh schlief gut"
OFFSETS = [(0, 0), (0, 3), (4, 7), (8, 15), (16, 19), (0, 0)]


def probabilities(*labels: int, sure: float = 0.7) -> np.ndarray:
    rest = (1 - sure) / 3
    return np.array([[sure if tag == label else rest for tag in range(4)] for label in labels])


def test_spans_are_runs_of_errors_as_severe_as_their_first_token():
    first, second = decode_spans(probabilities(0, 1, 0, 2, 3, 0), OFFSETS, TEXT, TAGS)
    assert first == {
        "text": "Die",
        "start": 0,
        "end": 3,
        "severity": "minor",
        "confidence": pytest.approx(0.7),
    }
    assert (second["text"], second["start"], second["end"]) == ("schlief gut", 8, 19)
    assert second["severity"] == "major"


@pytest.mark.parametrize("labels", [(0, 0, 0, 0, 2, 2), (0, 0, 0, 0, 2, 1)])
def test_a_span_that_is_open_at_the_end_is_flushed(labels):
    rows = probabilities(*labels)
    (span,) = decode_spans(rows, OFFSETS, TEXT, TAGS)
    assert (span["text"], span["start"], span["end"], span["severity"]) == ("gut", 16, 19, "major")
    assert decode_spans(rows, OFFSETS, TEXT, TAGS, flush_open=False) == []


def test_special_tokens_alone_are_no_span():
    rows = probabilities(2, 0, 0, 0, 0, 2)
    assert decode_spans(rows, OFFSETS, TEXT, TAGS) == []
    (as_comet,) = decode_spans(rows, OFFSETS, TEXT, TAGS, flush_open=False)
    assert (as_comet["start"], as_comet["end"]) == (0, 0)


def test_a_threshold_adds_up_the_error_tags():
    rows = np.array([[1.0, 0, 0, 0], [0.4, 0.25, 0.3, 0.05], [1.0, 0, 0, 0]])
    given = (rows, OFFSETS[:2] + OFFSETS[-1:], TEXT, TAGS)
    assert decode_spans(*given) == []
    (span,) = decode_spans(*given, threshold=0.5)
    assert (span["text"], span["severity"], span["confidence"]) == ("Die", "major", 0.3)
    assert decode_spans(*given, threshold=0.65) == []


def test_xcomet_by_hand():
    # One minor and one major error: 25 - 6 of 25. Scores of the passes: 0.5, 0.8 and 1.3, which counts as 1.
    spans = decode_spans(probabilities(0, 1, 0, 2, 2, 0), OFFSETS, TEXT, TAGS)
    assert mqm_score(spans) == pytest.approx(0.76)
    with_reference = xcomet_score([[0.5], [0.8], [1.3]], [0.76])
    assert with_reference == pytest.approx([0.12 * 0.5 + 0.33 * 0.8 + 0.33 * 1.0 + 0.22 * 0.76])
    assert xcomet_score([[0.5]], [0.76]) == pytest.approx([0.78 * 0.5 + 0.22 * 0.76])
    assert xcomet_score([[1.5]], [1.0]) == pytest.approx([1.0])


def test_mqm_scores_end_at_zero():
    spans = decode_spans(probabilities(0, 3, 0, 3, 0, 3), OFFSETS, TEXT, TAGS)
    assert mqm_score(spans) == pytest.approx(0.2)
    assert mqm_score(spans * 3) == 0
    assert mqm_score([]) == 1


def test_passes_are_blended_over_the_tokens_they_share():
    one, two, three = (np.full((1, n, 2), value) for n, value in ((4, 1.0), (3, 2.0), (5, 3.0)))
    blended = word_probabilities([one, two, three])
    assert blended.shape == (1, 3, 2)
    assert blended == pytest.approx(0.1667 + 0.3333 * 2 + 0.5 * 3)
    assert word_probabilities([one]) is one
