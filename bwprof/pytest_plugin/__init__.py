"""The pytest plugin: the fixture `bandwidth`, its thresholds, the session's baseline and summary.

pytest loads `entry` at each start, and with it `plugin`; both import pytest alone before a test needs more.
"""
