"""UTF-8 text: lines that end in a line feed and in nothing else."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from doubtless.errors import InputError

_OTHER_ENCODINGS = ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))


def decoded_lines(stream: Iterable[bytes], name: str, first: int = 1) -> Iterator[str]:
    """Decode the lines of a binary stream, each with its line ending; a byte-order mark is dropped.

    A file object gives lines at ``\\n`` only: characters such as U+2028 or a form feed, at which
    ``str.splitlines`` would also break, stay inside their segment. ``first`` is the number of the
    first line, when the stream is the rest of a file.
    """
    for number, raw in enumerate(stream, start=first):
        if number == 1:
            for mark, encoding in _OTHER_ENCODINGS:
                if raw.startswith(mark):
                    raise InputError(f"{name}:1: the file is {encoding}, expected UTF-8")
            raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{name}:{number}: byte {error.start + 1} of the line"
            raise InputError(f"{place} is not valid UTF-8 (0x{raw[error.start]:02x})") from None
        if "\0" in line:
            raise InputError(f"{name}:{number}: the line holds a NUL character")
        yield line


def segments_of(stream: BinaryIO, name: str) -> list[str]:
    """Read plain text, one segment a line; ``\\n`` and ``\\r\\n`` end a line."""
    return [
        line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
        for line in decoded_lines(stream, name)
    ]


def render(segments: Iterable[str]) -> bytes:
    """Write plain text, one segment a line."""
    text = "".join(f"{segment}\n" for segment in segments)
    # A reader drops one byte-order mark: if the text itself begins with that character, it needs another.
    return (codecs.BOM_UTF8 if text.startswith("\ufeff") else b"") + text.encode("utf-8")
