"""``python -m bwprof.report`` prints the summary of results."""
