"""Runs: plans, the loop over their cases, and the processes that execute them."""


class StoppedError(Exception):
    """The user wants to stop."""
