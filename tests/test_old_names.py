"""Names of the version before: each works, and says what it is called now."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import pair

import bwprof
from bwprof.measuring import contexts
from bwprof.renamed import renamed
from bwprof.results import frame
from bwprof.roofs import Wanted

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "roofs": False}
TINY: dict[str, Any] = {"M": 1, "N": 8, "K": 8, "precision": "fp32", **QUICK}


def case() -> bwprof.Case:
    return bwprof.Case("gemm", M=1, N=8, K=8, device="cpu")


def measured(**options: Any) -> bwprof.Row:
    with case() as opened:
        return opened.measure(cache="hot", **{"max_seconds": 0.02, **options})


def verified(**options: Any) -> dict[str, Any]:
    with case() as opened:
        return opened.verify(**options)


def of_function(**options: Any) -> bwprof.Row:
    return bwprof.measure(lambda: None, **{**QUICK, "max_seconds": 0.02, **options})


def old_summary() -> Any:
    return bwprof.summary(frame.from_rows(pair("a", 1.0, 0.8)))


def imported() -> Any:
    from bwprof import Measurement

    return Measurement


OLD: list[tuple[Callable[[], Any], str]] = [
    (lambda: bwprof.sweep("gemm", **TINY, max_time=20), "max_time= is now max_total_seconds="),
    (lambda: bwprof.sweep(lambda: None, **QUICK, max_time=20), "max_time= is now max_total_seconds="),
    (lambda: measured(precision_target=0.5), "precision_target= is now rel_ci="),
    (lambda: measured(verify_budget_s=0.1), "verify_budget_s= is now verify_seconds="),
    (lambda: verified(budget_s=0.1), "budget_s= is now max_seconds="),
    (lambda: measured(precision_target=1.5), "precision_target= is now rel_ci="),
    (lambda: of_function(precision_target=2), "precision_target= is now rel_ci="),
    (lambda: of_function(precision_target=0.5), "precision_target= is now rel_ci="),
    (lambda: of_function(roofs=True), "roofs=True is now roofs='auto'"),
    (lambda: of_function(roofs=None), "roofs=None is now roofs='stored'"),
    (lambda: bwprof.sweep("gemm", **{**TINY, "roofs": True}, max_total_seconds=1), "roofs=True is now roofs='auto'"),
    (lambda: bwprof.sweep(lambda: None, **{**QUICK, "roofs": None}), "roofs=None is now roofs='stored'"),
    (lambda: measured().details["timer"], "Row.details is now the row itself"),
    (imported, "bwprof.Measurement is now bwprof.Row"),
    (lambda: bwprof.Measurement, "bwprof.Measurement is now bwprof.Row"),
    (lambda: bwprof.summary(frame.from_rows(pair("a", 1.0, 0.8)))["time_speedup"], "is now column 'speedup_vs_fp32'"),
    (lambda: bwprof.summary(frame.from_rows(pair("a", 1.0, 0.8)))["byte_ratio"], "is now column 'byte_ratio_vs_fp32'"),
    (
        lambda: bwprof.summary(frame.from_rows(pair("a", 1.0, 0.8))).get("byte_ratio"),
        "is now column 'byte_ratio_vs_fp32'",
    ),
    (lambda: "time_speedup" in old_summary() or None, "now column 'speedup_vs"),
    (
        lambda: bwprof.summary(frame.from_rows(pair("a", 1.0, 0.8))).bandwidth_ratio,
        "column 'bandwidth_ratio' is now column 'bandwidth_vs_fp32'",
    ),
]


@pytest.mark.parametrize(("use", "said"), OLD, ids=[f"{number} {said}" for number, (_, said) in enumerate(OLD)])
def test_an_old_name_works_and_says_the_new_one(
    use: Callable[[], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Wanted] = []
    for module in (contexts, bwprof.roofs):  # None: there was no time for any
        monkeypatch.setattr(module, "obtain", lambda device, wanted, **_: asked.append(wanted))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = use()
    assert result is not None
    assert [(one.category, one.filename) for one in found] == [(DeprecationWarning, __file__)]
    assert said in str(found[0].message)
    assert [wanted.stored for wanted in asked] == ([False] if "'auto'" in said else [])


def test_old_names_do_what_the_new_ones_do() -> None:
    with pytest.warns(DeprecationWarning, match=" is now "):
        assert any(measured(precision_target=0.9, max_seconds=5.0).converged for _ in range(10))  # another's burst
    for wide in (1, 3.5, float("inf")):
        with pytest.warns(DeprecationWarning, match=" is now "):
            assert measured(precision_target=wide, max_seconds=30).converged
    data = frame.from_rows(pair("a", 100.0, 80.0))
    with pytest.warns(DeprecationWarning, match=" is now "):
        assert bwprof.summary(data)["time_speedup"].tolist() == pytest.approx([1.6])
    with pytest.warns(DeprecationWarning, match=" is now "):
        picked = bwprof.summary(data)[["case", "bandwidth_ratio"]]
    assert picked.columns.tolist() == ["case", "bandwidth_vs_fp32"]
    with pytest.warns(DeprecationWarning, match=" is now "):
        assert bwprof.Measurement is bwprof.Row
    row = measured()
    with pytest.warns(DeprecationWarning, match=" is now "):
        assert {"timer", "buffer_sets", "converged", "tolerance"} <= row.details.keys()


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match=r"sweep\(\) got max_total_seconds= and max_time=, its old name"):
        bwprof.sweep("gemm", **TINY, max_time=1, max_total_seconds=1)


def test_a_renamed_function_keeps_its_face() -> None:
    @renamed(a="b")
    def f(*, b: int) -> int:
        """Says what it does."""
        return b

    assert (f.__name__, f.__doc__, f(b=2)) == ("f", "Says what it does.", 2)


@pytest.mark.parametrize(
    ("old", "new"), [("--max-time", "--max-total-seconds"), ("--max-case-time", "--max-case-seconds")]
)
def test_old_options_of_the_command(here: Any, old: str, new: str) -> None:
    tiny = ["gemm", "--device", "cpu", "-p", "N=8", "-p", "K=8", "--cache", "hot", "--quiet"]
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        code, _, err = here(*tiny, old, "30")
    assert (code, err) == (0, f"bwprof: WARNING: {old} is now {new}\n")
    with pytest.warns(DeprecationWarning, match=" is now "):
        code, _, err = here(*tiny, old, "0")
    assert code == 2
    assert f"{new} is '0'" in err
    with pytest.warns(DeprecationWarning, match=" is now "):
        code, _, err = here(*tiny, old, "30", new, "40")
    assert code == 2
    assert f"{new} is given twice: '30' and '40'" in err
    code, out, _ = here("--help")
    assert code == 0
    assert new in out
    assert old not in out


def test_a_sweep_over_a_function_with_a_number_of_numpys() -> None:
    assert bwprof.sweep(lambda: None, **QUICK, max_seconds=np.float32(0.02))["status"].tolist() == ["ok"]
