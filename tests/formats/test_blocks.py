"""Reading a block at a time gives exactly what reading line by line gives."""

import io
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from doubtless.errors import InputError
from doubtless.formats import delimited

pieces = st.sampled_from(
    [
        "a",
        "bc",
        "\t",
        "\t",
        "\t",
        ",",
        "\n",
        "\n",
        "\r\n",
        '"',
        '""',
        "\r",
        " ",
        "\ufeff",
        "x^",
        "é",
        "\u2028",
        "\0",
    ]
)
bodies = st.lists(pieces, max_size=40).map(lambda parts: "".join(parts).encode())
cells = st.sampled_from(
    ["", "a", " b ", 'c"d', "\ufeff", "x^", "x\x01", "#", "é\u2028\x0c", "0.5", '"q"', '"l\nm"']
)
tables = st.lists(st.tuples(cells, cells, cells).map("\t".join), max_size=12).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: (end.join(lines)).encode())
)
damage = st.sampled_from([b"", b"\n", b"\xff", b"\r", b"a\tb\n", b"\0", b'\n"', b"\t"])


def outcome(data: bytes, separator: str, wanted: set[str] | None, quotes: bool) -> object:
    try:
        parsed = delimited.parse(io.BytesIO(data), "f", separator, wanted, quotes)
    except InputError as error:
        return str(error)
    return parsed.frame.columns, parsed.frame.rows(), parsed.lines.tolist(), list(parsed.names)


def same_by_blocks_and_by_lines(
    data: bytes, separator: str, size: int, wanted: set[str] | None, quotes: bool
) -> None:
    with patch.object(delimited, "BYTES_PER_BLOCK", size):
        by_blocks = outcome(data, separator, wanted, quotes)
    with patch.object(delimited, "_plain_lines", return_value=None):
        by_lines = outcome(data, separator, wanted, quotes)
    assert by_blocks == by_lines


@settings(max_examples=300, deadline=None)
@given(
    body=st.one_of(bodies, st.tuples(tables, damage, tables).map(b"".join)),
    header=st.sampled_from(["a\tb\tc", "a\tb", "a,b", "a", '"a\n"\tb\tc']),
    separator=st.sampled_from("\t,"),
    size=st.sampled_from([1, 7, 30, 1 << 20]),
    wanted=st.sampled_from([None, {"b"}, {"a", "c"}, set()]),
    quotes=st.booleans(),
)
def test_blocks_and_lines_give_the_same(body, header, separator, size, wanted, quotes):
    same_by_blocks_and_by_lines(header.encode() + b"\n" + body, separator, size, wanted, quotes)


@settings(max_examples=100, deadline=None)
@given(tables, st.sampled_from([1, 7, 30, 1 << 20]), st.booleans())
def test_a_sound_table_is_the_same_by_blocks_and_by_lines(body: bytes, size: int, quotes: bool):
    same_by_blocks_and_by_lines(b"a\tb\tc\n" + body, "\t", size, {"a", "c"}, quotes)


def test_lines_without_quoted_cells_are_read_by_blocks():
    with patch.object(delimited, "_gather_rows", side_effect=AssertionError):
        parsed = delimited.parse(io.BytesIO(b'a\tb\n1\t2 "x"\r\n3\t\n'), "f", "\t")
    assert parsed.frame.rows() == [("1", '2 "x"'), ("3", "")]
    assert parsed.lines.tolist() == [2, 3]
