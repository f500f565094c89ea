"""How long a production kernel takes on a GPU, and where it stands under the roofs."""

from iosim.timing.kernel import LaunchTime, Timing, default_kernel, simulate_kernel, time_kernel
from iosim.timing.points import measured_points, timing_points

__all__ = [
    "LaunchTime",
    "Timing",
    "default_kernel",
    "measured_points",
    "simulate_kernel",
    "time_kernel",
    "timing_points",
]
