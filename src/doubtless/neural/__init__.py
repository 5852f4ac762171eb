"""Neural estimators: one configurable model for every neural estimator of the papers.

Everything here but :mod:`doubtless.neural.config` needs PyTorch: ``pip install 'doubtless[torch]'``.
"""
