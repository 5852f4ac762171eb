"""What doubtless itself writes and reads again: JSON with a name and a version of its format."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import doubtless
from doubtless.errors import InputError
from doubtless.formats.files import named, opened, replace_file


@dataclass(frozen=True)
class Document:
    """A kind of document.

    Parameters
    ----------
    format, version
        What the document says of itself, and what is expected when it is read.
    noun
        What messages call it, after "a" or "the".

    Examples
    --------
    >>> Document("doubtless example", 1, "example").head["format"]
    'doubtless example'
    """

    format: str
    version: int
    noun: str

    @property
    def head(self) -> dict[str, Any]:
        """What stands at the beginning of the document."""
        made_by = f"doubtless {doubtless.__version__}"
        return {"format": self.format, "version": self.version, "made_by": made_by}

    def write(self, data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
        """Write data, which begins with the head."""
        replace_file(path, (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode())

    def read(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Read a document of this kind; anything else is refused."""
        name = named(path)
        with opened(path, name) as stream:
            raw = stream.read()
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError):
            raise InputError(f"{name}: this is not a {self.noun} (not valid JSON)") from None
        if not isinstance(data, dict) or data.get("format") != self.format:
            raise InputError(f"{name}: this is not a {self.noun}")
        if data.get("version") != self.version:
            raise InputError(f"{name}: version {data.get('version')} of the format, expected {self.version}")
        return data

    @contextmanager
    def understood(self, path: str | os.PathLike[str], *others: type[Exception]) -> Iterator[None]:
        """Say in one sentence what is wrong with the contents; ``others`` are errors to expect beside."""
        name = named(path)
        expected: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError, AttributeError, *others)
        try:
            yield
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        except expected as error:
            reason = f"no '{error.args[0]}'" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{name}: the {self.noun} is damaged ({reason})") from None
