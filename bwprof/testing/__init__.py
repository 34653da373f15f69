"""What the pytest plugin does: the fixture `bandwidth`, its thresholds, the session's baseline and summary.

The plugin itself is the module `plugin`: ``pytest -p bwprof.testing.plugin``.
"""
