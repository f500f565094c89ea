"""The bound, checked: exponents, constants, crossings and gaps, all from counted bytes. Prints and plots nothing."""

from iosim.scaling.constants import Constant, Crossing, constants, crossings
from iosim.scaling.exponents import Fit, fit_exponents
from iosim.scaling.study import BoundStudy, Laws, find_laws, study_bound
from iosim.scaling.traffic import Lengths

__all__ = [
    "BoundStudy",
    "Constant",
    "Crossing",
    "Fit",
    "Laws",
    "Lengths",
    "constants",
    "crossings",
    "find_laws",
    "fit_exponents",
    "study_bound",
]
