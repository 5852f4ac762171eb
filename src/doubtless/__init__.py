"""doubtless scores machine translations and says how far each score can be trusted.

The public names are imported when first used, so that ``import doubtless`` costs nothing.

>>> import doubtless as dl
>>> forecast = dl.Gaussian([0.4, 0.9, 0.1], [0.2, 0.1, 0.2])
>>> calibrated = dl.SplitConformal(alpha=0.5).fit(forecast, [0.5, 0.7, 0.1])
>>> calibrated.intervals(forecast[:1]).width.round(2)
array([0.2])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Table": "segments",
    "read": "segments",
    "read_parallel": "segments",
    "write": "segments",
    "write_parallel": "segments",
    "ErrorEstimate": "forecast",
    "Forecast": "forecast",
    "Gaussian": "forecast",
    "Quantiles": "forecast",
    "Samples": "forecast",
    "WarpedGaussian": "forecast",
    "BinnedConformal": "conformal.binned",
    "EceCalibration": "conformal.ece",
    "GroupedConformal": "conformal.grouped",
    "Intervals": "conformal.split",
    "PredictiveDistribution": "conformal.predictive",
    "SplitConformal": "conformal.split",
    "WeightedConformal": "conformal.weighted",
    "p_values": "conformal.split",
    "DoubtlessError": "errors",
    "InputError": "errors",
    "UndefinedError": "errors",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'doubtless' has no attribute {name!r}")
    value = getattr(import_module(f"doubtless.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
