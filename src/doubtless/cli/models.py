"""``doubtless models``: what comes with the package, and what ``--model`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doubtless.cli import options as o

if TYPE_CHECKING:
    from pathlib import Path

_ACCEPTED = {
    "nothing": "the bundled model",
    "FOLDER": "a model that `doubtless train` wrote, or one of COMET's (hparams.yaml, checkpoints/)",
    "OWNER/NAME": "a model on the Hugging Face hub, downloaded once",
    "several times": "an ensemble",
}


def models(json: o.Json = False) -> None:
    """List the bundled model and what --model accepts."""
    from doubtless.cli.render import print_json, print_list

    found = _bundled()
    if json:
        print_json({"bundled": found, "accepted": _ACCEPTED})
        return
    if found is None:
        print("No model comes with this installation.\n")
    else:
        print_list((name, _said(value)) for name, value in found.items())
        print()
    print("--model takes")
    print_list(_ACCEPTED.items())


def _bundled() -> dict[str, Any] | None:
    """What the folder of the bundled model says about it."""
    from doubtless import bundled
    from doubtless.cli.shipped import notes_of
    from doubtless.errors import InputError

    try:
        path = bundled.folder()
    except InputError:
        return None
    notes = notes_of(path)
    model = notes.get("model", {})
    found = {
        "bundled": notes.get("name", path.name),
        "folder": str(path),
        "size": f"{_bytes(path) / 1e6:.1f} MB",
        "scores": f"{model.get('scale', '?')}, {model.get('direction', 'higher')} is better",
        "calibrated for": notes.get("pairs"),
        "figures": notes.get("figures") or notes.get("trained", {}).get("figures"),
        "exit": notes.get("exit"),
        "alphas": sorted(_alphas(path)),
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _alphas(path: Path) -> set[float]:
    from doubtless.conformal.store import load

    return {load(file).fitted.alpha for file in path.glob("calibration*.json")}


def _said(value: Any) -> str:
    from doubtless.cli.render import number

    if isinstance(value, dict):
        single = {name: figure for name, figure in value.items() if not isinstance(figure, list | dict)}
        return ", ".join(f"{name} {number(figure)}" for name, figure in single.items())
    return " ".join(str(item) for item in value) if isinstance(value, list) else str(value)
