"""Run ``python -m bwprof.importers``."""

import sys

from bwprof.cli.commands.importers import main_import

if __name__ == "__main__":
    sys.exit(main_import())
