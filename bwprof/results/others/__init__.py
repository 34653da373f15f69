"""Rows and times in formats of other programs."""
