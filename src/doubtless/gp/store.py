"""Models in folders: ``model.json`` for people, ``arrays.npz`` for numbers. Nothing is ever unpickled."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import doubtless
from doubtless.errors import InputError
from doubtless.formats.documents import Document
from doubtless.formats.files import named, opened, replace_file
from doubtless.gp.features import Extractor
from doubtless.gp.kernels import find_kernel
from doubtless.gp.likelihood import Parameters
from doubtless.gp.model import FittedGP, Posterior, root_of
from doubtless.gp.quest import Quest
from doubtless.gp.warping import LabelScale, Warping

DOCUMENT = Document("doubtless gp", 1, "Gaussian process of doubtless")


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted process with the way to its features, and the name of what it predicts."""

    fitted: FittedGP
    extractor: Extractor
    human: str
    fingerprint: str = ""

    @property
    def signature(self) -> str:
        """One line that says what made the scores."""
        fitted = self.fitted
        kind = "ard" if len(fitted.theta.log_lengths) > 1 else "iso"
        parts = [f"gp:{fitted.warp}-{fitted.kernel}-{kind}", f"features:{len(fitted.features)}"]
        parts += [f"n:{fitted.n}", f"rows:{len(fitted.posterior.rows)}", f"weights:{self.fingerprint}"]
        return "|".join([*parts, f"version:{doubtless.__version__}"])


def save(model: Model, folder: str | os.PathLike[str]) -> Model:
    """Write a model to a folder, its description last; return it with its fingerprint."""
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **_arrays(model))
    fingerprint = sha256(packed.getvalue()).hexdigest()[:12]
    named_model = Model(model.fitted, model.extractor, model.human, fingerprint)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{named(folder)}: the folder cannot be made ({error.strerror})") from None
    replace_file(Path(folder) / "arrays.npz", packed.getvalue())
    DOCUMENT.write(_description(named_model), Path(folder) / "model.json")
    return named_model


def load(folder: str | os.PathLike[str]) -> Model:
    """Read a model from a folder."""
    description, arrays = Path(folder) / "model.json", Path(folder) / "arrays.npz"
    data = DOCUMENT.read(description)
    with opened(arrays, named(arrays)) as stream:
        packed = stream.read()
    if sha256(packed).hexdigest()[:12] != data.get("weights"):
        raise InputError(f"{named(arrays)}: these are not the arrays that model.json was written with")
    with (
        DOCUMENT.understood(description, zipfile.BadZipFile),
        np.load(io.BytesIO(packed), allow_pickle=False) as found,
    ):
        return _model(data, dict(found))


def _arrays(model: Model) -> dict[str, np.ndarray]:
    fitted, texts = model.fitted, model.extractor.texts
    arrays = {"rows": fitted.posterior.rows, "weights": fitted.posterior.weights}
    if not fitted.exact:
        arrays["root"] = fitted.posterior.root  # an exact one is made again from the rows
    if texts is not None:
        arrays |= {f"texts_{name}": array for name, array in texts.arrays().items()}
    return arrays


def _description(model: Model) -> dict[str, Any]:
    fitted, extractor = model.fitted, model.extractor
    return {
        **DOCUMENT.head,
        "signature": model.signature,
        "weights": model.fingerprint,
        "human": model.human,
        "kernel": fitted.kernel,
        "warp": fitted.warp,
        "n": fitted.n,
        "exact": fitted.exact,
        "nll": fitted.nll,
        "features": list(fitted.features),
        "centre": fitted.centre.tolist(),
        "spread": fitted.spread.tolist(),
        "labels": {"centre": fitted.labels.centre, "scale": fitted.labels.scale},
        "parameters": {
            "log_variance": fitted.theta.log_variance,
            "log_lengths": fitted.theta.log_lengths.tolist(),
            "log_noise": fitted.theta.log_noise,
            "warp": fitted.theta.warp.tolist(),
        },
        "extractor": {
            "file": extractor.file,
            "columns": list(extractor.columns),
            "texts": extractor.texts is not None,
            "glass_box": extractor.glass_box,
            "left_out": list(extractor.left_out),
        },
    }


def _model(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Model:
    parts = data["parameters"]
    theta = Parameters(
        float(parts["log_variance"]),
        np.array(parts["log_lengths"], dtype=np.float64),
        float(parts["log_noise"]),
        np.array(parts["warp"], dtype=np.float64),
    )
    kernel, warping = find_kernel(data["kernel"]), Warping.parse(data["warp"])
    features = tuple(str(name) for name in data["features"])
    if len(theta.warp) != warping.size or len(theta.log_lengths) not in (1, len(features)):
        raise ValueError("parameters do not fit the model")
    rows, weights = arrays["rows"], arrays["weights"]
    root = root_of(kernel, rows, theta) if data["exact"] else arrays["root"]
    if rows.shape != (len(weights), len(features)) or root.shape[1] != len(weights):
        raise ValueError("arrays do not fit together")
    fitted = FittedGP(
        kernel=kernel.name,
        warp=warping.name,
        features=features,
        centre=np.array(data["centre"], dtype=np.float64),
        spread=np.array(data["spread"], dtype=np.float64),
        labels=LabelScale(float(data["labels"]["centre"]), float(data["labels"]["scale"])),
        theta=theta,
        posterior=Posterior(rows, weights, root),
        nll=float(data["nll"]),
        n=int(data["n"]),
        exact=bool(data["exact"]),
    )
    way = data["extractor"]
    texts = {k.removeprefix("texts_"): a for k, a in arrays.items() if k.startswith("texts_")}
    extractor = Extractor(
        file=int(way["file"]),
        columns=tuple(way["columns"]),
        texts=Quest.from_arrays(texts) if way["texts"] else None,
        glass_box=bool(way["glass_box"]),
        left_out=tuple(way["left_out"]),
    )
    if extractor.names != features:
        raise ValueError("features do not fit their sources")
    return Model(fitted, extractor, str(data["human"]), str(data["weights"]))
