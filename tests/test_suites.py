"""Suites and plans: what a TOML file and a request stand for, and what is said about their mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from bwprof import registry
from bwprof.analysis import utilization_table
from bwprof.runs import plan, suites
from bwprof.runs.plan import SweepRequest

HEAD = 'precisions = ["fp32"]\n[[case]]\nname = "x"\noperation = "gemm"\n'


def parsed(text: str) -> suites.Suite:
    return suites.parse(text.encode(), source="my.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[case]]\noparation = "gemm"\n', "my.toml, case 1: unknown key 'oparation': did you mean 'operation'?"),
        ('[[case]]\noperation = "gem"\n', "my.toml, case 1 ('gem'): unknown operation 'gem': did you mean 'gemm'?"),
        (
            '[[case]]\nname = "x"\noperation = "attention_decode"\nparams = { kv_lens = [1, 2] }\n',
            "my.toml, case 1 ('x'): kv_lens is no parameter: lengths are a key beside params, kv_lens = [100, 7000]",
        ),
        (HEAD + "params = { m = 1 }\n", "my.toml, case 1 ('x'): unknown parameter of gemm 'm': did you mean 'M'?"),
        (HEAD + "params = { M = 1.5 }\n", "my.toml, case 1 ('x'): M is 1.5, a whole number is needed"),
        (HEAD + 'params = { M = "4Kb" }\n', "my.toml, case 1 ('x'): M: '4Kb' is not a whole number"),
        (HEAD + "params = { M = [] }\n", "M is an empty list"),
        (HEAD + "params = 3\n", "my.toml, case 1 ('x'): params must be a table"),
        (HEAD + 'precisions = ["fp61"]\n', "unknown precision 'fp61': did you mean 'fp16'?"),
        (HEAD + 'backends = ["cudda"]\n', "unknown backend 'cudda': did you mean 'cuda'?"),
        (HEAD + 'cache = "warm"\n', "unknown cache 'warm': Allowed: cold, hot"),
        (HEAD + 'variants = ["nosuch"]\n', "unknown variant of gemm 'nosuch'"),
        (HEAD + "kv_lens = [1, 2]\n", "gemm takes no kv_lens"),
        ('precison = ["fp32"]\n' + HEAD, "my.toml: unknown key 'precison': did you mean 'precisions'?"),
        ("[on.gpu]\n" + HEAD, "my.toml, on: unknown backend 'gpu'"),
        ("text = 'no cases'\n", "my.toml: a suite needs at least one [[case]]"),
        ('[[case]]\noperation = "gemm"\nname = 5\n', "my.toml, case 1 (5): name is 5: text in one line"),
        ('[[case]]\noperation = "gemm"\nname = ""\n', "name is '': text in one line"),
        ('[[case]]\noperation = "gemm"\nname = "a\\nb"\n', r"name is 'a\nb': text in one line"),
        ("target_seconds = inf\n" + HEAD, "target_seconds is inf, a positive number is needed"),
        ("target_seconds = -1\n" + HEAD, "target_seconds is -1, a positive number is needed"),
        ("case = [\n", "my.toml: not a TOML file"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_nearest_right_one(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parsed(text)


def test_a_value_out_of_range_names_the_suite_and_the_case(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(HEAD + "params = { M = 0 }\n")
    with pytest.raises(ValueError, match=r"my\.toml.*'x': gemm: M"):
        plan.make_plan(SweepRequest(suite=str(path)), "cpu")


def test_unknown_suite_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"suite 'defualt': .*'default'\? .*default"):
        suites.load("defualt")


def test_numbers_take_suffixes_and_lists_are_products() -> None:
    suite = parsed(HEAD + 'params = { M = [1, "2k"], N = "1Ki", K = 8 }\n')
    assert suite.cases[0].params == {"M": (1, 2000), "N": (1024,), "K": (8,)}
    specs = plan.expand_entry(suite.cases[0], SweepRequest(), ("fp32", "fp16"), "cpu")
    assert [(spec.case, spec.precision, spec.params["M"]) for spec in specs] == [
        ("x M=1", "fp32", 1),
        ("x M=1", "fp16", 1),
        ("x M=2000", "fp32", 2000),
        ("x M=2000", "fp16", 2000),
    ]


def shapes(backend: str) -> set[tuple[str, tuple[int, ...]]]:
    made = plan.make_plan(SweepRequest(), backend)
    return {(spec.operation, tuple(spec.params.values())) for spec in made.specs}


def test_cases_of_the_default_suite() -> None:
    made = plan.make_plan(SweepRequest(), "cpu")
    precisions = {spec.precision for spec in made.specs}
    assert precisions == {"fp32", "fp16"}
    found = {spec.case: spec for spec in made.specs}
    for name, shape in {
        "decode_gemm": (1, 896, 896),
        "prefill_gemm_small": (32, 896, 896),
        "prefill_gemm_medium": (128, 896, 896),
        "ffn_gemm": (128, 4864, 896),
        "decode_gemm_8b": (1, 14336, 4096),
        "batch16_gemm_8b": (16, 14336, 4096),
    }.items():
        params = found[name].params
        assert (params["M"], params["N"], params["K"]) == shape
    assert {spec.variant for spec in made.specs if spec.case == "prefill_attention"} == {"unfused", "flash"}
    assert found["prefill_attention"].params["seq_len"] == found["prefill_attention"].params["kv_len"] == 512
    assert found["prefill_attention"].params["causal"] == 1
    assert found["decode_attention_32k"].params == {
        "batch": 1,
        "kv_len": 32768,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
    }
    streams = [row["name"] for row in registry.operations() if row["is_stream"]]
    assert len(streams) == 4
    assert set(streams) <= {spec.operation for spec in made.specs}
    only_gpu = {spec.case for spec in plan.make_plan(SweepRequest(), "cuda").specs} - set(found)
    assert only_gpu == {"prefill_attention_4k"}


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_suite_of_q4_0_is_the_table_of_its_four_rows(backend: str) -> None:
    made = plan.make_plan(SweepRequest(suite="q4_0"), backend)
    assert [(spec.case, spec.operation, spec.precision, spec.variant) for spec in made.specs] == [
        ("Q4_0 MatMul (fused)", "gemm", "q4_0", None),
        ("Q4_0 MatMul (separate)", "gemm", "q4_0", "separate"),
        ("Flash Attention", "attention_decode", "fp16", None),
        ("Dequant Q4_0", "weight_dequantize", "q4_0", None),
    ]
    moved = {"time_ms": 1.0, "bytes_read": 80e6, "bytes_written": 5e6, "bandwidth_gb_s": 85.0, "cache": "cold"}
    rows = [{"case": spec.case, "precision": spec.precision, **moved} for spec in made.specs]
    table = utilization_table(pd.DataFrame(rows), peak_gb_s=100.0)
    assert list(table) == ["Kernel", "Measured BW", "Utilization", "Status"]
    assert table["Kernel"].str.startswith(tuple(spec.case for spec in made.specs)).all()
    assert set(table["Status"]) == {"excellent"}


def test_operations_with_params_are_their_product() -> None:
    request = SweepRequest(operations=("gemm",), params={"M": (1, 2), "N": (8,), "K": (8, 16)}, precisions=("fp32",))
    made = plan.make_plan(request, "cpu")
    assert [spec.case for spec in made.specs] == [f"gemm M={m} N=8 K={k}" for m in (1, 2) for k in (8, 16)]
    assert made.target_seconds is None


def test_a_suite_can_be_narrowed_and_its_params_replaced() -> None:
    made = plan.make_plan(
        SweepRequest(operations=("gemm",), suite="default", params={"M": (3,)}, precisions=("fp16",)), "cpu"
    )
    assert {spec.operation for spec in made.specs} == {"gemm"}
    assert {spec.params["M"] for spec in made.specs} == {3}
    assert {spec.case for spec in made.specs} >= {"decode_gemm M=3", "ffn_gemm M=3"}


@pytest.mark.parametrize(
    ("only", "operations", "cases"),
    [
        (("attention*",), {"attention_prefill", "attention_decode"}, None),  # by the operation
        (("*_8b",), {"gemm"}, {"decode_gemm_8b", "batch16_gemm_8b"}),  # by the case
        (("stream_read", "ffn_*"), {"stream_read", "gemm"}, {"stream_read", "ffn_gemm"}),
        (("decode_gemm",), {"gemm"}, {"decode_gemm"}),
        (("?ecode_gemm[_]*",), {"gemm"}, {"decode_gemm_8b"}),
    ],
)
def test_only_some_cases_of_a_suite(only: tuple[str, ...], operations: set[str], cases: set[str] | None) -> None:
    every = plan.make_plan(SweepRequest(), "cpu").specs
    made = plan.make_plan(SweepRequest(only=only), "cpu").specs
    assert {spec.operation for spec in made} == operations
    named = {spec.case for spec in every if spec.operation in operations} if cases is None else cases
    assert {spec.case for spec in made} == named
    assert list(made) == [spec for spec in every if spec.case in named], "in their order, whole"


def test_only_one_point_of_a_product() -> None:
    params = {"M": (1, 2, 4), "N": (8,), "K": (8,)}
    made = plan.make_plan(
        SweepRequest(operations=("gemm",), params=params, only=("*M=[24] *",), precisions=("fp32",)), "cpu"
    )
    assert [spec.case for spec in made.specs] == ["gemm M=2 N=8 K=8", "gemm M=4 N=8 K=8"]
    whole = plan.make_plan(
        SweepRequest(operations=("gemm",), params=params, only=("gemm",), precisions=("fp32",)), "cpu"
    )
    assert len(whole.specs) == 3, "the entry's own name is that of all its cases"


def test_names_of_cases_replace_operations(tmp_path: Path) -> None:
    """Of the default suite, or the one that is named; not beside operations, nor what nothing is called."""
    requested = plan.make_plan(SweepRequest(("decode_gemm",), precisions=("fp16",)), "cpu")
    assert requested.specs == plan.make_plan(SweepRequest(only=("decode_gemm",), precisions=("fp16",)), "cpu").specs
    assert [spec.case for spec in requested.specs] == ["decode_gemm"]
    (tmp_path / "mine.toml").write_text('[[case]]\nname = "my own"\noperation = "gemm"\nparams = {M = 2}\n')
    found = plan.make_plan(SweepRequest(("my own",), suite=str(tmp_path / "mine.toml"), precisions=("fp32",)), "cpu")
    assert [(spec.case, spec.params["M"]) for spec in found.specs] == [("my own", 2)]
    beside = plan.make_plan(
        SweepRequest(("stream_read", "decode_gemm"), precisions=("fp16",)), "cpu"
    )  # both are cases' names
    assert [spec.case for spec in beside.specs] == ["stream_read", "decode_gemm"]
    alone = plan.make_plan(SweepRequest(("stream_read",), precisions=("fp16",)), "cpu")
    assert alone.specs[0].params != beside.specs[0].params, "an operation's name alone is the operation's"
    for names, message in (
        (("decode_gemm", "gemm"), "decode_gemm is a case of the suite default, gemm an operation: name operations"),
        (("my own",), "unknown operation 'my own'"),
    ):
        with pytest.raises(ValueError, match=message):
            plan.make_plan(SweepRequest(names), "cpu")


def test_a_pattern_without_a_match_is_refused() -> None:
    message = r"only: unknown case or operation 'ffn_gem': did you mean 'ffn_gemm'\? Allowed: stream_read, "
    with pytest.raises(ValueError, match=message):
        plan.make_plan(SweepRequest(only=("attention*", "ffn_gem")), "cpu")
    with pytest.raises(ValueError, match="parameter of stream_read 'kv_len'"):  # and others' are not looked at
        plan.make_plan(SweepRequest(only=("stream_read",), params={"kv_len": (8,)}), "cpu")


def test_a_name_has_every_unusual_parameter() -> None:
    """One value as much as several: rows of two runs stand beside each other in a frame and a picture."""

    def cases(operation: str, suite: str | None = None, **params: int) -> set[str]:
        requested = {name: (value,) for name, value in params.items()}
        made = plan.make_plan(
            SweepRequest(operations=(operation,), suite=suite, params=requested, precisions=("fp32",)), "cpu"
        )
        return {spec.case for spec in made.specs}

    usual = {row["name"]: row["default"] for row in registry.operation("gemm")["params"]}
    assert cases("gemm") == cases("gemm", M=usual["M"]) == {"gemm"}
    assert cases("gemm", M=usual["M"] + 1) == {f"gemm M={usual['M'] + 1}"}
    assert cases("kv_append", page_size=16) == {"kv_append page_size=16"}
    assert cases("attention_decode", num_heads=6, num_kv_heads=6) == {"attention_decode num_heads=6"}
    assert cases("attention_decode", num_heads=6, num_kv_heads=2) == {"attention_decode num_heads=6 num_kv_heads=2"}
    named = cases("gemm", suite="default")
    assert cases("gemm", suite="default", M=1) >= {"decode_gemm", "ffn_gemm M=1"}
    assert not any("=" in name for name in named)


def test_sequence_lengths_go_to_seq_len_or_else_to_kv_len() -> None:
    made = plan.make_plan(SweepRequest(seq_lengths=(128, 256), precisions=("fp32",)), "cpu")
    assert {spec.operation for spec in made.specs} == {"attention_prefill", "attention_decode", "mla_decode"}
    for spec in made.specs:
        assert spec.params["kv_len"] in (128, 256)
        assert spec.params.get("seq_len", spec.params["kv_len"]) == spec.params["kv_len"]


def test_a_requested_precision_that_an_operation_lacks_makes_a_case() -> None:
    lacking = next(row["name"] for row in registry.operations() if "tf32" not in row["precisions"])
    having = next(row["name"] for row in registry.operations() if "tf32" in row["precisions"])
    made = plan.make_plan(SweepRequest(operations=(lacking, having), precisions=("fp32", "tf32")), "cpu")
    found = [(spec.operation, spec.precision) for spec in made.specs]
    assert found == [(name, precision) for name in (lacking, having) for precision in ("fp32", "tf32")]
    with pytest.raises(ValueError, match=f"no precision tf32 of {lacking}: allowed are fp32"):
        plan.make_plan(SweepRequest(operations=(lacking,), precisions=("fp32", "tf32")), "cpu")


def test_variant_all_runs_every_variant() -> None:
    made = plan.make_plan(
        SweepRequest(operations=("attention_prefill",), variants=("all",), precisions=("fp32",)), "cpu"
    )
    assert [spec.variant for spec in made.specs] == registry.variant_names("attention_prefill", "cpu", "fp32")


@pytest.mark.parametrize("requested", ["request", "suite"])
def test_both_caches_are_a_case_each(requested: str) -> None:
    entry = parsed(HEAD + ('cache = "both"\n' if requested == "suite" else "")).cases[0]
    request = SweepRequest(caches=("both",) if requested == "request" else ())
    specs = plan.expand_entry(entry, request, ("fp32", "fp16"), "cpu")
    assert [(spec.cache, spec.precision) for spec in specs] == [
        ("cold", "fp32"),
        ("cold", "fp16"),
        ("hot", "fp32"),
        ("hot", "fp16"),
    ]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SweepRequest(operations=("gem",)), "unknown operation 'gem': did you mean 'gemm'?"),
        (SweepRequest(precisions=("fp33",)), "unknown precision 'fp33': did you mean 'fp32'?"),
        (SweepRequest(operations=("gemm",), params={"Mm": (1,)}), "unknown parameter of gemm 'Mm': did you mean 'M'?"),
        (SweepRequest(operations=("gemm",), params={"M": (0,)}), "M"),
        (SweepRequest(operations=("gemm",), params={"M": (-5,)}), "-5"),
        (SweepRequest(operations=("gemm",), params={"M": (2**40,), "N": (2**40,)}), "gemm"),
        (SweepRequest(operations=("gemm",), params={"M": (2**70,)}), "64 bits"),
        (SweepRequest(operations=("attention_decode",), params={"num_heads": (7,), "num_kv_heads": (2,)}), "num_heads"),
        (SweepRequest(operations=("gemm",), variants=("flsh",)), "unknown variant on cpu 'flsh'"),
        (SweepRequest(operations=("gemm",), seq_lengths=(5,)), "has neither seq_len nor kv_len"),
        (SweepRequest(operations=("gemm",), caches=("warm",)), "unknown cache 'warm'"),
        (SweepRequest(seed=-1), "seed is -1"),
    ],
)
def test_bad_requests_name_the_argument_and_what_is_allowed(request_: SweepRequest, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        plan.make_plan(request_, "cpu")
