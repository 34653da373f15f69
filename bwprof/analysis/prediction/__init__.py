"""Predict times on devices that are not at hand."""

DEFAULT_EFFICIENCY = 0.9  # of the nearer roof, where no measured rows say more
