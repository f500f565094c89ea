"""The study as a folder that can be read, pasted and loaded: HTML, Markdown, JSON, tables, figures."""

from iosim.report.content import DEFAULT_PROBLEM, DEFAULT_PROFILES, Report, build_report, workload_text
from iosim.report.render import report_files
from iosim.report.write import write_folder

__all__ = [
    "DEFAULT_PROBLEM",
    "DEFAULT_PROFILES",
    "Report",
    "build_report",
    "report_files",
    "workload_text",
    "write_folder",
]
