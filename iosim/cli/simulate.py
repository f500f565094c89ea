"""`iosim simulate`: one attention by one or more algorithms, side by side."""

from __future__ import annotations

from iosim.cli.options import (
    AlgorithmText,
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    VariantOptions,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json


@with_options
def simulate(
    *,
    problem: ProblemOptions,
    algorithm: AlgorithmText = "flash2",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    as_json: AsJson = False,
) -> None:
    """Count the bytes of one attention between slow memory and the SMs, beside theory."""
    from iosim.analysis import analyze

    asked = problem.problem()
    chosen = split_algorithms(algorithm)
    options = variants.options_for(chosen)
    records = [
        analyze(
            asked,
            item,
            tiles=tiling.tiles,
            profile=hardware.hw,
            options=own,
            footprint_model=tiling.footprint,
            granularity=tiling.step(),
            sram_bytes=hardware.sram_bytes(asked),
            overrides=hardware.overrides or (),
        )
        for item, own in zip(chosen, options, strict=True)
    ]
    print_json([r.to_dict() for r in records])
