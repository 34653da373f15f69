"""What pytest loads, as `bwprof`, wherever bwprof is installed: it brings the plugin, once, whoever else names it."""

from __future__ import annotations

import pytest

from bwprof.pytest_plugin import plugin


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin under the name that `-p` and `pytest_plugins` give it."""
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, plugin.__name__)
