"""The pytest plugin; pytest loads `entry` and `plugin`, which import pytest alone until a test needs more."""
