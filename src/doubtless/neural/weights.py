"""Weights that serve two runtimes: one file of floats, or of bytes with their scales.

A linear layer ``a.b`` whose weight is quantised is stored as

``a.b.weight``
    bytes, inputs by outputs: the transpose of PyTorch's, because a row vector is multiplied from the left;
``a.b.scale``
    one factor an output;
``a.smooth``
    if it is there, what inputs are multiplied with before they meet the bytes.

A table of embeddings has its bytes as they are and a factor a row; or half-bytes, two in a byte, the first
half of a row in the lower ones, and a factor for each 32 of them. Nothing here needs PyTorch: ONNX Runtime
computes with the bytes, PyTorch gets :func:`dequantised` floats.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from doubtless.neural.stepper import Array

_BLOCK = 32
_ROUNDED = 0.01
_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "U8": np.uint8, "I64": np.int64}


class Mapped(dict[str, Array]):
    """Tensors by name, in the memory of a mapped file."""

    def __init__(self, file: mmap.mmap) -> None:
        super().__init__()
        self._file = file

    def give_back(self) -> None:
        """Give their memory back; whoever reads them again gets them from the file.

        A runtime that has packed weights in its own way does not look at them any more.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED)


def mapped(path: Path) -> Mapped:
    """The tensors of a safetensors file, mapped: what nobody reads costs no memory.

    The format is eight bytes, the length of a JSON header, the header and the numbers.
    """
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    found = Mapped(whole)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind, (start, end) = np.dtype(_TYPES[entry["dtype"]]), entry["data_offsets"]
        if not 0 <= start <= end <= len(whole) - 8 - length:
            raise ValueError(f"{name} lies outside of the file")
        flat = np.frombuffer(whole, kind, (end - start) // kind.itemsize, 8 + length + start)
        found[name] = flat.reshape(entry["shape"])
    return found


def scaled_columns(weight: Array, smooth: Array | None = None) -> tuple[Array, Array]:
    """Quantise a linear layer's weight (outputs, inputs) to bytes (inputs, outputs) with a factor an output.

    Processors without VNNI add the products of two neighbouring inputs, each at most 255 times a byte, in 16
    bits. Where factors are such that the two bytes never exceed 128 together, no sum is cut off.

    Examples
    --------
    >>> data, scale = scaled_columns(np.array([[2.0, 1.0], [0.0, 4.0]]))
    >>> data.tolist(), (data * scale).round(1).T.tolist()
    ([[85, 0], [42, 127]], [[2.0, 1.0], [0.0, 4.0]])
    """
    matrix: Array = np.asarray(weight, dtype=np.float32).T
    if smooth is not None:
        matrix = matrix / smooth[:, None]
    size = np.abs(matrix)
    pairs = size[: len(size) // 2 * 2].reshape(-1, 2, size.shape[1]).sum(axis=1)
    largest = np.maximum(size.max(axis=0) / 127, pairs.max(axis=0, initial=0.0) / 127.5)
    scale = np.maximum(largest, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(matrix / scale).astype(np.int8), scale


def scaled_rows(table: Array) -> tuple[Array, Array]:
    """Quantise a table to bytes with a factor a row, which stands in a column."""
    floats = np.asarray(table, dtype=np.float32)
    scale = np.maximum(np.abs(floats).max(axis=1, keepdims=True) / 127, np.finfo(np.float32).tiny)
    return np.rint(floats / scale).astype(np.int8), scale


def half_bytes(table: Array) -> tuple[Array, Array] | None:
    """A table as half-bytes with their factors, if it is made of such.

    Of each 32 neighbours the largest is -8 times the factor, as in many files of quantised models. None if
    more than one row in a hundred would lose anything by it: a few may have been added since.

    Examples
    --------
    >>> table = np.tile(np.float32([0.5, -4.0, 3.5, 0.0]), (1, 16))
    >>> data, scale = half_bytes(table)
    >>> data.shape, scale.shape, bool((table_rows(data, scale, 0) == table[0]).all())
    ((1, 32), (1, 2), True)
    >>> half_bytes(table + np.linspace(0, 1, 64)) is None
    True
    """
    floats = np.asarray(table, dtype=np.float32)
    rows, size = floats.shape
    if size % _BLOCK:
        return None
    blocks = floats.reshape(rows, -1, _BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[:, :, None], axis=2)
    scale = (largest[:, :, 0] / -8).astype(np.float16)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)[:, :, None]
    whole = np.clip(np.rint(blocks / divisor), -8, 7).astype(np.int8).reshape(rows, size) + 8
    data = (whole[:, : size // 2] | whole[:, size // 2 :] << 4).astype(np.uint8)
    lost = np.abs(table_rows(data, scale, slice(None)) - floats).max(axis=1)
    rounded = np.mean(lost > 1e-6 * np.abs(floats).max(initial=0.0))
    return (data, scale) if rounded <= _ROUNDED else None


def table_rows(table: Array, scale: Array | None, rows: Any) -> Array:
    """Some rows of a table of embeddings as floats, however it is stored."""
    found: Array = table[rows]
    if scale is None:
        return found
    if table.dtype != np.uint8:
        return np.asarray(found * scale[rows])
    whole = np.concatenate([found & 15, found >> 4], axis=-1).astype(np.float32) - 8
    return whole * np.repeat(scale[rows].astype(np.float32), _BLOCK, axis=-1)


def dequantised(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Floats in PyTorch's order from weights as they are stored; floats pass as they are."""
    found = {}
    for name, stored in weights.items():
        if stored.dtype == np.uint8:
            found[name] = table_rows(stored, weights[f"{name.removesuffix('.weight')}.scale"], slice(None))
        elif stored.dtype == np.int8:
            found[name] = _floats(name, stored, weights)
        elif not name.endswith((".scale", ".smooth")):
            found[name] = stored
    return found


def _floats(name: str, stored: Array, weights: Mapping[str, Array]) -> Array:
    layer = name.removesuffix(".weight")
    scale = weights[f"{layer}.scale"]
    floats = stored * scale
    if scale.ndim > 1:
        return floats
    smooth = weights.get(f"{layer.rpartition('.')[0]}.smooth")
    return np.ascontiguousarray((floats if smooth is None else floats * smooth[:, None]).T)
