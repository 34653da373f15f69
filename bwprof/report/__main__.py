"""``python -m bwprof.report``."""

import sys

from bwprof.report.cli import main

if __name__ == "__main__":
    sys.exit(main())
