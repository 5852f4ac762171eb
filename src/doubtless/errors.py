"""The errors a user can meet: each one a sentence that says where and what."""

from __future__ import annotations


class DoubtlessError(Exception):
    """Base of every error that doubtless raises on purpose; the command line prints it and exits with 2."""


class InputError(DoubtlessError, ValueError):
    """A file or an array holds something that cannot be used.

    The message begins with the place (``segments.tsv:17:``) when the input came from a file.
    """


class UndefinedError(DoubtlessError, ValueError):
    """A quantity was asked of a forecast or a calibration that does not define it."""
