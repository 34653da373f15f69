"""``python -m bwprof`` is the command ``bwprof``."""

import sys

from bwprof.cli import main

if __name__ == "__main__":
    sys.exit(main())
