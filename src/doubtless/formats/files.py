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
from doubtless.formats.words import bare, quoted


def named(source: str | os.PathLike[str]) -> str:
    """Return what messages call a file: its name as the user wrote it."""
    return "standard input" if os.fspath(source) == "-" else bare(os.fspath(source))


@contextmanager
def opened(source: str | os.PathLike[str], name: str) -> Iterator[BinaryIO]:
    """Open a file (``-``: standard input) for reading; what goes wrong is said in one sentence."""
    _check_name(source)
    try:
        if os.fspath(source) == "-":
            if sys.stdin is None:
                raise InputError(f"{name}: it is closed")
            yield sys.stdin.buffer
            return
        if os.path.isdir(source):
            raise InputError(f"{name}: this is a directory, expected a file")
        with open(source, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{name}: the file cannot be read ({_reason(error)})") from None


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody ever sees half of it."""
    _check_name(path)
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            if target.is_dir():
                raise InputError(f"{named(path)}: this is a directory, expected a file")
            target.write_bytes(data)  # a pipe or a device cannot be replaced by renaming
            return
        handle, temporary = tempfile.mkstemp(prefix=".doubtless-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(temporary, _permissions(target))
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"{named(path)}: the file cannot be written ({_reason(error)})") from None


def _check_name(path: str | os.PathLike[str]) -> None:
    """Refuse names that no file can have; the operating system's functions raise ``ValueError`` for them."""
    try:
        usable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise InputError(f"{quoted(os.fspath(path))} cannot be the name of a file")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _permissions(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
