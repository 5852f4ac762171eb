"""Opening a model for scoring, on the runtime that suits it."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from doubtless import bundled
from doubtless.errors import InputError
from doubtless.neural.engine import Engine
from doubtless.neural.folder import locate, read_folder
from doubtless.surface.model import Surface

if TYPE_CHECKING:
    from doubtless.neural.checkpoint import Model

Runtime = Literal["auto", "torch", "onnx"]


def open_engine(
    source: str | os.PathLike[str] | None = None,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    batch_tokens: int = 4_096,
    runtime: Runtime = "auto",
) -> Engine:
    """Open a model for scoring.

    Parameters
    ----------
    source
        A folder (ours or COMET's) or a name on the hub; None: the model that comes with the package.
    device, dtype
        Where and in which precision PyTorch runs it.
    threads
        How many threads; None: as many as the runtime thinks right.
    batch_tokens
        Most tokens of a batch.
    runtime
        ``auto``: models that were exported run on ONNX Runtime where the device is ``cpu`` and the precision
        ``float32``, all others on PyTorch.

    Raises
    ------
    InputError
        If there is no such model, it is damaged, or PyTorch is needed and missing.

    Examples
    --------
    >>> engine = open_engine("model", threads=2)  # doctest: +SKIP
    >>> engine.score({"src": ["Haus"], "mt": ["house"]}).score  # doctest: +SKIP
    """
    if runtime not in get_args(Runtime):
        raise InputError(f"a runtime is one of {', '.join(get_args(Runtime))}, found '{runtime}'")
    path = bundled.folder() if source is None else locate(source)
    exported = (path / "steps").is_dir()
    if runtime == "onnx" or (runtime == "auto" and exported and (device, dtype) == ("cpu", "float32")):
        return _onnx_engine(path, device, threads, batch_tokens)
    if find_spec("torch") is None:
        raise InputError("torch is missing: pip install 'doubtless[torch]'")
    import torch

    from doubtless.neural.checkpoint import load

    if threads is not None:
        torch.set_num_threads(threads)
    return torch_engine(load(path), device=device, dtype=dtype, batch_tokens=batch_tokens)


def torch_engine(
    model: Model, *, device: str = "cpu", dtype: str = "float32", batch_tokens: int = 4_096
) -> Engine:
    """An engine around a loaded model, which is moved to a device and a precision."""
    from doubtless.neural.torch_stepper import TorchStepper

    stepper = TorchStepper(model, device, dtype)
    parts = (stepper, model.tokens, model.config, model.name)
    return Engine(*parts, _of_both(model.fingerprint, model.surface), batch_tokens, model.surface)


def _onnx_engine(path: Path, device: str, threads: int | None, batch_tokens: int) -> Engine:
    from doubtless.neural.onnx_stepper import OnnxStepper

    if device != "cpu":
        raise InputError(f"ONNX Runtime runs on the cpu here, not on '{device}'")
    folder = read_folder(path)
    stepper = OnnxStepper(folder, threads)
    surface, parts = folder.surface, (stepper, folder.tokens, folder.config, folder.name)
    return Engine(*parts, _of_both(stepper.fingerprint, surface), batch_tokens, surface)


def _of_both(fingerprint: Callable[[], str], surface: Surface | None) -> Callable[[], str]:
    """The fingerprint of weights together with what corrects their scores."""
    if surface is None:
        return fingerprint
    return lambda: sha256(f"{fingerprint()} {surface.digest()}".encode()).hexdigest()[:8]
