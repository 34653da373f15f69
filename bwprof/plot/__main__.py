"""``python -m bwprof.plot``."""

import sys

from bwprof.cli.commands.plot import main_plot

if __name__ == "__main__":
    sys.exit(main_plot())
