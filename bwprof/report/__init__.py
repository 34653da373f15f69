"""Reports: runs as one HTML page, or as Markdown. ``python -m bwprof.report`` is the command."""
