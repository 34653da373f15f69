"""Measuring one thing on one device: an operation's case, or a function of the caller's; and the row it becomes."""
