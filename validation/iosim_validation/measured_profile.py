"""Measured figures -> a hardware profile: the numbers of a known profile, with a measured section of its own."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from iosim.errors import ProfileError, RunError
from iosim.hardware import HardwareProfile, check_file, load_profile
from iosim.hardware.names import canonical
from iosim.resources import data_dir
from iosim_validation.measure import Figure, Measured, quantity_text
from iosim_validation.whole_file import written_whole

SOURCE = "iosim-measure"


def profile_for(gpu_name: str, asked: str | None) -> HardwareProfile | None:
    """The profile asked for, else the one that knows the driver's name for the GPU; None when none does."""
    if asked is not None:
        return load_profile(asked)
    try:
        found = load_profile(gpu_name)
    except ProfileError:
        return None
    return found if any(canonical(alias) == canonical(gpu_name) for alias in found.aliases) else None


def profile_text(base_name: str, measured: Measured, day: date) -> str:
    """The YAML of the shipped profile `base_name` with these figures in it; flagged ones are left out.

    What the base knows and was not measured anew stays. Errors: `ProfileError` for a base that is not shipped.
    """
    from io import StringIO

    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    yaml = YAML()
    yaml.width, yaml.preserve_quotes = 4096, True
    path = data_dir("hwprofiles") / f"{base_name}.yaml"
    if not path.is_file():
        raise ProfileError(f"{base_name}: not one of the profiles that come with iosim")
    tree = yaml.load(path.read_text(encoding="utf-8"))
    tree["name"] = f"{base_name}-measured"
    tree["aliases"] = []
    tree.setdefault("sources", CommentedMap())[SOURCE] = (
        f"iosim hw measure on {measured.facts.name}, {day.isoformat()}"
    )
    section = tree.setdefault("measured", CommentedMap())
    for figure in measured.figures:
        if not figure.flag:
            section[figure.key.removeprefix("measured.")] = _entry(figure)
    out = StringIO()
    yaml.dump(tree, out)
    return out.getvalue()


def write_profile(path: Path, text: str) -> None:
    """Write it whole or not at all, and read it back as a profile. Errors: `RunError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from error
    with written_whole(path, ".yaml") as part:
        part.write_text(text, encoding="utf-8")
        if faults := check_file(str(part)):
            raise RunError(f"{path}: the measured profile does not pass its own check: {faults[0]}")


def _entry(figure: Figure) -> object:
    from ruamel.yaml.comments import CommentedMap

    entry = CommentedMap(value=quantity_text(figure.measured, figure.unit), source=SOURCE)
    if figure.note:
        entry["note"] = figure.note
    entry.fa.set_flow_style()
    return entry
