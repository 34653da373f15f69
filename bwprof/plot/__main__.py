"""``python -m bwprof.plot``."""

import sys

from bwprof.plot.cli import main

if __name__ == "__main__":
    sys.exit(main())
