"""Measures on a GPU what iosim predicts."""
