"""Reports of runs as HTML or Markdown. ``python -m bwprof.report`` is the command."""
