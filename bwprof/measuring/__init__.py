"""Measure one case of an operation, or one function of the caller, on one device, and make its row."""
