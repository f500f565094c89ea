"""Figures from tables: pure functions, one style file, files that are never half written."""
