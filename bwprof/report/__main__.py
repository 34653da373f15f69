"""``python -m bwprof.report``."""

import sys

from bwprof.cli.commands.results import main_report

if __name__ == "__main__":
    sys.exit(main_report())
