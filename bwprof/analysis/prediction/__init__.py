"""Predict times on devices that are not at hand."""
