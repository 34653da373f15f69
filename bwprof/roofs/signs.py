"""Signs in a measurement's result that something else used the device meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOISY_WAITED = 0.02  # of the sampling time
NOISY_STOLEN = 0.05
NOISY_PRESSED = 0.01
_MOST_SHARE = 0.99  # of which something can be told
NOISY_SLOWED = 0.10  # most reference streams; where nobody disturbs them they differ by about half of that


def prolonged_pct(result: Mapping[str, float]) -> float | None:
    """How much longer others may have made the launches take, in percent; None where nothing is known (a GPU).

    Where threads waited for a CPU for half of the time, what they did may have taken twice as long; likewise of each
    share, and all of them together.
    """
    shares = [result[f"{name}_share"] for name in ("waited", "stolen", "pressed")]
    known = [min(share, _MOST_SHARE) for share in shares if not math.isnan(share)]
    slowed = result["slowed_share"]
    if not known and math.isnan(slowed):
        return None
    longer = 1 + (0.0 if math.isnan(slowed) else max(slowed, 0.0))
    return 100 * (longer / math.prod(1 - share for share in known) - 1)


def disturbances(result: dict[str, Any]) -> list[str]:
    """What a measurement says of others (processes, the hypervisor's other guests) that used the CPUs meanwhile.

    A share that is not known is NaN, and above no limit.
    """
    waited, stolen = result["waited_share"], result["stolen_share"]
    pressed, slowed = result["pressed_share"], result["slowed_share"]
    found = []
    if waited > NOISY_WAITED:
        found.append(f"threads waited for a CPU {waited:.0%} of the time: something else runs on it")
    if stolen > NOISY_STOLEN:
        found.append(f"the hypervisor took the CPUs {stolen:.0%} of the time")
    if pressed > NOISY_PRESSED:
        found.append(f"processes waited for memory {pressed:.0%} of the time")
    if slowed > NOISY_SLOWED:
        found.append(
            f"a reference stream beside the samples took {slowed:.0%} longer than it can: others use the memory"
        )
    return found
