"""`iosim kernels`: the cards that turn an algorithm into what a library, or you, ship."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.commands import GroupedCommand
from iosim.cli.options import AsJson
from iosim.cli.output import print_json, print_table

if TYPE_CHECKING:
    from iosim.kernels import KernelFacts

kernels_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Kernel cards: tiles, warps, order and other facts."
)

Card = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A card of the list, or your own .yaml file.")]


@kernels_app.callback()
def _group() -> None:
    """Kernel cards: what a kernel adds to its algorithm (tiles, warps, order, registers). See docs/kernels.md."""


@kernels_app.command("list", cls=GroupedCommand)
def list_kernels(as_json: AsJson = False) -> None:
    """List the cards that come with iosim."""
    from iosim.kernels import kernel_names, load_kernel

    cards = [load_kernel(name) for name in kernel_names()]
    if as_json:
        print_json([card.to_dict() for card in cards])
        return
    rows = [
        [c.name, c.algorithm, c.kernel_class, str(c.threads_per_block), _tiles(c), c.title] for c in cards
    ]
    print_table(["name", "algorithm", "class", "threads", "tiles", "what it is"], rows, right=(3,))


@kernels_app.command("show", cls=GroupedCommand)
def show_kernel(card: Card, as_json: AsJson = False) -> None:
    """Show every fact of one card, with its sources."""
    from iosim.kernels import load_kernel

    found = load_kernel(card)
    if as_json:
        print_json(found.to_dict())
        return
    print(f"{found.name}: {found.title}\n")
    known = found.to_dict()
    rows = [[key, _words(value)] for key, value in known.items() if key not in ("name", "title", "sources")]
    print_table(["fact", "value"], rows, wrap=True)
    if found.sources:
        print()
        print_table(["about", "source"], [[k, v] for k, v in found.sources.items()], wrap=True)


@kernels_app.command("check", cls=GroupedCommand)
def check_kernel(card: Card, as_json: AsJson = False) -> None:
    """Check a card; the first fault is told with its line. Exit code 2 when there is one."""
    from iosim.errors import UsageError
    from iosim.kernels import load_kernel

    try:
        found = load_kernel(card)
    except UsageError as error:
        if not as_json:
            raise
        print_json({"file": card, "ok": False, "errors": [str(error)]})
        raise typer.Exit(2) from None
    if as_json:
        print_json({"file": card, "ok": True, "errors": []})
    else:
        print(f"{card}: good, kernel {found.name}, tiles {_tiles(found)}")


def _tiles(card: KernelFacts) -> str:
    return ", ".join(f"{t.rows}x{t.cols} up to d {t.head_dim_max}" for t in card.tiles)


def _words(value: object) -> str:
    """A fact as text, lists and mappings without their brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        apart = "; " if any(isinstance(item, dict) for item in value) else ", "
        return apart.join(map(_words, value)) or "-"
    if value is None:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
