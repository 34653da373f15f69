"""How long a run takes, by an estimate."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy_roofs

from bwprof import _core, hardware
from bwprof.cli.commands.sweep import main_sweep
from bwprof.roofs import store
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop


def test_an_estimate_has_roofs_and_second_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases of 10 to 20 s on a CPU, whose streams take 6 s cold and 1.8 s hot; 2 s for the start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    facts = hardware.facts(_core.Device("cpu"))

    def whole(wanted: RoofRequest | None) -> tuple[float, float]:
        return loop.estimate_run((10.0, 20.0), facts, "cpu", wanted)

    assert whole(RoofRequest()) == pytest.approx((19.0, 34.0))
    assert whole(RoofRequest(hot=True)) == pytest.approx((20.8, 35.8))
    assert whole(None) == (12.0, 27.0)
    store.save(store.identity("cpu", facts), own_roofs(facts))
    assert whole(RoofRequest()) == pytest.approx((12.5, 34.0)), "a look at the stored ones may do"
    assert whole(RoofRequest(hot=True)) == pytest.approx((20.8, 35.8)), "there are no hot ones"
    assert whole(RoofRequest(recalibrate=True)) == pytest.approx((19.0, 34.0))
    one = ["stream_copy", "-p", "elements=1Mi", "--precision", "fp32", "--device", "cpu", "--dry-run"]
    seen = []
    for more in ([], ["--no-roofs"], ["--recalibrate"]):
        assert main_sweep([*one, *more]) == 0
        printed = capsys.readouterr()
        assert "left aside" not in printed.err
        seen.append(float(re.search(r"about ([\d.]+) (m?s)", printed.out)[1]))  # type: ignore[index]
    assert seen[0] == pytest.approx(seen[2] - 3.25, abs=0.1), "7 s instead of 0.5, of which half counts"
    assert seen[0] > seen[1] + 3


@pytest.mark.parametrize(("more", "named"), [([], "roofs and second tries"), (["--no-roofs"], "second tries")])
def test_an_estimate_names_roofs_and_second_tries(
    more: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_sweep(["gemm", "-p", "M=1", "--device", "cpu", "--dry-run", *more]) == 0
    found = re.search(r"about .*? \(.*?\), with (.*) \(memory", capsys.readouterr().out)
    assert found is not None
    assert found[1] == named


def own_roofs(facts: dict[str, Any]) -> Roofs:
    """Of this machine, by name."""
    return replace(toy_roofs.ROOFS, device=facts["name"], device_uuid=facts["uuid"], driver=facts["driver"])
