"""`iosim algorithms`: what can be simulated, from which paper, with which options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from iosim.cli.commands import GroupedCommand
from iosim.cli.options import AsJson
from iosim.cli.output import print_json, print_table

if TYPE_CHECKING:
    from iosim.algorithms.registry import Algorithm

algorithms_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The algorithms, their sources and options."
)


@algorithms_app.callback()
def _group() -> None:
    """The algorithms, their sources and options."""


@algorithms_app.command("list", cls=GroupedCommand)
def list_algorithms(as_json: AsJson = False) -> None:
    """List every algorithm with its source and options.

    The first value of an option is its default.
    """
    from iosim.algorithms.registry import ALGORITHMS
    from iosim.cli.variants import option_flag

    known = list(ALGORITHMS.values())
    if as_json:
        print_json([_to_dict(item) for item in known])
        return
    print_table(["name", "what it is", "source"], [[a.name, a.summary, a.source] for a in known], wrap=True)
    print()
    rows = [
        [
            a.name,
            option_flag(name),
            ", ".join(option.values) + (f", {option.takes}" if option.takes else ""),
            option.help,
        ]
        for a in known
        for name, option in a.options.items()
    ]
    print_table(["algorithm", "option", "values", "what it does"], rows, wrap=True)


def _to_dict(algorithm: Algorithm) -> dict[str, Any]:
    from iosim.cli.variants import option_flag

    return {
        "name": algorithm.name,
        "summary": algorithm.summary,
        "source": algorithm.source,
        "tiled": algorithm.tiled,
        "options": [
            {
                "name": name,
                "flag": option_flag(name),
                "values": list(option.values),
                "default": option.values[0],
                "takes_tile": option.takes_tile,
                "takes": option.takes,
                "help": option.help,
            }
            for name, option in algorithm.options.items()
        ],
    }
