"""`bwprof.model_step`: measure or predict a model's decode step and prefill."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import environment, hardware
from bwprof.analysis.prediction import catalog
from bwprof.hardware import Device
from bwprof.llm import architecture, checkpoints, executor, workload
from bwprof.llm.architecture import Architecture
from bwprof.llm.workload import ModelRequest, StoredWeights
from bwprof.results.atomic import has_content
from bwprof.roofs.model import Roofs, RoofsArgument, check_roofs
from bwprof.runs import executors, metadata
from bwprof.runs.loop import DevicePart, TimeBudget
from bwprof.text.parsing import (
    as_list,
    expand_ranges,
    parse_bool,
    parse_int,
    parse_names,
    parse_seconds,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    from bwprof.llm.result import ModelStep
    from bwprof.results.row import Row

Model = str | PathLike[str] | Mapping[str, Any] | Architecture
NumbersArgument = int | str | Iterable[int | str]
NamesArgument = str | Iterable[str] | None


def model_step(
    model: Model,
    *,
    batch: NumbersArgument = 1,
    context: NumbersArgument = 4096,
    prefill: bool = False,
    weights: NamesArgument = None,
    kv: NamesArgument = None,
    layout: str | None = None,
    chain: bool = False,
    reserve: float = 0.1,
    memory: int | str | None = None,
    device: Device | Sequence[Device] = None,
    backend: str | None = None,
    predict: bool = False,
    efficiency: Any = None,
    max_seconds: float | None = None,
    max_total_seconds: float | None = None,
    roofs: RoofsArgument = "auto",
    recalibrate: bool = False,
    output: str | PathLike[str] | None = None,
    force: bool = False,
    progress: bool | Callable[[int, int, Row], object] | None = None,
) -> ModelStep:
    """Measure or predict one decode step of a language model, and its prefill: time, tokens per second, limiter.

    Every product, attention and cache operation of the step is measured, each shape once, cold, in this process. The
    step is their sum. The result lists the work that the sum omits (norms, additions, sampling, ...).

    Parameters
    ----------
    model : str, path, mapping or Architecture
        A name ("llama-3.1-8b"; `bwprof.llm.architecture.list_models()` has all), a Hugging Face config.json (the file,
        its folder, or its content), or a .gguf file.
    batch, context : int, str or iterable of them
        Sequences, and tokens in each sequence's cache with the new one; "4Ki" is 4096, "1..8:x2" a range. A prefill's
        prompts have that many tokens.
    prefill : bool
        Measure the prefill as well.
    weights : str or iterable of str, optional
        Precisions of the weights (default: "fp16"); `bwprof.operations()["gemm"]["precisions"]` lists them. For a .gguf
        file and a config.json that quantizes the weights, "stored" (default): each tensor in its own.
    kv : str or iterable of str, optional
        Precisions of the KV cache; default: that of the weights, but no fewer than 16 bits.
    layout : {"fused", "separate"}, optional
        "fused": q, k and v in one product, gate and up in one, as in vLLM, SGLang and TensorRT-LLM. "separate": each by
        itself, as in transformers and llama.cpp; the default of .gguf files.
    chain : bool
        Measure a layer's operations back to back as well, on a GPU in one CUDA graph.
    reserve : float
        The share of the memory for activations and scratch.
    memory : int or str, optional
        Bytes of memory to fit into ("24G") instead of the device's.
    device : int, str or torch.device, optional
        As in `bwprof.sweep`; or one or several devices that are not at hand, as in `bwprof.predict` ("H100-SXM",
        "bandwidth=3200,fp16=400,memory=80"): nothing is measured then.
    predict : bool
        Measure nothing; for a device that is not at hand, or the device of `roofs`.
    efficiency : float, DataFrame or Efficiency, optional
        The kernels' efficiency for predictions, as in `bwprof.predict`.
    backend, max_seconds, max_total_seconds, roofs, recalibrate, output, force, progress
        As in `bwprof.sweep`.

    Returns
    -------
    ModelStep
        Printed as its answer with tables. `frame` is a sweep's frame with the columns model, phase, role, count,
        step_batch, context, weights and kv.

    Raises
    ------
    ValueError
        For anything unknown or out of range, and for options of measuring (chain, backend, ...) in a prediction.
    ImportError
        For a .gguf file without the package gguf.

    Examples
    --------
    >>> import bwprof
    >>> tiny = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    ...         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    >>> step = bwprof.model_step(tiny, context=16, device="cpu", roofs=False, max_seconds=0.01)
    >>> step.frame["role"].tolist()
    ['qkv', 'kv append', 'attention', 'o', 'gate up', 'down', 'lm head']
    >>> step.frame["count"].tolist()
    [2, 2, 2, 2, 2, 2, 1]
    >>> bwprof.model_step("llama-3.1-70b", device="RTX-4090").tokens_s is None  # it does not fit
    True
    """
    from bwprof.llm.result import ModelStep
    from bwprof.results.reader import save
    from bwprof.runs import api

    started = time.monotonic()
    options = api.RunOptions(max_total_seconds, check_roofs(roofs), recalibrate, {}, output, force, progress)
    case_seconds = None if max_seconds is None else parse_seconds(max_seconds, "max_seconds", from_zero=True)
    request = make_request(
        model,
        batches=_parse_numbers("batch", batch),
        contexts=_parse_numbers("context", context),
        weights=parse_names("weights", weights),
        kvs=parse_names("kv", kv),
        prefill=parse_bool(prefill, "prefill"),
        layout=layout,
        chain=parse_bool(chain, "chain"),
        reserve=reserve,
        memory_bytes=None if memory is None else parse_int(memory, "memory"),
    )
    targets = choose_targets(device, options.roofs, predict=parse_bool(predict, "predict"))
    if targets is not None:
        measuring = {
            "chain": chain,
            "backend": backend is not None,
            "max_seconds": max_seconds is not None,
            "max_total_seconds": max_total_seconds is not None,
            "roofs": options.roofs != "auto" and options.roofs is not targets[0],
            "recalibrate": recalibrate,
            "progress": bool(progress),
        }
        refuse_measuring(name for name, is_set in measuring.items() if is_set)
        frame = executor.predict_steps(request, targets, 0.9 if efficiency is None else efficiency)
        if output is not None:
            if not force and has_content(Path(output)):
                reason = "exists already: name another file, or replace it with force=True"
                raise FileExistsError(errno.EEXIST, reason, str(Path(output)))
            save(frame, output)
        return ModelStep.from_frame(frame)
    if efficiency is not None:
        raise ValueError("efficiency goes with predictions: predict=True, or a device of the catalog")
    choice = hardware.choose_device(backend, *catalog.split_devices(device))
    plan = executor.make_plan(executor.list_pieces(request), max_seconds=case_seconds)
    run = metadata.describe_run(environment.new_run_id(), plan, choice, None, options.roofs)
    part = DevicePart(choice, executor.list_all_pieces(request), run | {"model": request.to_dict()})
    frame = api.measure_devices(
        [part],
        lambda choice: executor.PiecesExecutor(request, executors.LocalExecutor(choice.backend, choice.index)),
        part.run,
        TimeBudget(None, options.max_total_seconds, started, max_seconds=case_seconds),
        options,
        executor.fill_copies,
    )
    return ModelStep.from_frame(frame)


def refuse_measuring(names: Iterable[str]) -> None:
    """Raise ValueError for the names of options of measuring in a prediction."""
    if typed := ", ".join(names):
        raise ValueError(f"nothing is measured for a prediction: leave out {typed}, or name a device of this machine")


def choose_targets(
    device: Device | Sequence[Device], roofs: RoofsArgument, *, predict: bool
) -> Sequence[str | Roofs] | None:
    """Return what to predict for: the roofs of a device, or devices that are not at hand; None for measuring.

    ValueError for an unknown device, a prediction without a device, and both a device and roofs.
    """
    devices = catalog.split_devices(device)
    present = [name for name in devices if not (isinstance(name, str) and _is_elsewhere(name))]
    if not devices:
        raise ValueError("device is empty: at least one is needed")
    if present and len(devices) > 1:
        reason = f"several are predicted, {repr_short(present[0])} is measured: name it alone"
        raise ValueError(f"device is {repr_short(device)}: {reason}")
    if present and not predict:
        return None
    if isinstance(roofs, Roofs):
        if device is not None:
            raise ValueError(f"device {repr_short(device)} and roofs both say what to predict for: leave one out")
        return [roofs]
    if present:
        raise ValueError("predict: name a device that is not at hand (A100-80GB, ...), or give the roofs of one")
    return devices


def _is_elsewhere(device: str) -> bool:
    """Return whether a name is in the catalog, or numbers; ValueError if it is no device of this machine either."""
    try:
        kind, index = hardware.parse_device(device)
        # "4090" is no number of a device here.
        unknown_number = kind is None and all(row["index"] != index for row in hardware.devices())
        return unknown_number and bool(catalog.find_similar(device))
    except ValueError as error:
        try:
            catalog.resolve_card(device)
        except ValueError as other:
            raise ValueError(f"{error}; for a prediction: {other}") from None
        return True


def make_request(
    model: Model,
    *,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    weights: tuple[str, ...],
    kvs: tuple[str, ...],
    prefill: bool,
    layout: str | None,
    chain: bool,
    reserve: float,
    memory_bytes: int | None,
) -> ModelRequest:
    """Make a request; ValueError for anything unknown or out of range.

    How a file stores weights and cache is the default of `weights` and `kvs`.
    """
    sizes, stored = load_model(model)
    for name, number in (*product(["batch"], batches), *product(["context"], contexts)):
        architecture.check_int(name, number, 1, workload.MAX_TOKENS)
    phases = (workload.DECODE, workload.PREFILL) if prefill else (workload.DECODE,)
    every = product(phases, _pair_formats(weights, kvs, stored), contexts, batches)
    points = dict.fromkeys(workload.StepPoint(phase, size, tokens, *pair) for phase, pair, tokens, size in every)
    fused = stored is None or stored.is_fused
    if layout == "fused" and not fused and all(point.weights == workload.AS_STORED for point in points):
        raise ValueError("layout is 'fused': weights as the file stores them are separate; leave it out")
    if layout is None:
        layout = "fused" if fused else "separate"
    return workload.ModelRequest(sizes, tuple(points), layout, reserve, memory_bytes, stored, chain)


def _pair_formats(
    weights: Sequence[str], kvs: Sequence[str], stored: StoredWeights | None
) -> Iterator[tuple[str, str]]:
    caches = [workload.check_format(kv, workload.KV) for kv in kvs]
    for name in weights or (workload.AS_STORED if stored else "fp16",):
        is_stored = stored is not None and name == workload.AS_STORED
        precision = name if is_stored else workload.check_format(name, workload.WEIGHTS)
        cache = (stored.kv if stored is not None and is_stored else "") or workload.kv_format(precision)
        yield from product([precision], caches or [cache])


def load_model(model: Model) -> tuple[Architecture, StoredWeights | None]:
    """Load a model by its name, its file, or its sizes; and how a file stores its weights, if it says so.

    ValueError for an unknown model, with the nearest name, and for a file that cannot be used.
    """
    if isinstance(model, Architecture):
        return model, None
    if isinstance(model, Mapping):
        sizes = checkpoints.from_dict(model)
        return sizes, checkpoints.read_weights(sizes, model)
    if not isinstance(model, (str, PathLike)):
        raise ValueError(f"model is {repr_short(model)}: a name, a config.json, its content or a .gguf file is needed")
    path = Path(os.fspath(model))
    if path.suffix.lower() == ".gguf":
        return checkpoints.read_gguf(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"{quote_text(path)}: there is no config.json in this folder")
        path = path / "config.json"
    if path.suffix.lower() == ".json" or path.is_file():
        return checkpoints.read_config(path)
    sizes = architecture.find_model(str(model))
    return sizes, checkpoints.read_weights(sizes, architecture.find_config(str(model)))


def _parse_numbers(name: str, value: NumbersArgument) -> tuple[int, ...]:
    items: list[Any] = (
        [word for word in value.split(",") if word.strip()] if isinstance(value, str) else as_list(value, name)
    )
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(parse_int(item, name) for item in expand_ranges(items, name))
