"""Two sides measured turn by turn on one device: `bwprof.ab`, and ``bwprof ab``."""
