"""The command ``bwprof`` and its subcommands: `bwprof sweep ...`, `bwprof info ...`, ...

Without a subcommand it is `bwprof sweep`. Only ``__main__`` modules import this package.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
from collections.abc import Sequence

from bwprof.cli.guard import USAGE, guarded
from bwprof.text.parsing import describe_unknown, nearest_name

# Each command's module, arguments, and what it does.
_COMMANDS = {
    "sweep": ("sweep", "[options]", "measure operations; the default command"),
    "ab": ("experiments", "A B", "measure which of two is faster, in short turns"),
    "ablation": ("experiments", "OPERATION", "measure an operation's variants: what each changes and gains"),
    "model": ("model", "MODEL", "tokens per second of a language model, and what limits them"),
    "analyze": ("results", "RUN|FILE", "what limits a run, where its time is lost, what helps"),
    "diagnose": ("diagnose", "RUN|FILE", "why kernels are slow, with evidence; also reads files of profilers"),
    "report": ("results", "RUN... [-o FILE]", "the summary of results; with -o a report, .html or .md"),
    "show": ("results", "RUN|FILE", "the rows of results in few columns"),
    "outliers": ("history", "RUN...", "which of several devices is slow, by how much, in which operation"),
    "baseline": ("compare", "save|list|show|delete", "save the results that later runs are compared with"),
    "history": ("history", "[CASE]", "all runs over time, and what changed between them"),
    "compare": ("compare", "BASE NEW", "what became slower by more than chance; can fail a CI job"),
    "plot": ("plot", "[KIND] RUN|FILE...", "pictures: bandwidths, roofline, lines, speed-ups, ..."),
    "predict": ("predict", "OPERATION --device NAME", "how long operations take on a device that is not present"),
    "roofs": ("predict", "[list|export|import]", "the stored roofs (fastest measured rates) of this machine"),
    "ncu": ("importers", "show|capture|compare", "what Nsight Compute measured"),
    "import": ("importers", "KIND FILE", "the files of ncu, rocprof, torch.profiler and Nsight Systems, as rows"),
    "variants": ("describe", "[OPERATION]", "kernels, their registers, occupancy and names"),
    "operations": ("describe", "[NAME...]", "what can be measured: parameters, bytes and FLOPs, variants"),
    "columns": ("describe", "[NAME...]", "what the columns of results mean"),
    "selftest": ("describe", "[PART...]", "compare bwprof's figures with independent measurements"),
    "info": ("describe", "[--probe]", "devices, roofs, build and libraries of this machine"),
}

COMMANDS = tuple(_COMMANDS)

# Other words for commands.
_SYNONYMS = {
    **{kind: f"plot {kind}" for kind in ("comparison", "roofline", "lines", "heatmap", "speedup", "ridge", "trend")},
    **dict.fromkeys(("run", "bench", "benchmark", "measure"), "sweep"),
    **{"test": "selftest", "tests": "selftest", "hist": "history", "option": "operations", "options": "operations"},
    **{"devices": "info", "diff": "compare", "models": "model", "profile": "ncu", "kernels": "variants"},
    **{"demo": "show h200", "list": "sweep --list", "version": "--version", "rocprof": "diagnose", "nsys": "diagnose"},
}

_USAGE_END = """
bwprof COMMAND --help lists the options of a command. bwprof --version prints the version.

A RUN is the folder that bwprof sweep or bwprof model prints, or a recorded run: h100 or h200 (the default suite),
h100_llama or h200_llama (bwprof model).
Try without a GPU: bwprof analyze h200
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    atexit.register(gc.freeze)  # skips a last garbage collection, which takes 0.1 s
    return guarded(lambda: _main(words))


def _main(words: list[str]) -> int:
    if words in (["-h"], ["--help"], ["help"]):
        lines = [f"  {f'{name} {arguments}':<33}{text}\n" for name, (_, arguments, text) in _COMMANDS.items()]
        sys.stdout.write(f"usage: bwprof COMMAND ...\n\n{''.join(lines)}{_USAGE_END}")
        return 0
    if words == ["--version"]:
        from bwprof import _core

        sys.stdout.write(f"bwprof {_core.__version__}\n")
        return 0
    if words and words[0] in COMMANDS:
        command, *words = words
    elif words and (meant := _find_command(words[0].lower())):
        sys.stderr.write(f"bwprof: error: {describe_unknown('command', words[0], COMMANDS, meant=meant)}\n")
        return USAGE
    else:
        command = "sweep"
    module = importlib.import_module(f"bwprof.cli.commands.{_COMMANDS[command][0]}")
    return int(getattr(module, f"main_{command}")(words))


def _find_command(word: str) -> str | None:
    """Find the command that an unknown word means, by its synonyms or letters; None for an operation."""
    from bwprof import registry

    if word.startswith("-"):
        return None
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    operations = [operation["name"] for operation in registry.operations()]
    name = nearest_name(word, [*operations, *COMMANDS], likeness=0.72)
    return name if name in COMMANDS else None
