"""The report of an optimisation: its steps, its goals, its document."""
