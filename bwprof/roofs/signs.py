"""Signs in a measurement's result that something else used the device meanwhile."""

from __future__ import annotations

from typing import Any

NOISY_WAITED = 0.02  # of the sampling time
NOISY_STOLEN = 0.05
NOISY_PRESSED = 0.01
NOISY_SLOWED = 0.10  # most reference streams; where nobody disturbs them they differ by about half of that


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
