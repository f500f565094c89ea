"""`iosim models`: the attention shapes that `--model` fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.commands import GroupedCommand
from iosim.cli.options import AsJson
from iosim.cli.output import print_json, print_table, warn

if TYPE_CHECKING:
    from iosim.models import ModelShape

models_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Attention shapes of published models."
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A model of the list, or the path of a config.json.")
]


@models_app.callback()
def _group() -> None:
    """Attention shapes of published models: what `--model` fills in."""


@models_app.command("list", cls=GroupedCommand)
def list_models(as_json: AsJson = False) -> None:
    """List every model with the sizes of one layer."""
    from iosim.models import find_model, model_names

    shapes = [find_model(name) for name in model_names()]
    if as_json:
        print_json([shape.to_dict() for shape in shapes])
        return
    heads = ["name", "heads", "kv-heads", "head-dim", "value-dim", "layers", "dtype", "mask", "cached row"]
    print_table(heads, [_row(shape) for shape in shapes], right=range(1, 6))


@models_app.command("show", cls=GroupedCommand)
def show_model(name: Name, as_json: AsJson = False) -> None:
    """Show one model: shape, source, what --model fills in."""
    from iosim.models import find_model

    shape = find_model(name)
    if as_json:
        print_json(shape.to_dict() | {"warnings": shape.remarks()})
        return
    warn(shape.remarks())
    print(f"{shape.name}: {shape.source}")
    options = " ".join(f"--{key.replace('_', '-')} {text}" for key, text in shape.fills().items())
    print(f"--model {name} stands for {options}\n")
    titles = ["heads", "kv-heads", "head-dim", "value-dim", "layers", "dtype", "mask", "cached row"]
    print_table(["", ""], list(zip(titles, _row(shape)[1:], strict=True)))


def _row(shape: ModelShape) -> list[str]:
    mask = shape.mask
    if shape.window is not None:
        mask = f"window:{shape.window}" + (
            "" if shape.window_layers == "all" else " in every second layer, else causal"
        )
    cached = f"{shape.latent} + {shape.rope_dim} for all heads" if shape.latent else ""
    sizes = (shape.heads, shape.kv_heads, shape.head_dim, shape.value_dim)
    return [shape.name, *map(str, sizes), str(shape.layers or "?"), shape.dtype, mask, cached]
