"""Public data sets, by local path."""

from __future__ import annotations

import os
from pathlib import Path

from doubtless.errors import InputError


def locate(directory: str | os.PathLike[str] | None, file: str) -> Path:
    """Find a data set's file in the directory given, or in ``DOUBTLESS_DATA``.

    Raises
    ------
    InputError
        With what to do, when the directory is not known or does not hold the file.
    """
    known = directory or os.environ.get("DOUBTLESS_DATA")
    if not known:
        raise InputError(f"{file} is needed: give its directory by --data or in DOUBTLESS_DATA")
    path = Path(known) / file
    if not path.is_file():
        raise InputError(f"{path}: there is no such file (--data or DOUBTLESS_DATA names another directory?)")
    return path
