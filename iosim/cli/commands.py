"""The commands by name. A command's module is imported when that command runs; the help needs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from iosim.errors import UsageError


class Entry(NamedTuple):
    """Where a command lives (`iosim.cli.MODULE`, ATTRIBUTE: a function or a typer app) and what it answers."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "simulate": Entry(
        "simulate", "simulate", "Bytes, work and bounds of one attention by one or more algorithms."
    ),
    "show": Entry("show", "show", "An algorithm as a listing, with bytes and flops on every line."),
    "sweep": Entry("sweep", "sweep", "A grid of problems, algorithms and hardware, to CSV or Parquet."),
    "bound": Entry("bound", "bound", "Check the N²d²/M bound: exponents, constants, crossovers, gaps."),
    "plot": Entry("plot", "plot", "Figures from a saved sweep."),
    "report": Entry("report", "report", "The whole study as one folder: HTML, Markdown, tables, figures."),
    "curve": Entry("curve", "curve", "Traffic against every capacity of SRAM or L2, in one pass."),
    "trace": Entry("trace", "trace", "The tile accesses of a run as Parquet or CSV."),
    "on-chip": Entry(
        "on_chip", "on_chip", "Shared memory and barriers of a thread block, by how warps divide."
    ),
    "memory": Entry("memory", "memory", "What a layer holds in GPU memory; the longest sequence that fits."),
    "kv-cache": Entry(
        "kv_cache", "kv_cache", "Bytes of a cached token: MHA, GQA, MQA, MLA; what a step reads."
    ),
    "splits": Entry("splits", "splits", "How many thread blocks should share the keys of a decode step."),
    "audit": Entry("audit", "audit", "Measured kernels against the model, row by row, worst first."),
    "validate": Entry(
        "validate", "validate", "Check and time our kernels on this GPU, beside torch's; needs a GPU."
    ),
    "explain": Entry(
        "explain", "explain", "Where a kernel's time goes, term by term; its lower bound apart."
    ),
    "roofline": Entry("roofline", "roofline", "The hierarchical roofline of a GPU, predicted and measured."),
    "tune": Entry(
        "tune", "tune", "The best tile of a fused kernel, by predicted time or by bytes; all of them."
    ),
    "require": Entry(
        "require", "require", "The least SRAM, L2 or HBM bandwidth that reaches a share of the compute bound."
    ),
    "what-if": Entry("what_if", "what_if", "Time on a map of SRAM by HBM bandwidth, real GPUs as dots."),
    "gap": Entry("gap", "gap", "The IO waterfall: a name for every byte, from the least possible to HBM."),
    "reproduce": Entry("reproduce", "reproduce", "Published numbers against the model, figure by figure."),
    "claims": Entry("claims", "claims", "What people say about FlashAttention, with verdicts and numbers."),
    "hw": Entry("hw", "hw_app", "Hardware profiles: list, show, check, diff, measure."),
    "kernels": Entry("kernels", "kernels_app", "Kernel cards: tiles, warps, order; list, show, check."),
    "models": Entry("models", "models_app", "Attention shapes of published models, for --model."),
    "algorithms": Entry("algorithms", "algorithms_app", "The algorithms, their sources and options."),
}


class GroupedCommand(TyperCommand):
    """A command whose help lists its options under their headings, as plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section a heading, in the order in which the headings first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                default = "Arguments" if param.param_type_name == "argument" else "Options"
                panel = getattr(param, "rich_help_panel", None) or default
                sections.setdefault(panel, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class LazyGroup(TyperGroup):
    """The top of the command line: knows the names, imports on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands whose module exists, in the order of the table."""
        return [name for name, entry in COMMANDS.items() if _exists(entry)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the module of one command and wrap it for the parser; `UsageError` lists the known names."""
        known = self.list_commands(ctx)
        if cmd_name not in known:
            raise UsageError(f"unknown command {cmd_name!r}; known: {', '.join(known)}")
        return load_command(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List names and summaries from the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_summaries()))


def _exists(entry: Entry) -> bool:
    return find_spec(f"iosim.cli.{entry.module}") is not None


def _summaries() -> Iterator[tuple[str, str]]:
    for name, entry in COMMANDS.items():
        if _exists(entry):
            yield name, entry.summary


@cache
def load_command(name: str) -> Any:
    """The parser's command for one name of the table."""
    entry = COMMANDS[name]
    target = getattr(import_module(f"iosim.cli.{entry.module}"), entry.attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(name, cls=GroupedCommand)(target)
        target = single
    target.rich_markup_mode = None  # plain help: it reads the same in a pipe, and costs no import
    return typer.main.get_command(target)
