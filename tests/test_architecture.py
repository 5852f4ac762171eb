"""The shape of the package: who may import whom, what must not be imported, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import doubtless

ROOT = Path(doubtless.__file__).parent

# A module knows only what stands before it. Packages count as one.
LAYERS = [
    {"errors"},
    {"ranks", "warp", "formats", "bundled"},
    {"segments", "forecast"},
    {"columns", "metaeval", "datasets", "systems"},
    {"conformal", "gp"},
    {"surface"},
    {"neural"},
    {"decide", "words"},
    {"reproduce"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "doubtless":
                names = [f"doubtless.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("doubtless.")}
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_knows_only_what_stands_before_it(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for other in imports(path) - {own, "__version__"}:
        assert LEVEL[other] < LEVEL[own], f"{own} must not import {other}"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["evaluate", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    heavy = ("torch", "transformers", "onnxruntime", "matplotlib", "scipy", "polars", "numpy")
    code = (
        "import sys\nfrom doubtless.cli.main import main\n"
        f"main({arguments!r})\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_every_public_name_exists_and_has_a_docstring():
    for name in doubtless.__all__:
        value = getattr(doubtless, name)
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception)):
            assert value.__doc__, name
    assert set(doubtless.__all__) == set(dir(doubtless))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = doubtless.nonsense


def test_no_file_is_too_long():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path


def test_every_verb_has_a_module_and_its_own_help():
    from doubtless.cli.main import VERBS, overview

    for verb in VERBS:
        assert callable(getattr(import_module(f"doubtless.cli.{verb}"), verb))
        assert f"  {verb} " in overview()
