"""The sections of a report of runs."""
