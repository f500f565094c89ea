"""Finds a model's shape: by its name in the packaged table, or in a local Hugging Face config.json."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from iosim.errors import UsageError
from iosim.hardware.load import read_tree
from iosim.models.config_json import read_config
from iosim.models.shape import ModelShape

TABLE = Path(__file__).parent / "shapes.yaml"
_NUMBERS = ("heads", "kv_heads", "head_dim", "value_dim", "layers", "window", "latent", "rope_dim")
_WORDS = ("dtype", "mask", "window_layers", "source")
_NEEDED = ("heads", "kv_heads", "head_dim", "layers", "dtype", "mask", "source")


def model_names() -> list[str]:
    """The models of the packaged table, in its order."""
    return list(_table())


def find_model(name_or_path: str) -> ModelShape:
    """A model by name, or from a local config.json (the file, or the folder that holds it). Nothing is downloaded.

    Errors: `UsageError` listing the names, or saying what the file lacks.
    """
    text = name_or_path.strip()
    path = Path(text).expanduser()
    if text.lower().endswith(".json") or (text and path.is_dir()):
        return read_config(path / "config.json" if path.is_dir() else path)
    wanted = text.lower().replace("_", "-").replace(" ", "-")
    if wanted in _table():
        return _table()[wanted]
    near = difflib.get_close_matches(wanted, _table(), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"model: unknown model {text[:60]!r}; {hint}known: {', '.join(_table())}; or the path of a config.json"
    )


@lru_cache(maxsize=1)
def _table() -> Mapping[str, ModelShape]:
    return MappingProxyType(read_table(TABLE.read_text(encoding="utf-8"), TABLE.name))


def read_table(text: str, label: str) -> dict[str, ModelShape]:
    """Every model of a table in YAML; `UsageError` with file, line and key for the first fault."""
    tree, issues = read_tree(text, label)
    if tree is None:
        raise UsageError(issues[0].text(label))
    out = {}
    for name, node in tree.entries().items():
        given = {key: item.text() for key, item in node.entries().items()}
        if unknown := sorted(set(given) - {*_NUMBERS, *_WORDS}):
            raise UsageError(f"{label}:{node.line}: {name}.{unknown[0]}: unknown key")
        if missing := [key for key in _NEEDED if key not in given]:
            raise UsageError(f"{label}:{node.line}: {name}: missing: {', '.join(missing)}")
        for key in _NUMBERS:
            if key in given and not (given[key].isascii() and given[key].isdigit()):
                raise UsageError(f"{label}:{node.line}: {name}.{key}: must be a whole number")
        values: dict[str, Any] = {"value_dim": int(given["head_dim"])}
        values |= {key: int(text) if key in _NUMBERS else text for key, text in given.items()}
        out[name] = ModelShape(name=name, **values)
    return out
