"""The best tile of a fused kernel: every design of a class that fits an SM, by bytes or by time."""

from iosim.tune.design import Choices, Design, Fit
from iosim.tune.search import default_class, tune
from iosim.tune.table import TuneRow, TuneTable

__all__ = ["Choices", "Design", "Fit", "TuneRow", "TuneTable", "default_class", "tune"]
