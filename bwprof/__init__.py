"""Measure the memory bandwidth of LLM-inference kernels on GPU and CPU.

Importing this package imports nothing else: each name of `__init__.pyi` imports its module at first use.
pytest must not rewrite the assertions of its plugin: PYTEST_DONT_REWRITE
"""

import sys


class LazyNames:
    """The public names of a package, whose stub imports them: from MODULE import NAME as NAME."""

    def __init__(self, package: str, folder: str) -> None:
        self.package = package
        with open(f"{folder}/__init__.pyi", encoding="utf-8") as stub:
            self.homes = {words[3]: words[1] for words in map(str.split, stub) if words[:1] == ["from"]}

    def get(self, name: str) -> object:
        """Import a name's module at its first use."""
        if name not in self.homes:
            from bwprof.text.parsing import quote_text

            raise AttributeError(f"module '{self.package}' has no attribute '{quote_text(name)}'")
        from importlib import import_module

        home = self.homes[name]
        value = import_module(f"{home}.{name}") if home == self.package else getattr(import_module(home), name)
        setattr(sys.modules[self.package], name, value)
        return value


_NAMES = LazyNames(__name__, __path__[0])
__all__ = list(_NAMES.homes)
__getattr__ = _NAMES.get
__dir__ = __all__.copy


class _Package(type(sys)):
    """A package whose functions, such as `sweep`, are not replaced by the modules of their names."""

    def __setattr__(self, name: str, value: object) -> None:
        if _NAMES.homes.get(name) == f"{__name__}.{name}" and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not any(finder.find_spec(f"{__name__}._core", __path__) for finder in sys.meta_path):
    raise ImportError(
        f"{__path__[0]} is not built: python3 setup.py build_ext --inplace in its checkout builds it, "
        "BWPROF_CUDA=0 before it for the CPU alone. It runs on Linux: elsewhere use a container, a virtual machine "
        "or WSL 2"
    )
