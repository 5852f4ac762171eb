"""Opening files, and replacing them whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from doubtless.errors import InputError


@contextmanager
def opened(source: str | os.PathLike[str], name: str) -> Iterator[BinaryIO]:
    """Open a file (``-``: standard input) for reading; what goes wrong is said in one sentence."""
    if os.fspath(source) == "-":
        yield sys.stdin.buffer
        return
    try:
        if os.path.isdir(source):
            raise InputError(f"{name}: this is a directory, expected a file")
        with open(source, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except OSError as error:
        raise InputError(
            f"{name}: the file cannot be read ({(error.strerror or str(error)).lower()})"
        ) from None
    except ValueError as error:
        if isinstance(error, InputError) or "null" not in str(error):
            raise
        raise InputError("a file name cannot hold a NUL character") from None


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody ever sees half of it."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            if target.is_dir():
                raise InputError(f"{os.fspath(path)}: this is a directory, expected a file")
            target.write_bytes(data)  # a pipe or a device cannot be replaced by renaming
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(temporary, _permissions(target))
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: the file cannot be written ({(error.strerror or '').lower()})"
        ) from None


def _permissions(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
