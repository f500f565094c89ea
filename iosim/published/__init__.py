"""Numbers printed in papers, as data with sources, and the model beside each that it can compute."""

from iosim.published.check import Check, Group, past_limit
from iosim.published.numbers import Number, published_numbers, select
from iosim.published.reproduce import GROUPS, reproduce

__all__ = ["GROUPS", "Check", "Group", "Number", "past_limit", "published_numbers", "reproduce", "select"]
