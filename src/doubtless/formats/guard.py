"""What goes wrong inside Polars, as a sentence."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from polars.exceptions import PanicException

from doubtless.errors import InputError
from doubtless.formats.words import reason

_STDERR = 2
_redirecting = threading.Lock()


@contextmanager
def refused(sentence: str) -> Iterator[None]:
    """Raise ``sentence (reason)`` for whatever a block of Polars calls raises.

    Where the Rust side gives up altogether ("panics"), it raises a ``BaseException`` whose text means
    nothing to a user, and prints a backtrace first; neither is passed on.
    """
    try:
        with _quiet_panics():
            yield
    except (InputError, MemoryError):
        raise
    except PanicException:
        raise InputError(sentence) from None
    except Exception as error:
        raise InputError(f"{sentence} ({reason(error)})") from None


@contextmanager
def _quiet_panics() -> Iterator[None]:
    """Hold back what is written to standard error meanwhile, and drop it if the block panics."""
    # One redirection at a time: two that overlap would restore each other's file.
    if not _redirecting.acquire(blocking=False):
        yield
        return
    try:
        with tempfile.TemporaryFile() as held:
            try:
                original = os.dup(_STDERR)
            except OSError:  # there is no standard error
                yield
                return
            os.dup2(held.fileno(), _STDERR)
            panicked = False
            try:
                yield
            except PanicException:
                panicked = True
                raise
            finally:
                os.dup2(original, _STDERR)
                os.close(original)
                if not panicked and held.seek(0, os.SEEK_END):
                    held.seek(0)
                    os.write(_STDERR, held.read())
    finally:
        _redirecting.release()
