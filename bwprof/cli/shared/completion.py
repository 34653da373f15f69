"""The command ``bwprof completion``: what a shell needs to complete words of the command `bwprof`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import OK
from bwprof.text import unknown

_SHELLS = ("bash", "zsh")
_EPILOG = """\
for each new shell, in ~/.bashrc or ~/.zshrc:
  eval "$(bwprof completion bash)"
"""
# Options, kinds and verbs are asked for when they are wanted: this text is printed at once, and does not grow old.
_SCRIPT = """\
_bwprof() {
  local word="${COMP_WORDS[COMP_CWORD]}" command=sweep verb="" found=""
  if [ "$COMP_CWORD" -gt 1 ] && [[ "${COMP_WORDS[1]}" != -* ]]; then command="${COMP_WORDS[1]}"; fi
  if [ "$command" = baseline ] && [ "$COMP_CWORD" -gt 2 ]; then verb="${COMP_WORDS[2]}"; fi
  if [[ "$word" == -* ]]; then
    found="$("$1" "$command" $verb --help 2>/dev/null | grep -oE '(^|[^a-z0-9-])--?[a-z][a-z0-9-]*')"
    found="$(grep -oE -- '-.*' <<<"$found" | sort -u)"
  elif [ "$COMP_CWORD" -eq 1 ]; then
    found="@COMMANDS@ @OPERATIONS@"
  else
    case "$command:$COMP_CWORD" in
      plot:2) found="$("$1" plot --help 2>/dev/null | sed -nE '/^kinds/,/^$/s/^  ([a-z]+) .*/\\1/p')" ;;
      baseline:2)
        found="$("$1" baseline --help 2>/dev/null | sed -nE 's/.*bwprof baseline ([a-z]+) .*/\\1/p' | sort -u)" ;;
    esac
    case "$command" in @TAKING@) found="@OPERATIONS@" ;; esac
  fi
  COMPREPLY=($(compgen -W "$found" -- "$word"))
}
complete -o default -F _bwprof bwprof
"""
_TAKING = ("ablation", "operations", "predict", "sweep", "variants")  # commands whose words are names of operations


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the script; returns the exit code."""
    parser = Parser("bwprof completion", "Print what makes a shell complete commands, operations and options.", _EPILOG)
    parser.add_argument("shell", metavar="SHELL", help=" or ".join(_SHELLS))
    return run(parser, arguments, _run)


def _run(options: argparse.Namespace) -> int:
    from bwprof import registry
    from bwprof.cli import COMMANDS

    if options.shell not in _SHELLS:
        raise ValueError(unknown("shell", options.shell, _SHELLS))
    if options.shell == "zsh":
        sys.stdout.write("autoload -Uz +X compinit bashcompinit && compinit && bashcompinit\n")
    words = {
        "@COMMANDS@": " ".join(COMMANDS),
        "@OPERATIONS@": " ".join(operation["name"] for operation in registry.operations()),
        "@TAKING@": "|".join(_TAKING),
    }
    text = _SCRIPT
    for mark, said in words.items():
        text = text.replace(mark, said)
    sys.stdout.write(text)
    return OK
