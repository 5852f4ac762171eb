"""Conformal prediction: intervals that hold at the promised rate, whatever the forecast.

``split`` is the plain method, ``grouped`` and ``binned`` make the promise for every group or bin,
``weighted`` under a known covariate shift, ``ece`` is the calibration that the paper compares with;
``predictive`` gives whole distributions, ``exchangeability`` and ``leakage`` test what the promise rests on,
``diagnose`` measures how good intervals are, ``store`` writes calibrations to files.
"""
