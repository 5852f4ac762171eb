"""JSON that cannot be used, or not be a table, gets one sentence with file and line."""

from pathlib import Path

import pytest

from doubtless.errors import InputError
from doubtless.segments import read

TOO_LARGE = "is beyond the range of floating point"
HALF = "a text holds half of a surrogate pair, which is not valid Unicode"


def refusal(path: Path, data: str) -> str:
    path.write_text(data, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"a": 1}\n{"a": \n', "2: not valid JSON (expecting value, column 7)"),
        ('{"a": "x\n', "1: not valid JSON (unterminated string, column 7)"),
        ('{"a": "x\ty"}\n', "1: not valid JSON (invalid control character, column 9)"),
        ('{"a": 1} {"a": 2}\n', "1: text follows the JSON object"),
        ('{"a": 1}\n[1]\n', "2: expected a JSON object, found a list"),
        ('{"a": 1}\n\n"x"\n', "3: expected a JSON object, found text"),
        ('{"a": 1, "a": 2}\n', "1: key 'a' occurs twice"),
        ('{"a": 1, "b\\nc": 2, "b\\nc": 2}\n', "1: key 'b\\nc' occurs twice"),
        ('{"a": 1}\n{"a": NaN}\n', "2: NaN is not a finite number"),
        ('{"a": 1}\n{"a": -Infinity}\n', "2: -Infinity is not a finite number"),
        ('{"a": 1}\n{"a": 1e999}\n', f"2: 'a' {TOO_LARGE}"),
        (f'{{"a": {"9" * 400}}}', f"1: a number of 400 digits {TOO_LARGE}"),
        (f'{{"a": {"9" * 9000}}}', f"1: a number of 9000 digits {TOO_LARGE}"),
        ('{"a": ' + "[" * 50 + "]" * 50 + "}", "1: 'a' is nested more than 32 levels deep"),
        ('{"a": ' + "[" * 100_000, "1: the JSON is nested too deeply"),
        ('{"a": "\\ud800"}', f"1: {HALF}"),
        ('{"a": ["x", {"b": "\\udc00\\ud800"}]}', f"1: {HALF}"),
        ('{"\\udfff": 1}', f"1: {HALF}"),
    ],
)
def test_bad_json_lines_are_named_with_file_and_line(tmp_path: Path, data: str, expected: str):
    assert refusal(tmp_path / "f.jsonl", data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"a": 1}\n{"a": "x"}\n', "2: 'a' is text, but a number in the rows before"),
        ('{"a": true}\n{"a": 1}\n', "2: 'a' is a number, but a truth value in the rows before"),
        ('{"a": null}\n{"a": [1]}\n{"a": {}}', "3: 'a' is an object, but a list in the rows before"),
        ('{"a": [1, "x"]}\n', "1: 'a' mixes a number and text"),
        ('{"a": [1, true]}\n', "1: 'a' mixes a number and a truth value"),
        ('{"a": [1]}\n{"a": ["x"]}\n', "2: 'a' mixes a number and text"),
        ('{"a": {"b": 1}}\n{"a": {"b": []}}\n', "2: 'a' mixes a number and a list"),
    ],
)
def test_values_of_different_kinds_are_named_with_file_and_line(tmp_path: Path, data: str, expected: str):
    assert refusal(tmp_path / "f.jsonl", data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('[{"a": 1},\n {"a": 2},\n 3]', "3: expected a JSON object, found a number"),
        ('[{"a": 1}\n {"a": 2}]', "2: expected ',' or ']', found '{'"),
        ('[{"a": 1},\n', "2: not valid JSON (expecting value, column 1)"),
        ('[{"a": 1}\n', "2: expected ',' or ']', found the end of the file"),
        ('[{"a":\n\nx}]', "3: not valid JSON (expecting value, column 1)"),
        ('[{"a": 1}]\n]', "2: text follows the JSON value"),
        ('[{"a": 1},\n{\n"a":\n"x"}]', "2: 'a' is text, but a number in the rows before"),
        ('"x"', "1: expected '[', found '\"'"),
        ("{1: []}", "1: expected a key in double quotes"),
        ('{"a": 1}\n', "1: 'a' is not a list of segments (is this JSON lines, format jsonl?)"),
        (
            '{"a\\n": [{}],\n"b\\n": 1}',
            "2: 'b\\n' is not a list of segments (is this JSON lines, format jsonl?)",
        ),
    ],
)
def test_bad_json_documents_are_named_with_file_and_line(tmp_path: Path, data: str, expected: str):
    assert refusal(tmp_path / "f.json", data) == expected


def test_an_object_with_endlessly_many_keys_is_refused(tmp_path: Path):
    data = "\n".join(f'{{"a": {{"k{i}": 1}}}}' for i in range(1100))
    assert refusal(tmp_path / "f.jsonl", data) == "1001: 'a' has more than 1000 different keys"
