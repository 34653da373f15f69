"""The command ``bwprof model``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import hardware, registry
from bwprof.cli import options as shared
from bwprof.cli import runner
from bwprof.cli.commands.sweep import print_plan
from bwprof.cli.guard import OK
from bwprof.cli.options import command, refuse_others, typed
from bwprof.cli.output import choose_targets, emit, row_texts
from bwprof.cli.render import print_step
from bwprof.llm import architecture, model_step
from bwprof.llm import executor as llm_executor
from bwprof.llm.workload import LAYER, ModelRequest
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs, RoofsArgument
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.metadata import find_remaining
from bwprof.runs.plan import Plan
from bwprof.text.formatting import format_path
from bwprof.text.parsing import quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger("bwprof.sweep")

_TABLE = f"""\
model=MODEL?  a name, a config.json, its folder, or a .gguf file
{shared.VERBOSE}
what to measure:
--batch N,… = 1  sequences per step
--context N,… = 4Ki  tokens in the cache of each sequence, the new one included
--prefill  also measure prompts of --context tokens
--weights P,…  {", ".join(registry.precision_names())} (default: fp16; fp8 is fp8_e4m3). For a .gguf file or a
  quantized checkpoint the default is stored: each tensor in its own format
--kv P,…  precisions of the KV cache (default: the weights', at least 16 bits)
--layout fused|separate  fused (default): one GEMM for q, k and v, one for gate and up, as in vLLM; separate (default of
  a .gguf file): as in transformers and llama.cpp
--chain  also time a layer's operations back to back, on a GPU in one CUDA graph
--memory BYTES  memory to fit into, such as 24G or 24Gi (default: the device's)
--reserve SHARE|0 = 10%  share of the memory for activations and scratch

where:
--device D,…  cpu, cuda, cuda:1 or a number; to predict, a name such as H100-SXM (bwprof predict --devices) or
  bandwidth=3200,fp16=400,memory=80 (GB/s, TFLOP/s, GB)
--backend NAME  cuda or cpu, like --device cuda and --device cpu
--predict  measure nothing; predict for --device, or for the device of --roofs
{shared.EFFICIENCY}
{shared.OUTPUT}
how:
{shared.LIMITS}
{shared.ROOFS}
{shared.DRY_RUN}
--list  print the names of models
"""


@command(_TABLE, measuring=True, suite=None)
def main_model(options: argparse.Namespace) -> int:
    """Measure or predict a language model's decode step, and with --prefill its prefill.

    Print tokens per second, what limits them, what other formats gain, and which batch and context fit.

    Examples:
      bwprof model llama-3.1-8b --batch 1,16 --context 4Ki,8Ki
      bwprof model llama-3.1-8b --device H100-SXM --weights fp8 --efficiency h200   predicted: needs no GPU
      bwprof model path/to/config.json --device A100-80GB --csv - | column -s, -t

    exit codes: as in bwprof sweep; a model that does not fit is no failure.
    """
    runner.read_options(options)
    if options.list:
        refuse_others(options, "--list prints the models that are known by name", "list", "verbose")
        _print_models()
        return OK
    if options.resume is not None:
        return runner.resume(options, typed(options, _QUESTION).values(), _continue)
    if options.model is None:
        raise ValueError(
            f"MODEL is missing: a config.json, a .gguf file, or one of {', '.join(architecture.list_models())}"
        )
    with options.interrupts.at_once():  # a file may be a pipe
        question = _make_request(options)
        roofs: RoofsArgument = "auto" if options.roofs_argument is None else options.roofs_argument
        predicted = model_step.choose_targets(options.device, roofs, predict=options.predict)
        if predicted is not None:
            unused = [name for name in _MEASURING if name != "roofs" or roofs is not predicted[0]]
            model_step.refuse_measuring(dict.fromkeys(typed(options, unused).values(), True))
            return _predict(options, question, predicted)
        if options.efficiency is not None:
            raise ValueError("--efficiency goes with predictions: --predict, or a --device that is not at hand")
        choice = hardware.choose_device(options.backend, options.device)
    return _measure(options, question, choice)


def _make_request(options: argparse.Namespace) -> ModelRequest:
    """Read the model, and protect its file from the outputs."""
    question = model_step.make_request(
        options.model,
        batches=options.batch,
        contexts=options.context,
        weights=options.weights or (),
        kvs=options.kv or (),
        memory_bytes=options.memory,
        **{name: getattr(options, name) for name in ("prefill", "layout", "chain", "reserve")},
    )
    path = Path(options.model) / "config.json" if Path(options.model).is_dir() else Path(options.model)
    if path.is_file():
        options.suite = str(path)  # which no output may replace
    return question


def _measure(options: argparse.Namespace, question: ModelRequest, choice: hardware.Choice) -> int:
    """Measure the launches of the steps, or print them with --dry-run."""
    if choice.warning:
        _log.warning("%s", choice.warning)
    plan = llm_executor.make_plan(llm_executor.list_pieces(question), max_seconds=options.max_seconds)
    if options.dry_run:
        shapes = {(spec.operation, spec.precision, *spec.params.values()): spec for spec in reversed(plan.specs)}
        print_plan(sys.stdout, replace(plan, specs=tuple(reversed(shapes.values()))), choice)
        return OK
    job = _job(question, plan, llm_executor.list_all_pieces(question))
    return runner.run(options, job, choice, {"model": question.to_dict()})


# What a run that continues knows itself.
_QUESTION = ["model", "batch", "context", "weights", "kv", "layout", "memory", "reserve", "device", "backend"]
_QUESTION += ["efficiency", "max_seconds", "prefill", "chain", "predict", "dry_run"]

_MEASURING = ["chain", "backend", "max_seconds", "max_case_seconds", "max_total_seconds", "roofs", "no_roofs"]
_MEASURING += ["recalibrate", "dry_run"]  # a prediction cannot use these


def _continue(folder: Path, data: dict[str, Any], rows: Sequence[RowDict]) -> tuple[Sequence[int], int, runner.Job]:
    """Choose the rows of a model's run that stay, and what is left to do."""
    if data.get("model") is None:
        raise ValueError(f"{folder} is no model's run: go on with bwprof sweep --resume {format_path(folder)}")
    plan = runner.earlier_plan(folder, data)
    try:
        question = ModelRequest.from_dict(data["model"])
    except ValueError as error:
        raise ValueError(f"{folder} cannot be resumed: {error}") from None
    if plan.specs != llm_executor.make_plan(llm_executor.list_pieces(question)).specs:
        raise ValueError(f"{folder} cannot be resumed: a step of the model launches other operations in this bwprof")
    finished, _, strangers = find_remaining(plan.specs, rows)
    layers = [place for place in finished if rows[place]["role"] == LAYER]
    stay = [place for place in finished if place not in layers or rows[place]["status"] == "ok"]
    present = Counter(llm_executor.piece_key(rows[place]) for place in stay)
    missing: list[llm_executor.AnyPiece] = []
    for piece in llm_executor.list_all_pieces(question):
        key = llm_executor.piece_key(piece.labels)
        if present[key]:
            present[key] -= 1
        else:
            missing.append(piece)
    return stay, strangers - len(layers), _job(question, plan, missing, [rows[place] for place in stay])


def _job(
    question: ModelRequest, plan: Plan, items: Sequence[llm_executor.AnyPiece], earlier: Sequence[RowDict] = ()
) -> runner.Job:
    def executor(inner: ChildExecutor) -> llm_executor.PiecesExecutor:
        return llm_executor.PiecesExecutor(question, inner, earlier)

    return runner.Job(plan, items, "model", executor, _show, llm_executor.fill_copies)


def _show(store: Store, _folder: Path | None, screen: Console) -> None:
    from bwprof.results import frame as results_frame

    print_step(results_frame.from_rows(store.rows, store.run), screen)


def _predict(options: argparse.Namespace, question: ModelRequest, devices: Sequence[str | Roofs]) -> int:
    """Predict the step and print its tables; write its rows where an option names a file."""
    if options.output is not None:
        kind = Path(options.output).suffix.lower().removeprefix(".")
        if kind not in ("csv", "json") or getattr(options, kind) is not None:
            message = "a prediction is kept in a file ending in .csv or .json, one of each"
            raise ValueError(f"--output {quote_text(options.output)}: {message}")
        setattr(options, kind, options.output)
    targets = choose_targets(options, options.suite, options.roofs, options.efficiency)
    data = llm_executor.predict_steps(question, devices, shared.read_efficiency(options.efficiency))
    code = emit(targets, row_texts(data))
    if not options.quiet:
        print_step(data, make_console(sys.stderr if "-" in targets.values() else sys.stdout))
    return code


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
