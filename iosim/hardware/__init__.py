"""Hardware profiles: one GPU's numbers with unit, source and kind."""

from iosim.hardware.diff import Difference, diff_profiles
from iosim.hardware.load import check_file, load_profile, profile_names
from iosim.hardware.profile import ComputeUnit, HardwareProfile, MemoryLevel, Quantity

__all__ = [
    "ComputeUnit",
    "Difference",
    "HardwareProfile",
    "MemoryLevel",
    "Quantity",
    "check_file",
    "diff_profiles",
    "load_profile",
    "profile_names",
]
