"""``python -m bwprof.importers ncu FILE``: the same as ``bwprof import ncu FILE``."""

import sys

from bwprof.cli.commands.importers import main_import as main

if __name__ == "__main__":
    sys.exit(main())
