"""What a side runs, as plain types that another process, or another bwprof, can be told."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bwprof.callables import check_callable
from bwprof.measuring.spec import Spec
from bwprof.text import quoted

_NAME = re.compile(r"(?P<home>.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<path>[^\W\d]\w*(\.[^\W\d]\w*)*)")


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name, module:function or file.py:function, with its arguments.

    Where a call returns something callable, that is measured, and the call was its preparation.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    cache: str = "cold"
    timer: str | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"'{quoted(self.name)}' names no function: module:function or file.py:function is needed")

    @property
    def title(self) -> str:
        """The function with its arguments."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.params.items())])

    def function(self, folder: Path) -> Callable[..., object]:
        """The function itself; a file is looked for from `folder`.

        Raises
        ------
        ValueError
            Where there is none, in words.
        Exception
            Whatever its module raises.
        """
        match = _NAME.fullmatch(self.name)
        assert match is not None
        home, path = match["home"], match["path"]
        found: Any = _file(folder / home) if home.endswith(".py") else _module(home)
        for name in path.split("."):
            if not hasattr(found, name):
                raise ValueError(f"{home} has no '{path}'")
            found = getattr(found, name)
        try:
            check_callable(found, path)
        except TypeError as error:
            raise ValueError(f"{home}: {error}") from None
        if found is None:
            raise ValueError(f"{home}: {path} is None, a function is needed")
        return found  # type: ignore[no-any-return]


Work = Spec | Call


def to_dict(work: Work) -> dict[str, Any]:
    """Plain types for JSON."""
    return {"call": asdict(work)} if isinstance(work, Call) else {"case": work.to_dict()}


def from_dict(found: Mapping[str, Any]) -> Work:
    """The inverse of `to_dict`."""
    return Call(**found["call"]) if "call" in found else Spec.from_dict(found["case"])


def is_call(text: str) -> bool:
    """Whether a text names a function, as far as its letters tell.

    Examples
    --------
    >>> is_call("kernels.attention:decode"), is_call("bench/old.py:run"), is_call("copy")
    (True, True, False)
    """
    return _NAME.fullmatch(text) is not None


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f"there is no module {error.name} (looked for in {', '.join(sys.path[:3])}, ...)"
            ) from None
        raise


def _file(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
