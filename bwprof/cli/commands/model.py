"""The command ``bwprof model``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import hardware
from bwprof.cli import options, runner
from bwprof.cli.commands.sweep import print_plan
from bwprof.cli.guard import OK
from bwprof.cli.options import BACKEND_HELP, Parser, read_efficiency, refuse_others, run_measuring, typed
from bwprof.cli.output import choose_targets
from bwprof.cli.render import print_step
from bwprof.llm import architecture, model_step
from bwprof.llm import executor as llm_executor
from bwprof.llm.workload import LAYER, ModelRequest
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs
from bwprof.runs.child import ChildExecutor
from bwprof.runs.interrupts import Interrupts
from bwprof.runs.metadata import find_remaining
from bwprof.runs.plan import Plan
from bwprof.text.formatting import format_path
from bwprof.text.parsing import parse_count, parse_names, quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger("bwprof.sweep")

_DESCRIPTION = """\
One decode step of a language model, and its prefill: tokens per second, what limits them, what other formats would
bring, and which batch and context fit. Every operation of the step is measured, each shape once; on a device that is
not at hand it is predicted. MODEL is a name (see --list), a Hugging Face config.json or its folder, or a .gguf file.
"""

_EPILOG = """\
examples:
  %(prog)s llama-3.1-8b --batch 1,16 --context 4Ki,8Ki
  %(prog)s llama-3.1-8b --prefill --weights fp16,fp8,q4_0 --kv fp16,int8
  %(prog)s path/to/config.json --device A100-80GB --csv - | column -s, -t
  %(prog)s mixtral-8x7b --device bandwidth=3200,fp16=400,memory=96

exit codes: as bwprof sweep has them; a model that does not fit is an answer, 0.
"""


def main_model(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    started = time.monotonic()
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_measuring(_parser(), given, lambda parsed, interrupts: _command(parsed, given, interrupts, started))


def _parser() -> Parser:
    result = Parser("bwprof model", _DESCRIPTION, _EPILOG)
    result.add_argument("model", nargs="?", metavar="MODEL", help="a name, a config.json, its folder, or a .gguf file")
    what = result.add_argument_group("what to measure")
    what.add_argument("--batch", metavar="N,…", help="sequences (default: 1)")
    what.add_argument(
        "--context", metavar="N,…", help="tokens in each one's cache, the new one included (default: 4Ki)"
    )
    what.add_argument("--prefill", action="store_true", help="prompts of so many tokens as well")
    what.add_argument(
        "--weights",
        metavar="P,…",
        help="fp32, tf32, fp16 (default), bf16, fp8, int8, q4_0; of a .gguf file or a quantization_config stored "
        "(default): each tensor as it is",
    )
    what.add_argument("--kv", metavar="P,…", help="of the KV cache (default: the weights', but no fewer than 16 bits)")
    what.add_argument(
        "--layout",
        metavar="fused|separate",
        help="q, k and v in one product, gate and up in one, as vLLM and TensorRT-LLM run them, or each by itself, as "
        "transformers and llama.cpp do (default: fused; of a .gguf file separate)",
    )
    what.add_argument(
        "--chain",
        action="store_true",
        help="a layer's operations back to back as well, on a GPU in one CUDA graph, beside the sum of their times",
    )
    what.add_argument("--memory", metavar="BYTES", help="to fit into, 24G or 24Gi (default: the device's)")
    what.add_argument(
        "--reserve", metavar="SHARE", help="of the memory for activations and scratch (default: 10%%, or 0.1)"
    )
    where = result.add_argument_group("where")
    where.add_argument(
        "--device",
        metavar="D,…",
        help="cpu, cuda, cuda:1, a number; or devices to predict for, side by side: A100-80GB, H100-SXM, …, or "
        "bandwidth=3200,fp16=400,memory=80 (GB/s, TFLOP/s, GB)",
    )
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    where.add_argument("--predict", action="store_true", help="measure nothing: for --device, or what --roofs is of")
    options.EFFICIENCY(where)
    options.add_output(result)
    how = result.add_argument_group("how")
    options.add_limits(how)
    options.add_roofs(how)
    options.add_dry_run(how)
    how.add_argument("--list", action="store_true", help="print the models that are known by name")
    result.add_argument("--verbose", action="store_true", help="log what is going on")
    result.set_defaults(suite=None)
    return result


def _command(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, started: float) -> int:
    options.read_seconds(parsed)
    most = options.read_seconds(parsed.max_seconds, "--max-seconds", from_zero=True)
    total = options.read_seconds(parsed.max_total_seconds, "--max-total-seconds")
    wanted = runner.RunInputs(
        started, total, options.read_seconds(parsed.max_case_seconds, "--max-case-seconds"), options.read_roofs(parsed)
    )
    if parsed.list:
        refuse_others(_parser(), parsed, "--list prints the models that are known by name", "list", "verbose")
        _print_models()
        return OK
    if parsed.resume is not None:
        return runner.resume(parsed, given, interrupts, wanted, _asks(parsed), _go_on)
    if parsed.model is None:
        raise ValueError(
            f"MODEL is missing: a config.json, a .gguf file, or one of {', '.join(architecture.list_models())}"
        )
    with interrupts.at_once():  # a file may be a pipe
        asked = _read_question(parsed)
        read = Path(parsed.model) / "config.json" if Path(parsed.model).is_dir() else Path(parsed.model)
        if read.is_file():
            parsed.suite = str(read)  # which no output may replace
        elsewhere = model_step.choose_targets(
            parsed.device, "auto" if wanted.roofs is None else wanted.roofs, predict=parsed.predict
        )
        if elsewhere is not None:
            model_step.refuse_measuring(_measuring(parsed, roofs_are_used=wanted.roofs is elsewhere[0]))
            return _predict(parsed, asked, elsewhere)
        if parsed.efficiency is not None:
            raise ValueError("--efficiency goes with predictions: --predict, or a --device that is not at hand")
        choice = hardware.choose_device(parsed.backend, parsed.device)
    if choice.warning:
        _log.warning("%s", choice.warning)
    plan = llm_executor.make_plan(llm_executor.list_pieces(asked), max_seconds=most)
    if parsed.dry_run:
        shapes = {(spec.operation, spec.precision, *spec.params.values()): spec for spec in reversed(plan.specs)}
        print_plan(sys.stdout, replace(plan, specs=tuple(reversed(shapes.values()))), choice)
        return OK
    job = _job(asked, plan, llm_executor.list_all_pieces(asked, choice.backend))
    return runner.run(parsed, given, interrupts, job, choice, wanted, {"model": asked.to_dict()})


def _read_question(parsed: argparse.Namespace) -> ModelRequest:
    return model_step.make_request(
        parsed.model,
        batches=options.read_numbers("1" if parsed.batch is None else parsed.batch, "--batch"),
        contexts=options.read_numbers("4Ki" if parsed.context is None else parsed.context, "--context"),
        weights=parse_names("--weights", parsed.weights),
        kvs=parse_names("--kv", parsed.kv),
        prefill=parsed.prefill,
        layout=parsed.layout,
        chain=parsed.chain,
        reserve=0.1 if parsed.reserve is None else options.read_share(parsed.reserve, "--reserve"),
        memory_bytes=None if parsed.memory is None else parse_count(parsed.memory, "--memory"),
    )


def _asks(parsed: argparse.Namespace) -> list[str]:
    """The options given that say what to measure."""
    names = ["batch", "context", "weights", "kv", "layout", "memory", "reserve"]
    names += ["device", "backend", "efficiency", "max_seconds"]
    found = ["MODEL"] if parsed.model is not None else []
    given = [name for name in names if getattr(parsed, name) is not None]
    given += [name for name in ("prefill", "chain", "predict", "dry_run") if getattr(parsed, name)]
    return found + [f"--{name.replace('_', '-')}" for name in given]


def _measuring(parsed: argparse.Namespace, *, roofs_are_used: bool) -> dict[str, bool]:
    """The options that say how to measure, and whether they were given."""
    return {
        "--chain": parsed.chain,
        "--backend": parsed.backend is not None,
        "--max-seconds": parsed.max_seconds is not None,
        "--max-case-seconds": parsed.max_case_seconds is not None,
        "--max-total-seconds": parsed.max_total_seconds is not None,
        "--roofs": parsed.roofs is not None and not roofs_are_used,
        "--no-roofs": parsed.no_roofs,
        "--recalibrate": parsed.recalibrate,
        "--dry-run": parsed.dry_run,
    }


def _go_on(folder: Path, data: dict[str, Any], rows: Sequence[RowDict]) -> tuple[Sequence[int], int, runner.Job]:
    """The rows of a model's run that stay, and what is left to do."""
    if data.get("model") is None:
        raise ValueError(f"{folder} is no model's run: go on with bwprof sweep --resume {format_path(folder)}")
    plan = runner.earlier_plan(folder, data)
    try:
        asked = ModelRequest.from_dict(data["model"])
    except ValueError as error:
        raise ValueError(f"{folder} cannot be resumed: {error}") from None
    if plan.specs != llm_executor.make_plan(llm_executor.list_pieces(asked)).specs:
        raise ValueError(f"{folder} cannot be resumed: a step of the model launches other operations in this bwprof")
    kept, _, strangers = find_remaining(plan.specs, rows)
    layers = [place for place in kept if rows[place]["role"] == LAYER]
    kept = [place for place in kept if place not in layers or rows[place]["status"] == "ok"]
    there = Counter(llm_executor.piece_key(rows[place]) for place in kept)
    missing: list[llm_executor.AnyPiece] = []
    for piece in llm_executor.list_all_pieces(asked, data["backend"]):
        key = llm_executor.piece_key(piece.labels)
        if there[key]:
            there[key] -= 1
        else:
            missing.append(piece)
    return kept, strangers - len(layers), _job(asked, plan, missing, [rows[place] for place in kept])


def _job(
    asked: ModelRequest, plan: Plan, items: Sequence[llm_executor.AnyPiece], earlier: Sequence[RowDict] = ()
) -> runner.Job:
    """What is left to do of a model's run that has the `earlier` rows."""
    from bwprof.llm import executor as llm_executor
    from bwprof.llm.executor import fill_predictions

    def executor(inner: ChildExecutor) -> llm_executor.PiecesExecutor:
        return llm_executor.PiecesExecutor(asked, inner, earlier)

    return runner.Job(plan, items, "model", executor, _show, fill_predictions)


def _show(store: Store, _folder: Path | None, screen: Console) -> None:
    """The result of a run's rows."""
    from bwprof.results import frame as results_frame

    print_step(results_frame.from_rows(store.rows, store.run), screen)


def _predict(parsed: argparse.Namespace, asked: ModelRequest, devices: Sequence[str | Roofs]) -> int:
    """A prediction: its tables, and its rows where they were asked for."""
    from bwprof.llm import executor as llm_executor

    if parsed.output is not None:
        kind = Path(parsed.output).suffix.lower().removeprefix(".")
        if kind not in ("csv", "json") or getattr(parsed, kind) is not None:
            said = "a prediction is kept in a file ending in .csv or .json, one of each"
            raise ValueError(f"--output {quote_text(parsed.output)}: {said}")
        setattr(parsed, kind, parsed.output)
    targets = choose_targets(parsed, parsed.suite, parsed.roofs, parsed.efficiency)
    frame = llm_executor.predict_steps(asked, devices, read_efficiency(parsed.efficiency))
    typed(frame, targets, quiet=True)
    to_stdout = "-" in targets.values()
    if not parsed.quiet:
        print_step(frame, make_console(sys.stderr if to_stdout else sys.stdout))
    return OK


def _print_models() -> None:
    from bwprof.llm import checkpoints

    numbers = ["billion weights", "layers", "hidden", "heads", "KV heads", "experts", "window"]
    rows = []
    for name in architecture.list_models():
        model = architecture.find_model(name)
        sizes = [model.layers, model.hidden, model.num_heads, model.num_kv_heads]
        rare = [f"{model.experts_per_token} of {model.experts}" if model.experts else "-", str(model.window or "-")]
        rows.append((name, f"{model.parameters / 1e9:.3g}", *map(str, sizes), *rare))
    print_table(make_console(sys.stdout), ["model", *numbers], rows, numbers=numbers)
    sys.stdout.write(f"config.json of: {', '.join(checkpoints.list_families())}\n")
