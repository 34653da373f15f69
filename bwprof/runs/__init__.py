"""Runs: plans, the loop over their cases, and where these are executed."""
