"""``python -m bwprof.plot``."""

import sys

from bwprof.cli.plot import main

if __name__ == "__main__":
    sys.exit(main())
