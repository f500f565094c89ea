"""What stays as it is while one memory changes, in words: shown with every answer."""

from __future__ import annotations

from iosim.hardware import HardwareProfile
from iosim.roofline import Machine
from iosim.units import format_bytes, format_rate

MEMORIES = ("sram", "l2", "hbm")


def fixed(gpu: HardwareProfile, machine: Machine, changed: str) -> list[str]:
    """The numbers of a GPU that a what-if keeps; `changed`: a name of MEMORIES, or several with commas."""
    tensor = format_rate(machine.tensor_flops_per_s, "FLOP/s")
    out = [
        f"{machine.sms} SMs at {machine.clock_hz / 1e9:g} GHz",
        f"{machine.unit} {tensor} ({machine.tensor_flops_per_clk_sm:g} a clock and SM)",
        f"exponentials {machine.special_ops_per_clk_sm:g} a clock and SM",
        f"registers {format_bytes(gpu.register_bytes_per_sm)} an SM",
    ]
    if "sram" not in changed:
        out.append(f"SRAM {format_bytes(gpu.sram_per_block_bytes)} a thread block")
    if "l2" not in changed and gpu.has("memory.l2.capacity"):
        out.append(f"L2 {format_bytes(gpu.l2_capacity_bytes)}")
    if "hbm" not in changed:
        out.append(f"HBM {format_rate(machine.hbm_peak_bytes_per_s)}")
    return out
