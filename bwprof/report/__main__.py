"""``python -m bwprof.report``."""

import sys

from bwprof.cli.report import main

if __name__ == "__main__":
    sys.exit(main())
