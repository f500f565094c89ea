"""What-if numbers: "memory.l2.capacity=100MiB" on top of a loaded profile."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence

from iosim.errors import ProfileError, UsageError
from iosim.hardware.check import Node, contradictions, decimal_warning, read_quantity
from iosim.hardware.profile import OVERRIDE, HardwareProfile
from iosim.hardware.schema import FIELDS


def apply_overrides(profile: HardwareProfile, overrides: Sequence[str]) -> HardwareProfile:
    """Replace numbers by "key.path=value" texts. The what-if becomes the source; contradictions warn.

    Raises `ProfileError` for an unknown key (naming the nearest) or a value without a known unit.
    """
    quantities = dict(profile.quantities)
    warnings = list(profile.warnings)
    for text in overrides:
        key, value = _split(text)
        node = Node(line=0, value={"value": Node(line=0, value=value)})
        try:
            new = read_quantity(FIELDS[key], node, {}, f"{OVERRIDE} {key}={value}")
        except UsageError as error:
            raise ProfileError(f"--set {key}: {error}") from None
        old = quantities.get(key)
        if old is not None and old.value == new.value:
            warnings.append(f"--set {key}={value}: changes nothing, {profile.name} has {old} already")
            continue
        quantities[key] = dataclasses.replace(new, clock=old.clock if old else None)
        warnings += [f"--set {line}" for line in decimal_warning(new, value)]
    ordered = {key: quantities[key] for key in FIELDS if key in quantities}
    changed = dataclasses.replace(profile, quantities=ordered)
    before = set(contradictions(profile))
    warnings += [
        f"--set: {key}: {text}" for key, text in contradictions(changed) if (key, text) not in before
    ]
    return dataclasses.replace(changed, warnings=tuple(warnings))


def _split(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise ProfileError(f"--set {text!r}: write key=value, as in memory.l2.capacity=100MiB")
    key = key.lower()
    if key in FIELDS:
        return key, value
    near = _nearest_keys(key)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `iosim hw show NAME`"
    raise ProfileError(f"--set {key}: unknown key, {hint}")


def _nearest_keys(key: str) -> list[str]:
    """Keys that end like this one, else the one spelt most like it, else those whose last word is close."""
    ends = [known for known in FIELDS if known.endswith("." + key)]
    found = ends or difflib.get_close_matches(key, list(FIELDS), n=1, cutoff=0.6)
    if not found:
        last = {known: known.rsplit(".", 1)[1] for known in FIELDS}
        close = difflib.get_close_matches(key.rsplit(".", 1)[-1], last.values(), n=3, cutoff=0.8)
        found = [known for known in FIELDS if last[known] in close]
    return found[:3]
