"""``python -m bwprof.selftest``."""

import sys

from bwprof.cli.commands.describe import main_selftest

if __name__ == "__main__":
    sys.exit(main_selftest())
