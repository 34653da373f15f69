"""Measure the memory bandwidth of LLM-inference kernels on GPU and CPU.

Importing this package imports nothing else: each name of `__init__.pyi` imports its module at first use.
pytest must not rewrite the assertions of its plugin: PYTEST_DONT_REWRITE
"""

import sys


def _read_homes() -> dict[str, str]:
    """Return each public name's module, as the stub imports them: from MODULE import NAME as NAME."""
    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
        return {words[3]: words[1] for words in map(str.split, stub) if words[:1] == ["from"]}


_HOMES = _read_homes()
__all__ = list(_HOMES)


class _Package(type(sys)):
    """A package whose functions, such as `sweep`, are not replaced by the modules of their names."""

    def __setattr__(self, name: str, value: object) -> None:
        if _HOMES.get(name) == f"{__name__}.{name}" and isinstance(value, type(sys)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not any(finder.find_spec(f"{__name__}._core", __path__) for finder in sys.meta_path):
    raise ImportError(
        f"{__path__[0]} is not built: python3 setup.py build_ext --inplace in its checkout builds it, "
        "BWPROF_CUDA=0 before it for the CPU alone. It runs on Linux: elsewhere use a container, a virtual machine "
        "or WSL 2"
    )


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        home = _HOMES[name]
        value = import_module(f"bwprof.{name}") if home == "bwprof" else getattr(import_module(home), name)
        globals()[name] = value
        return value
    from bwprof.text.parsing import quote_text

    raise AttributeError(f"module 'bwprof' has no attribute '{quote_text(name)}'")


def __dir__() -> list[str]:
    return __all__
