"""How often the 95 % confidence interval of a whole measurement holds the true median, by simulation: the code of
csrc/measure, stop rule and all, on a toy clock whose launches resemble their neighbors, have two modes, or drift.

    python3 tests/benchmarks/coverage.py [--csrc DIR] [--trials 300]

--csrc takes another tree's C sources (git archive REVISION csrc | tar x -C DIR), to compare the two. Every cell says:
intervals that held the median, % / measurements that converged, % / samples, mean.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from common import show, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from compiled import ROOT, clean_environment, compile_checks

CORRELATIONS = (0.0, 0.5, 0.7, 0.9)
STICKY = (0.97, 0.99, 0.997)  # of states that last for 33, 100 and 333 samples, besides
NOISES = (0.0005, 0.002, 0.005, 0.01, 0.02, 0.05)
LAUNCHES_MS = (1.25, 20.0)
SECONDS = 2.0
MODELS = {
    "steady": "normal samples",
    "bimodal": "7 of 10 samples fast, the others 4 times the noise slower",
    "drifting": "normal samples about a line that climbs by 4 times the noise in that time; its middle is asked for",
}


def cell(program: Path, model: str, launch_ms: float, correlation: float, noise: float, trials: int) -> str:
    asked = [model, correlation, noise, launch_ms, SECONDS, trials, 1]
    done = subprocess.run(
        [str(program), "--coverage", *map(str, asked)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    held, converged, _, samples, _ = map(float, done.stdout.split())
    return f"{100 * held / trials:.0f} / {100 * converged / trials:.0f} / {samples:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csrc", type=Path, default=ROOT / "csrc")
    parser.add_argument("--trials", type=int, default=300)
    parsed = parser.parse_args()
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    with tempfile.TemporaryDirectory() as folder:
        program = compile_checks(parsed.csrc.resolve(), Path(folder), compiler, ["-O2"])
        show(f"{parsed.trials} measurements a cell, of {SECONDS:g} s at most, to +-0.5 %")
        for model, text in MODELS.items():
            for launch_ms in LAUNCHES_MS:
                rows = [
                    [
                        f"correlation {correlation:g}",
                        *(cell(program, model, launch_ms, correlation, noise, parsed.trials) for noise in NOISES),
                    ]
                    for correlation in (*CORRELATIONS, *(STICKY if model == "bimodal" else ()))
                ]
                heads = ["", *(f"noise {100 * noise:g} %" for noise in NOISES)]
                table(f"{model}: {text}; {launch_ms:g} ms a launch", heads, rows)


if __name__ == "__main__":
    main()
