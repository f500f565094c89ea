"""Time: a lower bound with no constants but the hardware's, and apart from it a prediction with every term named."""

from iosim.roofline.lower_bound import LowerBound, attention_bound, kernel_bound
from iosim.roofline.machine import Machine, Power
from iosim.roofline.prediction import TERMS, Prediction, predict, predict_both
from iosim.roofline.terms import Input, Term
from iosim.roofline.work import FusedWork

__all__ = [
    "TERMS",
    "FusedWork",
    "Input",
    "LowerBound",
    "Machine",
    "Power",
    "Prediction",
    "Term",
    "attention_bound",
    "kernel_bound",
    "predict",
    "predict_both",
]
