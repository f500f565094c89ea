"""Which profile a person means: names, driver names, and the refusal of a bare "h100"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from iosim.errors import ProfileError


def canonical(text: str) -> str:
    """One spelling for all: lower case, words joined by a dash."""
    return re.sub(r"[\s_\-]+", "-", text.strip().lower()).strip("-")


def choose(request: str, aliases: Mapping[str, Sequence[str]]) -> tuple[str, str | None]:
    """The profile that `request` names, and a warning when it left something open.

    `aliases` maps each profile name to the names drivers report. Raises `ProfileError` listing the variants
    when several fit, or the nearest names when none does.
    """
    wanted = canonical(request)
    exact = [name for name, known in aliases.items() if wanted in (name, *map(canonical, known))]
    if len(exact) == 1:
        return exact[0], None
    if exact:
        raise ProfileError(f"{request}: say which: {', '.join(sorted(exact))}")
    words = wanted.removeprefix("nvidia-").split("-") if wanted else []
    fits = sorted(name for name in aliases if words and set(words) <= set(name.split("-")))
    if len(fits) == 1:
        return fits[0], f"{request}: taken as {fits[0]}, the only such profile here"
    if fits:
        raise ProfileError(f"{request}: say which: {', '.join(fits)}")
    near = difflib.get_close_matches(wanted, list(aliases), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ProfileError(
        f"{request[:60]!r}: no such hardware profile; {hint}known: {', '.join(sorted(aliases))}; "
        "or give the path of a .yaml file"
    )
