"""Stationary kernels as functions of one scaled squared distance.

With features divided by their length-scales, each kernel is a function k(s) of ``s = scale * r^2``. So
written, k and its derivative share one exponential, and neither divides by the distance, which is 0 between
equal rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from doubtless.errors import InputError
from doubtless.warp import Floats


@dataclass(frozen=True)
class Kernel:
    """A stationary kernel of unit variance.

    Parameters
    ----------
    name
        ``rbf``, ``mat32`` or ``mat52``.
    scale
        What the squared distance is multiplied by before :attr:`value_and_slope` sees it.
    value_and_slope
        Takes an array of scaled squared distances, which it may overwrite, and returns k and dk/ds.

    Examples
    --------
    >>> kernel = find_kernel("rbf")
    >>> value, slope = kernel.value_and_slope(kernel.scale * np.array([0.0, 2.0]))  # r^2 = 0 and 2
    >>> value.round(4)
    array([1.    , 0.3679])
    """

    name: str
    scale: float
    value_and_slope: Callable[[Floats], tuple[Floats, Floats]]


def _rbf(s: Floats) -> tuple[Floats, Floats]:
    np.negative(s, out=s)
    value = np.exp(s, out=s)
    return value, -value


def _matern32(s: Floats) -> tuple[Floats, Floats]:
    t = np.sqrt(s, out=s)
    slope = np.exp(-t)
    t += 1
    t *= slope
    slope *= -0.5
    return t, slope


def _matern52(s: Floats) -> tuple[Floats, Floats]:
    t = np.sqrt(s)
    decay = np.negative(t)
    np.exp(decay, out=decay)
    t += 1
    t *= decay
    s *= 1 / 3
    s *= decay
    s += t
    t *= -1 / 6
    return s, t


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("rbf", 0.5, _rbf),
        Kernel("mat32", 3.0, _matern32),
        Kernel("mat52", 5.0, _matern52),
    )
}


def find_kernel(name: str) -> Kernel:
    """Find a kernel by name."""
    if name not in KERNELS:
        raise InputError(f"there is no kernel '{name}', expected one of: {', '.join(KERNELS)}")
    return KERNELS[name]
