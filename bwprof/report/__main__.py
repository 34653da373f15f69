"""``python -m bwprof.report``."""

import sys

from bwprof.cli.commands.show import main_report

if __name__ == "__main__":
    sys.exit(main_report())
