"""What a report says: the facts of one problem on several GPUs, answers in words, and the sections that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iosim import __version__
from iosim.claims import Evidence, check_claims
from iosim.hardware import load_profile
from iosim.plots.style import Style
from iosim.problem import AttentionProblem
from iosim.report.answers import bytes_answers, time_answers
from iosim.report.blocks import Section
from iosim.report.gpu import GpuPart, Progress, gpu_part
from iosim.report.measured import measured_on, read_for
from iosim.report.sections import Facts, all_sections
from iosim.report.sections.limits import NOT_MODELLED
from iosim.scaling import Laws, Lengths, find_laws
from iosim.scaling.elements import NO_OPTIONS, Options
from iosim.scaling.sentences import on_options, options_text
from iosim.scaling.studied_options import checked_options, with_settled_splits
from iosim.scaling.study import FITTED
from iosim.scaling.traffic import ALIKE
from iosim.units import counted

DEFAULT_PROBLEM = AttentionProblem.of(batch=1, heads=32, seq=8192, head_dim=128, dtype="fp16")
DEFAULT_PROFILES = ("a100-sxm-80gb", "h100-sxm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One problem on several GPUs. `sections`: what the pages show, in order; all else is for programs."""

    problem: AttentionProblem
    laws: Laws
    parts: tuple[GpuPart, ...]
    answers: tuple[str, ...]
    sections: tuple[Section, ...]
    claims: tuple[Evidence, ...] = ()
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    batch: Lengths = ALIKE

    @property
    def workload(self) -> str:
        """The problem in one line, and the algorithms' options where they are not the defaults."""
        return workload_text(self.problem, self.options, self.batch)

    @property
    def made_by(self) -> str:
        """The version and the profiles that these numbers are of."""
        names = ", ".join(f"{part.profile.name} {part.profile.sha256}" for part in self.parts)
        return f"iosim {__version__}; profiles by SHA-256: {names}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "schema_version": 1,
            "iosim_version": __version__,
            "workload": self.workload,
            "problem": self.problem.to_dict(),
            "options": {name: dict(own) for name, own in self.options.items()},
            **({"seq_lens": list(self.batch.seq_lens)} if self.batch.seq_lens else {}),
            "answers": list(self.answers),
            "not_modelled": list(NOT_MODELLED),
            "gpus": [part.to_dict() for part in self.parts],
            "claims": [item.to_dict() for item in self.claims],
        }


def workload_text(p: AttentionProblem, options: Options = NO_OPTIONS, batch: Lengths = ALIKE) -> str:
    """A problem in one line, with nothing left out, and options where there are any."""
    heads = counted(p.heads, "head") + (
        f" on {counted(p.kv_heads, 'kv head')}" if p.kv_heads != p.heads else ""
    )
    queries = f"{p.seq_q:,} quer{'y' if p.seq_q == 1 else 'ies'}"
    length = f"N = {p.seq_q:,}" if p.seq_q == p.seq_k else f"N = {queries}, {counted(p.seq_k, 'key')}"
    many = f"batch {p.batch}"
    if batch.seq_lens:
        n = batch.seq_lens
        many = f"{counted(len(n), 'sequence')} of {min(n):,} to {max(n):,} keys"
        length = (f"{queries} each, " if batch.fixed_queries else "") + f"{sum(n):,} tokens"
    width = f"d = {p.head_dim}" + (f", dv = {p.value_dim}" if p.value_dim != p.head_dim else "")
    types = {p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o}
    named = (
        f"Q {p.dtype_q}, K {p.dtype_k}, V {p.dtype_v}, O {p.dtype_o}" if len(types) > 1 else str(p.dtype_q)
    )
    more = options_text(options)
    return f"{many}, {heads}, {length}, {width}, {named}, mask {p.mask}" + (f"; {more}" if more else "")


def build_report(
    problem: AttentionProblem,
    profiles: Sequence[str],
    style: Style,
    *,
    sram_bytes: int | None = None,
    overrides: Sequence[str] = (),
    options: Options = NO_OPTIONS,
    measurements: Path | None = None,
    batch: Lengths = ALIKE,
    also: Sequence[str] = (),
    processes: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Count, study and draw; nothing is written. `options`: by algorithm, as for `study_bound`.

    `batch`: a ragged batch, of which `problem` is the padded alternative: bytes, levels, bounds and the least
    time, no predicted ones.
    `measurements`: a file as `iosim audit` reads it, set beside the predictions on the GPUs that it has rows of, by so
    many `processes` (`iosim.workers`).
    `also`: further algorithms, as in `study_bound`.
    With another pass than fwd only the algorithms that have it are there. Errors: `UsageError` and its kinds.
    """
    tell = progress or (lambda _: None)
    gpus = [load_profile(name, overrides) for name in profiles]
    if len(gpus) == 1:
        M = gpus[0].sram_per_block_bytes if sram_bytes is None else sram_bytes
        options = with_settled_splits(problem, gpus[0], M, options, batch)  # the laws are of one program
    options = checked_options(options, also)
    file = None if measurements is None else read_for(measurements, gpus)
    tell("exponents, constants and crossings")
    laws = find_laws((*FITTED, *(name for name in also if name not in FITTED)), options)
    parts = tuple(
        gpu_part(problem, gpu, laws, options, sram_bytes=sram_bytes, tell=tell, batch=batch, also=also)
        for gpu in gpus
    )
    if file is not None and measurements is not None:
        tell(f"predicting {counted(len(file.rows), 'measured row')}")
        parts = tuple(
            replace(part, measured=measured_on(file, measurements.name, part.profile, processes=processes))
            for part in parts
        )
    tell("claims")
    claims = check_claims()
    answers = (
        *on_options(options),
        *(line for part in parts for line in time_answers(part)),
        *bytes_answers(laws, parts),
    )
    tell("figures")
    facts = Facts(
        problem=problem, laws=laws, parts=parts, claims=claims, options=options, style=style, batch=batch
    )
    return Report(
        problem=problem,
        laws=laws,
        parts=parts,
        answers=answers,
        sections=all_sections(facts),
        claims=claims,
        options=options,
        batch=batch,
    )
