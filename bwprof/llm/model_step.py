"""`bwprof.model_step`: a model's decode step or prefill, measured or predicted."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.llm import architecture
from bwprof.llm.architecture import Architecture
from bwprof.text.parsing import (
    as_list,
    describe_unknown,
    expand_ranges,
    parse_bool,
    parse_int,
    parse_names,
    parse_seconds,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    from bwprof.hardware import Device
    from bwprof.llm.result import ModelStep
    from bwprof.llm.workload import ModelRequest, StoredWeights
    from bwprof.results.row import Row
    from bwprof.roofs.model import Roofs, RoofsArgument

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
    """One decode step of a language model, and its prefill: the time, tokens a second, and what limits them.

    Every product, attention and cache operation of the step is measured, each shape once, cold, in this process; the
    step is their sum. What it leaves out (norms, additions, sampling, ...) is listed in the result, with its bytes.

    Parameters
    ----------
    model : str, path, mapping or Architecture
        A name ("llama-3.1-8b"; `bwprof.llm.architecture.list_models()` has all), a Hugging Face config.json (the file, its
        folder, or its content), or a .gguf file.
    batch, context : int, str or iterable of them
        Sequences, and tokens in each one's cache, the new one included; "4Ki" is 4096, "1..8:x2" a range. A prefill is
        of prompts of that many tokens.
    prefill : bool
        The prefill as well.
    weights : str or iterable of str, optional
        Precisions of the weights: "fp16" (when left out), "fp32", "bf16", "tf32", "fp8", "int8", "q4_0"; of a .gguf
        file, and of a config.json that quantises them, "stored" (when left out), each tensor in its own.
    kv : str or iterable of str, optional
        Precisions of the KV cache; that of the weights when left out, but no fewer than 16 bits.
    layout : {"fused", "separate"}, optional
        q, k and v in one product, gate and up in one, as vLLM, SGLang and TensorRT-LLM run them; or each by itself, as
        transformers and llama.cpp do. Left out: separate for a .gguf file, whose stored weights always are, else fused.
    chain : bool
        Measure a layer's operations back to back, too, on a GPU in one CUDA graph, beside the sum of their times.
    reserve : float
        The share of the memory that weights and caches leave for activations and scratch.
    memory : int or str, optional
        Bytes of memory to fit into ("24G") instead of the device's.
    device : int, str or torch.device, optional
        As `bwprof.sweep` has it; or one that is not at hand, as `bwprof.predict` has it ("H100-SXM",
        "bandwidth=3200,fp16=400,memory=80"), or several of them: nothing is measured then.
    predict : bool
        Measure nothing; for a device that is not at hand, or the one whose `roofs` are given.
    efficiency : float, DataFrame or Efficiency, optional
        What predictions take for their kernels, as `bwprof.predict` has it: learnt from a measured run, the streams of
        a device that is not at hand are scaled from that run's.
    backend, max_seconds, max_total_seconds, roofs, recalibrate, output, force, progress
        As `bwprof.sweep` has them.

    Returns
    -------
    ModelStep
        Shown as its answer with tables; `frame` is a sweep's with the columns model, phase, role, count, step_batch,
        context, weights and kv beside them.

    Raises
    ------
    ValueError
        For anything unknown or out of range, an architecture that is not known among it; the message names it. For
        what says how to measure (chain, backend, max_seconds, ...) where nothing is measured.
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
    from bwprof import environment, hardware
    from bwprof.analysis.prediction.catalogue import split_devices
    from bwprof.llm import executor
    from bwprof.llm.executor import fill_predictions
    from bwprof.llm.result import ModelStep
    from bwprof.roofs.model import check_roofs
    from bwprof.runs import api, metadata
    from bwprof.runs.local import LocalExecutor
    from bwprof.runs.loop import TimeBudget

    started = time.monotonic()
    how = api.RunOptions(max_total_seconds, check_roofs(roofs), recalibrate, {}, output, force, progress)
    most = None if max_seconds is None else parse_seconds(max_seconds, "max_seconds", from_zero=True)
    asked = make_request(
        model,
        batches=_numbers("batch", batch),
        contexts=_numbers("context", context),
        weights=parse_names("weights", weights),
        kvs=parse_names("kv", kv),
        prefill=parse_bool(prefill, "prefill"),
        layout=layout,
        chain=parse_bool(chain, "chain"),
        reserve=reserve,
        memory_bytes=None if memory is None else parse_int(memory, "memory"),
    )
    elsewhere = choose_targets(device, how.roofs, predict=parse_bool(predict, "predict"))
    if elsewhere is not None:
        from bwprof.results.atomic import has_content
        from bwprof.results.reader import save

        used = how.roofs == "auto" or how.roofs is elsewhere[0]
        refuse_measuring(
            {
                "chain": chain,
                "backend": backend is not None,
                "max_seconds": max_seconds is not None,
                "max_total_seconds": max_total_seconds is not None,
                "roofs": not used,
                "recalibrate": recalibrate,
                "progress": bool(progress),
            }
        )
        frame = executor.predict_steps(asked, elsewhere, 0.9 if efficiency is None else efficiency)
        if output is not None:
            if not force and has_content(Path(output)):
                said = "exists already: name another file, or replace it with force=True"
                raise FileExistsError(errno.EEXIST, said, str(Path(output)))
            save(frame, output)
        return ModelStep.from_frame(frame)
    if efficiency is not None:
        raise ValueError("efficiency goes with predictions: predict=True, or a device of the catalogue")
    (here,) = split_devices(device)
    choice = hardware.choose_device(backend, here)
    plan = executor.make_plan(executor.list_pieces(asked), max_seconds=most)
    data = metadata.describe_run(environment.new_run_id(), plan, choice, None, how.roofs) | {"model": asked.to_dict()}
    frame = api.measure_device(
        executor.list_all_pieces(asked, choice.backend),
        executor.PiecesExecutor(asked, LocalExecutor(choice.backend, choice.index), executor.predict_row),
        data,
        TimeBudget(None, how.max_total_seconds, started, max_seconds=most),
        how,
        fill_predictions,
    )
    return ModelStep.from_frame(frame)


def refuse_measuring(given: Mapping[str, bool]) -> None:
    """ValueError for arguments or options that were given and say how to measure, where nothing is."""
    names = [name for name, is_given in given.items() if is_given]
    if names:
        raise ValueError(
            f"nothing is measured for a prediction: leave out {', '.join(names)}, or name a device of this machine"
        )


def choose_targets(
    device: Device | Sequence[Device], roofs: RoofsArgument, *, predict: bool
) -> Sequence[str | Roofs] | None:
    """What to predict for: roofs that are given, or devices that are not this machine's; None for measuring.

    Raises
    ------
    ValueError
        For a device that is neither one here nor known, for a prediction of none, and for one of two.
    """
    from bwprof.analysis.prediction.catalogue import split_devices
    from bwprof.roofs.model import Roofs

    devices = split_devices(device)
    here = [one for one in devices if not (isinstance(one, str) and _is_elsewhere(one))]
    if not devices:
        raise ValueError("device is empty: at least one is needed")
    if here and len(devices) > 1:
        said = f"several are predicted, {repr_short(here[0])} is measured: name it alone"
        raise ValueError(f"device is {repr_short(device)}: {said}")
    elsewhere = not here
    if not (elsewhere or predict):
        return None
    if isinstance(roofs, Roofs):
        if device is not None:
            raise ValueError(f"device {repr_short(device)} and roofs both say what to predict for: leave one out")
        return [roofs]
    if not elsewhere:
        raise ValueError("predict: name a device that is not at hand (A100-80GB, ...), or give the roofs of one")
    return devices


def _is_elsewhere(device: str) -> bool:
    """Whether a name is one of the catalogue's, or numbers; ValueError where it is no device of this machine either."""
    from bwprof import hardware
    from bwprof.analysis.prediction import catalogue
    from bwprof.analysis.prediction.catalogue import resolve_card

    try:
        kind, index = hardware.parse_device(device)
        if kind is None and all(found["index"] != index for found in hardware.devices()):
            return bool(catalogue.find_similar(device))  # "4090" is no number of a device here
    except ValueError as error:
        try:
            resolve_card(device)
        except ValueError as other:
            raise ValueError(f"{error}; for a prediction: {other}") from None
        return True
    return False


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
    """What is asked, checked; ValueError for what cannot be."""
    from bwprof.llm import workload
    from bwprof.llm.workload import LAYOUTS

    found, stored = load_model(model)
    if memory_bytes is not None and not 1 <= memory_bytes < 2**63:
        raise ValueError(f"memory is {memory_bytes}: allowed are 1 to 2^63 - 1 bytes")
    points = workload.make_points(
        batches=batches, contexts=contexts, weights=weights, kvs=kvs, prefill=prefill, stored=stored
    )
    if layout is not None and not isinstance(layout, str):
        raise ValueError(describe_unknown("layout", layout, LAYOUTS))
    fused = stored is None or stored.is_fused
    if layout == "fused" and not fused and all(point.weights == workload.AS_STORED for point in points):
        raise ValueError("layout is 'fused': weights as the file stores them are separate; leave it out")
    if layout is None:
        layout = "fused" if fused else "separate"
    asked = workload.ModelRequest(found, points, layout, workload.check_reserve(reserve), memory_bytes, stored, chain)
    workload.check_points(asked)
    return asked


def load_model(model: Model) -> tuple[Architecture, StoredWeights | None]:
    """A model by its name, its file, or its sizes; and how a file stores its weights, where it says so.

    Raises
    ------
    ValueError
        For what is none of them, with the nearest name.
    """
    from bwprof.llm import checkpoints, quantization

    if isinstance(model, Architecture):
        return model, None
    if isinstance(model, Mapping):
        return quantization.read_weights(checkpoints.from_dict(model), model)
    if not isinstance(model, (str, PathLike)):
        raise ValueError(f"model is {repr_short(model)}: a name, a config.json, its content or a .gguf file is needed")
    path = Path(os.fspath(model))
    if path.suffix.lower() == ".gguf":
        from bwprof.llm import checkpoints

        return checkpoints.read_gguf(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"{quote_text(path)}: there is no config.json in this folder")
        path = path / "config.json"
    if path.suffix.lower() == ".json" or path.is_file():
        found = checkpoints.read_config(path)
        beside = map(path.with_name, quantization._FILES)
        other = next((file for file in beside if path.name == "config.json" and os.path.lexists(file)), None)
        if other is not None and not any(found[1].get(name) for name in quantization._FIELDS):
            raise ValueError(
                f"{quote_text(other)} quantises the weights of {quote_text(path)} and is not read: write it as "
                f"quantization_config of config.json; {quantization._ESTIMATE}"
            )
        return quantization.read_weights(*found, quote_text(path))
    return quantization.read_weights(architecture.find_model(str(model)), architecture.find_config(str(model)))


def _numbers(name: str, given: NumbersArgument) -> tuple[int, ...]:
    if isinstance(given, str):
        items: list[Any] = [word for word in given.split(",") if word.strip()]
    else:
        items = as_list(given, name)
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(parse_int(item, name) for item in expand_ranges(items, name))
