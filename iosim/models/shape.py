"""What a model's attention is: sizes of one layer, as they stand in its paper or configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from iosim.errors import ProblemError
from iosim.problem import AttentionProblem, DType, Mask

WINDOW_LAYERS = ("all", "alternate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """One layer of a model's attention; `ProblemError` where the sizes contradict each other.

    `window`: keys a query sees, itself among them, in `window_layers` (all, alternate). `latent` and `rope_dim`:
    elements of the one cached row of latent attention, and of it the rotary part; 0 without. `notes` say by option
    what was derived rather than read.
    """

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    layers: int | None
    dtype: str
    mask: str
    source: str
    window: int | None = None
    window_layers: str = "all"
    latent: int = 0
    rope_dim: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_dim", "value_dim"):
            if getattr(self, name) < 1:
                raise ProblemError(f"model {self.name}: {name} must be 1 or more, got {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ProblemError(
                f"model {self.name}: heads {self.heads} is not a multiple of kv_heads {self.kv_heads}"
            )
        if self.window_layers not in WINDOW_LAYERS:
            raise ProblemError(
                f"model {self.name}: window_layers {self.window_layers!r}; allowed: {', '.join(WINDOW_LAYERS)}"
            )
        DType.parse(self.dtype)
        Mask.parse(self.mask)
        if self.window is not None:
            Mask("window", self.window)

    def fills(self, given: Collection[str] = ()) -> dict[str, str]:
        """Options of the command line that the model fills in, by name; those in `given` stay the user's."""
        out = {
            "heads": str(self.heads),
            "kv_heads": str(self.kv_heads),
            "head_dim": str(self.head_dim),
            "dtype": self.dtype,
        }
        if self.value_dim != self.head_dim and "head_dim" not in given:
            out["value_dim"] = str(self.value_dim)
        if self.window is not None and self.window_layers == "all":
            out["mask"] = f"window:{self.window}"
        return {name: text for name, text in out.items() if name not in given}

    def remarks(self, given: Collection[str] = ()) -> list[str]:
        """What is left to the user, and what was derived, in view of the options already `given`."""
        said = [note for option, note in self.notes.items() if option not in given]
        if "mask" not in given:
            if self.window is not None and self.window_layers == "alternate":
                said.append(
                    f"every second layer has a window (--mask window:{self.window}), the others --mask causal; "
                    "no mask is filled in"
                )
            elif self.window is None and self.mask == "causal":
                said.append("attends causally, but no mask is filled in; --mask causal adds it")
        if self.latent and "head_dim" not in given:
            said.append(
                f"expanded heads, as in prefill; a decode step reads one cached row of {self.latent + self.rope_dim} "
                "elements a token for all heads (iosim kv-cache)"
            )
        return [f"model {self.name}: {line}" for line in said]

    def absorbed(self) -> dict[str, Any]:
        """Options of the absorbed form of latent attention: one cached row a token is key and value of all heads.

        The scores keep the scale of the expanded heads. Empty for a model without latent attention.
        """
        if not self.latent:
            return {}
        sizes = {"kv_heads": 1, "head_dim": self.latent + self.rope_dim, "value_dim": self.latent}
        return {name: str(size) for name, size in sizes.items()} | {"scale": self.head_dim**-0.5}

    def problem(self, **given: Any) -> AttentionProblem:
        """One layer of the model as a problem; `given` are the lengths, and whatever `AttentionProblem.of` takes.

        >>> find_model("llama-3-8b").problem(seq=8192, mask="causal")
        """
        filled: dict[str, Any] = {
            name: int(text) if text.isdigit() else text for name, text in self.fills(given).items()
        }
        return AttentionProblem.of(**filled | given)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"notes": dict(self.notes), "fills": self.fills()}
