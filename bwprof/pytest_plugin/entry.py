"""The module that pytest loads as `bwprof`: it registers the plugin once."""

from __future__ import annotations

import pytest

from bwprof.pytest_plugin import plugin


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin under the name that `-p` and `pytest_plugins` use."""
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, plugin.__name__)
