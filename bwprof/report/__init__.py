"""Reports: runs as one page of HTML, or as Markdown. ``python -m bwprof.report`` is the command.

A report is a document of blocks (`blocks`), which `forms` write; `parts` make them of runs, `optimising` of the steps
from a first run to a last; `bwprof.write_report` puts it together.
"""
