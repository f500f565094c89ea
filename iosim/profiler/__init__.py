"""A profiler's export of someone's own kernel: read, completed by a case or a card, and held against the model."""

from iosim.profiler.audit import COLUMNS, ExportAudit, OwnKernel, audit_export
from iosim.profiler.case import Case, parse_case
from iosim.profiler.export import Export, Launch, is_export, read_export
from iosim.profiler.metrics import ncu_command, ncu_metrics

__all__ = [
    "COLUMNS",
    "Case",
    "Export",
    "ExportAudit",
    "Launch",
    "OwnKernel",
    "audit_export",
    "is_export",
    "ncu_command",
    "ncu_metrics",
    "parse_case",
    "read_export",
]
