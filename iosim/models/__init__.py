"""Attention shapes of published models: a table that comes with the package, or a local config.json."""

from iosim.models.load import find_model, model_names
from iosim.models.shape import ModelShape

__all__ = ["ModelShape", "find_model", "model_names"]
