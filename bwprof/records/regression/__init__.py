"""Regressions: which cases became slower from one run to another, and by more than chance."""
