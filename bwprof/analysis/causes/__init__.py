"""Where time is lost and why: one table of rules, the losses it is asked about, their ranking, the checklist."""
