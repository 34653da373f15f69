"""``python -m bwprof.info``."""

import sys

from bwprof.cli.info import main

if __name__ == "__main__":
    sys.exit(main())
