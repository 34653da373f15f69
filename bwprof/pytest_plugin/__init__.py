"""The pytest plugin: the fixture `bandwidth`, its thresholds, the session's baseline and summary.

pytest loads `entry` and `plugin` at each start; both import pytest alone until a test needs more.
"""
