"""What measurements mean: pure functions over frames and numbers; no device is opened.

Each name of `__init__.pyi` imports its module at first use.
"""

from bwprof import LazyNames

_NAMES = LazyNames(__name__, __path__[0])
__all__ = list(_NAMES.homes)
__getattr__ = _NAMES.get
__dir__ = __all__.copy
