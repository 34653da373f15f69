"""Builds bwprof._core and libbwprof.so from csrc/: C with the C compiler, CUDA with nvcc where there is one.

Environment:
  BWPROF_CUDA=auto|1|0       auto (default): CUDA is compiled in when nvcc is found; 1: it must be; 0: CPU only
  BWPROF_CUDA_ARCHS=90a,100  GPU architectures instead of the default list
  BWPROF_WERROR=1            warnings are errors
  BWPROF_SANITIZE=address,undefined
  CUDA_HOME, CUDA_PATH       where to look for nvcc first;  CC, CFLAGS, LDFLAGS  as usual

Objects live under build/: what knows neither CUDA nor Python in one folder for all, the rest in one per configuration.
An object is fresh when the same command and compiler made it and nothing that it includes is newer.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, OptionError, PlatformError

ROOT = Path(__file__).resolve().parent
C_FOLDERS = ("base", "ops", "backend", "measure", "cpu", "python", "api")
# What the module has and the library has not, and the other way round.
MODULE_FOLDER, LIBRARY_FOLDER = Path("csrc/python"), Path("csrc/api")
LIBRARY = "libbwprof.so"
LIBRARY_PLACE = Path("lib", LIBRARY)  # beside the module; in the folder itself it would pass for one
INCLUDE_FOLDER = "bwprof/include"  # of the library's users
SUITES_FOLDER = Path("bwprof/suites")
SIMD_FOLDER = Path("csrc/cpu/simd")
CUDA_FOLDER = Path("csrc/cuda")
ISA_HEADER = Path("csrc/cpu/isa.h")
CUDA_SUFFIXES = (".cu", ".cpp", ".cc")
# Cards of 8.9 run 8.6's code: code of their own would be the same instructions (*_fp8.cu apart).
DEFAULT_ARCHS = ("80", "86", "90a", "100", "120")
OLDEST_ARCH = "80"  # for which sources are compiled; what comes out (PTX) is assembled for each architecture
SM90_ARCH = "90a"  # of files *_sm90.cu
FP8_ARCH = "89"  # the oldest that converts FP8; of files *_fp8.cu
OLDEST_CUDA = (12, 0)
SANITIZERS = ("address", "undefined", "thread", "leak")


def say(text: str) -> None:
    print(f"bwprof: {text}", flush=True)


def run_tool(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler or a linker in the project's root; both of its streams are the result's stdout."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def first_line(command: list[str]) -> str:
    """The first line that a `--version` prints; what identifies a compiler."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlatformError(f"{shlex.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip().splitlines()[0]


def sources_under(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)


@dataclass(frozen=True)
class Isa:
    """A line of csrc/cpu/isa.h: the files under csrc/cpu/simd are compiled once for each."""

    name: str
    machine: str
    flags: tuple[str, ...]


def all_isas() -> list[Isa]:
    """The lines X(<isa>, <machine or any>, "<flags>") of csrc/cpu/isa.h."""
    header = ROOT / ISA_HEADER
    if not header.exists():
        return []
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
    rows = re.findall(r'\bX\(\s*(\w+)\s*,\s*(\w+)\s*,\s*"([^"]*)"', text)
    return [Isa(name, machine, tuple(flags.split())) for name, machine, flags in rows]


def read_isas() -> list[Isa]:
    """Those that this machine's architecture takes."""
    return [isa for isa in all_isas() if isa.machine in ("any", platform.machine())]


def isas_of(source: Path, offered: list[Isa]) -> list[Isa]:
    """What a file of csrc/cpu/simd is compiled for: `gemm_avx512.c` for avx512 alone, `gemm.c` for each."""
    own = source.stem.rpartition("_")[2]
    if own not in {isa.name for isa in all_isas()}:
        return offered
    return [isa for isa in offered if isa.name == own]


@dataclass(frozen=True)
class Cuda:
    """The CUDA toolkit in use, or why there is none (nvcc is None)."""

    reason: str
    nvcc: Path | None = None
    version: str = ""
    identity: str = ""
    archs: tuple[str, ...] = ()
    oldest: str = ""
    keeps_ptx: bool = False
    includes: tuple[str, ...] = ()
    cudart: str = ""


def find_nvcc() -> Path | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    candidates = [Path(home, "bin", "nvcc") for home in homes if home]
    on_path = shutil.which("nvcc")
    if on_path:
        candidates.append(Path(on_path))
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def ask_nvcc(nvcc: Path, *arguments: str) -> str:
    """What nvcc answers; its failure is an error, because a silent CPU-only build would be a surprise."""
    done = subprocess.run([str(nvcc), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlatformError(
            f"{nvcc} {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}\n"
            "Repair the CUDA toolkit, or build without CUDA: BWPROF_CUDA=0"
        )
    return done.stdout + done.stderr


def choose_archs(nvcc: Path) -> tuple[tuple[str, ...], str, bool]:
    """The architectures to assemble code for, the one to compile for, and whether its PTX is kept for newer GPUs."""
    offered = re.findall(r"sm_(\w+)", ask_nvcc(nvcc, "--list-gpu-code"))

    def available(arch: str) -> bool:
        # nvcc lists sm_90 and means sm_90a (and, from 12.9, sm_100f) too.
        return arch in offered or arch.rstrip("af") in offered

    def oldest_of(archs: tuple[str, ...]) -> str:
        return OLDEST_ARCH if available(OLDEST_ARCH) else min((arch.rstrip("af") for arch in archs), key=int)

    asked = os.environ.get("BWPROF_CUDA_ARCHS", "").strip()
    if not asked:
        archs = tuple(arch for arch in DEFAULT_ARCHS if available(arch))
        if not archs:
            raise PlatformError(f"{nvcc} offers none of {', '.join(DEFAULT_ARCHS)}; build without CUDA: BWPROF_CUDA=0")
        return archs, oldest_of(archs), True
    archs = tuple(dict.fromkeys(word for word in re.split(r"[,;\s]+", asked) if word))
    for arch in archs:
        if not re.fullmatch(r"[1-9]\d{1,2}[af]?", arch):
            raise OptionError(f"BWPROF_CUDA_ARCHS: '{arch}' is no architecture; write a list such as 80,90a,120")
        if not available(arch):
            raise OptionError(f"BWPROF_CUDA_ARCHS: {nvcc} does not offer '{arch}'; it offers {', '.join(offered)}")
    return archs, oldest_of(archs), False


def arch_flags(source: Path, cuda: Cuda) -> list[str]:
    """What nvcc compiles a file for. No source looks at which architecture it is compiled for, so that all of them are
    assembled from the PTX of the oldest: compiling is half of the work, and it is done once. A card's code is then
    the same whatever else a build is for. A file's name may ask for other architectures than the build's; it is never
    left out, because the tables of variants name what it defines."""
    archs, oldest, keeps_ptx = cuda.archs, cuda.oldest, cuda.keeps_ptx
    if source.stem.endswith("_sm90"):  # instructions that no other architecture has, newer ones included
        archs, oldest, keeps_ptx = (SM90_ARCH,), SM90_ARCH, False
    if source.stem.endswith("_fp8"):
        archs = tuple(dict.fromkeys(arch if is_from(FP8_ARCH, arch) else FP8_ARCH for arch in archs))
        oldest = oldest if is_from(FP8_ARCH, oldest) else FP8_ARCH
    # What "100f" adds takes instructions that only its own compiler's PTX has; without them its code is that for 100.
    codes = [*dict.fromkeys(f"sm_{arch.rstrip('f')}" for arch in archs), *([f"compute_{oldest}"] if keeps_ptx else [])]
    return ["-gencode", f"arch=compute_{oldest},code=[{','.join(codes)}]"]


def is_from(oldest: str, arch: str) -> bool:
    return int(arch.rstrip("af")) >= int(oldest)


def find_toolkit_files(nvcc: Path) -> tuple[tuple[str, ...], str]:
    """Include folders and libcudart_static.a, as nvcc itself would use them."""
    plan = ask_nvcc(nvcc, "--dryrun", "--cudart", "static", "-shared", "-o", "none", "none.cu")
    variables = dict(re.findall(r"^#\$ (INCLUDES|LIBRARIES|SYSTEM_INCLUDES)=(.*)$", plan, flags=re.MULTILINE))
    words = [word for value in variables.values() for word in shlex.split(value)]
    words = [part for word in words for part in shlex.split(word)]
    top = nvcc.resolve().parent.parent
    target = f"targets/{'sbsa' if platform.machine() == 'aarch64' else platform.machine()}-linux"
    includes = [word[2:] for word in words if word.startswith("-I")]
    includes += [str(top / "include"), str(top / target / "include"), "/usr/include"]
    folders = [word[2:] for word in words if word.startswith("-L")]
    folders += [str(top / name) for name in ("lib64", "lib", f"{target}/lib")]
    folders.append(f"/usr/lib/{platform.machine()}-linux-gnu")
    include = next((path for path in includes if Path(path, "cuda_runtime.h").exists()), None)
    cudart = next((path for path in folders if Path(path, "libcudart_static.a").exists()), None)
    missing = "cuda_runtime.h" if include is None else "libcudart_static.a"
    if include is None or cudart is None:
        raise PlatformError(
            f"the CUDA toolkit of {nvcc} has no {missing}\nInstall its development files, or build without CUDA: "
            "BWPROF_CUDA=0"
        )
    # /usr/include is searched anyway, and must not move to the front.
    folders = [] if include == "/usr/include" else [str(Path(include).resolve())]
    return tuple(folders), str(Path(cudart, "libcudart_static.a").resolve())


def decide_cuda() -> Cuda:
    mode = os.environ.get("BWPROF_CUDA", "").strip() or "auto"
    if mode not in ("auto", "1", "0"):
        raise OptionError(f"BWPROF_CUDA is '{mode}': allowed are auto, 1, 0")
    if mode == "0":
        return Cuda("BWPROF_CUDA=0 was set when bwprof was built")
    if not sources_under(CUDA_FOLDER, CUDA_SUFFIXES):
        return Cuda("the source tree has no csrc/cuda")
    nvcc = find_nvcc()
    if nvcc is None:
        looked = "nvcc was not found in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda"
        if mode == "1":
            raise PlatformError(f"BWPROF_CUDA=1, but {looked}")
        return Cuda(f"{looked} when bwprof was built")
    text = ask_nvcc(nvcc, "--version")
    match = re.search(r"release (\d+)\.(\d+)(?:, V([\d.]+))?", text)
    if match is None:
        raise PlatformError(f"{nvcc} --version is not understood: {text!r}; build without CUDA: BWPROF_CUDA=0")
    if (int(match[1]), int(match[2])) < OLDEST_CUDA:
        raise PlatformError(
            f"{nvcc} is CUDA {match[1]}.{match[2]}; bwprof needs {OLDEST_CUDA[0]}.{OLDEST_CUDA[1]} or newer. "
            "Set CUDA_HOME to a newer toolkit, or build without CUDA: BWPROF_CUDA=0"
        )
    archs, oldest, keeps_ptx = choose_archs(nvcc)
    includes, cudart = find_toolkit_files(nvcc)
    version = match[3] or f"{match[1]}.{match[2]}"
    identity = " ".join(text.split())
    return Cuda(f"nvcc {version} at {nvcc}", nvcc, version, identity, archs, oldest, keeps_ptx, includes, cudart)


@dataclass(frozen=True)
class Job:
    """One object: `command` decides its freshness together with `identity`."""

    source: Path
    folder: Path
    output: Path
    command: tuple[str, ...]
    identity: str
    weight: int = 0  # of an nvcc job: the file's size; 0 for C

    @property
    def record(self) -> Path:
        return self.output.with_suffix(".command")

    @property
    def dependencies(self) -> Path:
        return self.output.with_suffix(".d")

    def signature(self) -> str:
        return self.identity + "\n" + shlex.join(self.command) + "\n"

    def fresh(self) -> bool:
        try:
            if self.record.read_text() != self.signature():
                return False
            made = self.output.stat().st_mtime_ns
            listed = self.dependencies.read_text().replace("\\\n", " ").partition(": ")[2]
            return all(os.stat(ROOT / name).st_mtime_ns <= made for name in shlex.split(listed))
        except OSError:
            return False

    def compile(self, threads: int) -> tuple[float, str]:
        """Makes the object; returns the seconds it took and what the compiler had to say. nvcc can take several
        architectures at a time."""
        started = time.monotonic()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)
        done = run_tool([*self.command, *(["--threads", str(threads)] if self.weight else [])])
        if done.returncode:
            raise CompileError(f"{shlex.join(self.command)}\n{done.stdout}")
        self.record.write_text(self.signature())
        return time.monotonic() - started, done.stdout.strip()


@dataclass
class Plan:
    """Every command of one configuration."""

    version: str
    cuda: Cuda
    isas: list[Isa] = field(default_factory=read_isas)
    werror: bool = field(default_factory=lambda: os.environ.get("BWPROF_WERROR", "0") not in ("", "0"))
    sanitize: str = field(default_factory=lambda: os.environ.get("BWPROF_SANITIZE", "").strip())
    compiler: list[str] = field(default_factory=list)
    identity: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.sanitize.split(",") if name and name not in SANITIZERS]
        if unknown:
            raise OptionError(f"BWPROF_SANITIZE: unknown '{unknown[0]}': allowed are {', '.join(SANITIZERS)}")
        self.compiler = shlex.split(os.environ.get("CC", "")) or self.find_compiler()
        self.identity = first_line([*self.compiler, "--version"])

    @staticmethod
    def find_compiler() -> list[str]:
        configured = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
        for name in [*configured, "cc", "gcc", "clang"]:
            if shutil.which(name):
                return [name]
        raise PlatformError("no C compiler: install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC")

    @property
    def folder(self) -> Path:
        return self.folder_of("cuda" if self.cuda.nvcc else "cpu", platform.machine(), sys.implementation.cache_tag)

    @property
    def shared(self) -> Path:
        """Of objects that are the same in every configuration."""
        return self.folder_of("c", platform.machine())

    def folder_of(self, *parts: str) -> Path:
        return Path("build", "-".join([*parts, *([self.sanitize.replace(",", "-")] if self.sanitize else [])]))

    def c_flags(self) -> list[str]:
        flags = ["-std=c11", *self.host_flags(), "-pthread", "-D_GNU_SOURCE", "-Icsrc"]
        flags += ["-O1"] if self.sanitize else ["-O3", "-DNDEBUG"]
        return flags + (["-Werror"] if self.werror else [])

    def host_flags(self) -> list[str]:
        """List the flags of every compilation for the host; none has a comma, at which nvcc divides them."""
        flags = ["-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
        if self.sanitize:
            flags += ["-g", "-fno-omit-frame-pointer", *(f"-fsanitize={name}" for name in self.sanitize.split(","))]
            flags += ["-fno-sanitize-recover=undefined"] if "undefined" in self.sanitize else []
        return flags

    def c_job(self, source: Path, folder: Path, extra: list[str], tag: str = "") -> Job:
        output = folder / source.relative_to("csrc").with_suffix(f"{tag}.o")
        command = [*self.compiler, *self.c_flags(), *extra, *shlex.split(os.environ.get("CFLAGS", ""))]
        command += ["-MMD", "-MF", str(output.with_suffix(".d")), "-c", str(source), "-o", str(output)]
        return Job(source, folder, output, tuple(command), self.identity)

    def cuda_job(self, source: Path) -> Job:
        output = self.folder / source.relative_to("csrc").with_suffix(source.suffix + ".o")
        # -O is of host code alone, which here chooses what C launches.
        command = [str(self.cuda.nvcc), "-std=c++17", "-O1", "-Icsrc", "-DNDEBUG"]
        if os.environ.get("CXX"):
            command += ["-ccbin", os.environ["CXX"]]
        if self.werror:
            command += ["-Werror", "all-warnings"]
        # Toolkits keep CUPTI's headers beside the others, or here.
        cupti = self.cuda.nvcc.resolve().parent.parent / "extras/CUPTI/include" if self.cuda.nvcc else None
        if cupti and cupti.is_dir():
            command += ["-isystem", str(cupti)]
        command += arch_flags(source, self.cuda)
        command += ["-Xcompiler", ",".join(self.host_flags()), "-MMD", "-MF", str(output.with_suffix(".d"))]
        command += ["-c", str(source), "-o", str(output)]
        weight = (ROOT / source).stat().st_size
        return Job(source, self.folder, output, tuple(command), self.cuda.identity, weight)

    def jobs(self) -> list[Job]:
        """All objects, the slowest first: CUDA before C, big files before small ones."""
        python_folders = dict.fromkeys([sysconfig.get_path("include"), sysconfig.get_path("platinclude")])
        info = f"-I{self.folder}"  # where build_info.h is
        own = {"python": [info, *(f"-I{path}" for path in python_folders)], "api": [info, f"-I{INCLUDE_FOLDER}"]}
        own["backend"] = [info, f"-DBW_WITH_CUDA={int(self.cuda.nvcc is not None)}"]
        jobs = []
        for name in C_FOLDERS:
            for source in sources_under(Path("csrc", name), (".c",)):
                if source.is_relative_to(SIMD_FOLDER):
                    jobs += [
                        self.c_job(source, self.shared, [f"-DBW_ISA={isa.name}", *isa.flags], f".{isa.name}")
                        for isa in isas_of(source, self.isas)
                    ]
                else:
                    folder = self.folder if name in own else self.shared
                    jobs.append(self.c_job(source, folder, own.get(name, [])))
        if self.cuda.nvcc:
            includes = [f"-isystem{path}" for path in self.cuda.includes]
            jobs += [self.c_job(source, self.folder, includes) for source in sources_under(CUDA_FOLDER, (".c",))]
            jobs += [self.cuda_job(source) for source in sources_under(CUDA_FOLDER, CUDA_SUFFIXES)]
        return sorted(jobs, key=lambda job: -job.weight)

    def link_command(self, jobs: list[Job], target: Path) -> list[str]:
        """The module's, or the library's: both of the same objects, but for a folder of their own."""
        is_library = target.name == LIBRARY
        left_out = MODULE_FOLDER if is_library else LIBRARY_FOLDER
        objects = sorted(str(job.output) for job in jobs if not job.source.is_relative_to(left_out))
        command = [*self.compiler, "-shared", "-pthread", *objects, "-o", str(target)]
        command += ["-Wl,--exclude-libs,ALL", "-Wl,--as-needed", "-Wl,-z,relro,-z,now"]
        # Python's own symbols are found when the module is loaded; ours must be here: see missing_definitions.
        # A library that was closed stays: threads of a device that is still open run in it.
        own = [f"-Wl,-soname,{LIBRARY}", "-Wl,-z,nodelete"] if is_library else ["-Wl,--warn-unresolved-symbols"]
        command += ["-Wl,-z,defs", *own]
        if self.sanitize:
            command += [f"-fsanitize={self.sanitize}"]
        if self.cuda.nvcc:
            command += [self.cuda.cudart, *self.static_cxx(), "-static-libgcc", "-ldl", "-lrt", "-lpthread"]
        return [*command, "-lm", *shlex.split(os.environ.get("LDFLAGS", ""))]

    def link(self, jobs: list[Job], target: Path) -> None:
        # A new file, not the old one rewritten: a running process may have that mapped.
        target.unlink(missing_ok=True)
        command = self.link_command(jobs, target)
        done = run_tool(command)
        missing = missing_definitions(done.stdout)
        if missing:
            target.unlink(missing_ok=True)
            raise CompileError(f"nothing under csrc/ defines {', '.join(missing)}")
        if done.returncode:
            raise CompileError(f"linking failed: {shlex.join(command)}\n{done.stdout}")
        say(f"linked {target.name}")

    def static_cxx(self) -> list[str]:
        """libstdc++ as an archive, so that the module needs no copy of the user's; shared where there is no archive."""
        done = subprocess.run(
            [*self.compiler, "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=False
        )
        archive = Path(done.stdout.strip())
        return [str(archive)] if archive.is_absolute() else ["-lstdc++"]

    def write_info(self) -> None:
        """build_info.h: what was decided, for the module to tell; rewritten only when it changes."""
        values = {
            "VERSION": self.version,
            "CUDA": int(self.cuda.nvcc is not None),
            "CUDA_REASON": self.cuda.reason,
            "CUDA_VERSION": self.cuda.version,
            "CUDA_ARCHS": " ".join([*self.cuda.archs, *([f"ptx{self.cuda.oldest}"] if self.cuda.keeps_ptx else [])]),
            "COMPILER": self.identity,
            "ISAS": " ".join(isa.name for isa in self.isas),
        }
        text = "/* Written by setup.py. */\n"
        text += "".join(f"#define BW_BUILD_{name} {json.dumps(value)}\n" for name, value in values.items())
        rewrite(ROOT / self.folder / "build_info.h", text)

    def write_suites(self) -> None:
        """suite_table.h: the suites of bwprof/suites, for the library, which has no reader of TOML."""
        rewrite(ROOT / self.folder / "suite_table.h", suite_table(sorted((ROOT / SUITES_FOLDER).glob("*.toml"))))


def rewrite(header: Path, text: str) -> None:
    """A header in the build's folder; left alone where it says the same, so that nothing is compiled again."""
    header.parent.mkdir(parents=True, exist_ok=True)
    if not header.exists() or header.read_text() != text:
        header.write_text(text)


def texts(values: list[str] | str | None) -> str:
    """A list of csrc/api/benchmark/suites.h in C; what says nothing is NULL."""
    if values is None:
        return "NULL"
    listed = [values] if isinstance(values, str) else values
    return "(const char *const[]){" + ", ".join([*map(json.dumps, listed), "NULL"]) + "}"


def numbers(values: list[int]) -> str:
    return "(const int64_t[]){" + ", ".join([*map(str, values), "0"]) + "}"


def suite_cases(entry: dict[str, Any], spread: Any) -> list[str]:
    """An entry's rows of bw_suite_case, one for each combination of its parameters."""
    axes = {
        name: spread(value if isinstance(value, list) else [value], name)
        for name, value in entry.get("params", {}).items()
    }
    lengths = spread(entry["kv_lens"], "kv_lens") if "kv_lens" in entry else []
    several = [name for name, values in axes.items() if len(set(values)) > 1]
    rows = []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        name = " ".join([entry.get("name", entry["operation"]), *(f"{axis}={point[axis]}" for axis in several)])
        cells = [json.dumps(name), json.dumps(entry["operation"]), texts(list(point)), numbers([*map(int, values)])]
        cells += [numbers(lengths) if lengths else "NULL", str(len(lengths))]
        cells += [texts(entry.get(key)) for key in ("precisions", "variants", "backends", "cache")]
        rows.append("{" + ", ".join(cells) + "}")
    return rows


def suite_table(paths: list[Path]) -> str:
    """The array bw_suites of csrc/api/benchmark/suites.h out of TOML files."""
    if not paths:
        return "/* Written by setup.py: there are no suites. */\n"
    spec = importlib.util.spec_from_file_location("bwprof_text", ROOT / "bwprof/text.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # how sizes are written, without what is not built yet
    rows = []
    for path in paths:
        suite = tomllib.loads(path.read_text("utf-8-sig"))
        cases = [row for entry in suite["case"] for row in suite_cases(entry, module.spread)]
        on = [
            "{" + f"{json.dumps(backend)}, {texts(there.get('precisions'))}, {there.get('target_seconds', 0)}" + "}"
            for backend, there in suite.get("on", {}).items()
        ]
        precisions = texts(suite.get("precisions", ["fp32", "fp16"]))
        rows.append(
            f"    {{{json.dumps(path.stem)}, {precisions}, {suite.get('target_seconds', 0)},\n"
            f"     (const bw_suite_on[]){{{', '.join([*on, '{NULL, NULL, 0}'])}}},\n"
            "     (const bw_suite_case[]){\n        " + ",\n        ".join(cases) + f"}}, {len(cases)}}},\n"
        )
    return "/* Written by setup.py. */\nstatic const bw_suite bw_suites[] = {\n" + "".join(rows) + "};\n"


def missing_definitions(linker_said: str) -> list[str]:
    """Names of ours that nothing defines, such as the kernel table of a new operation."""
    return sorted(set(re.findall(r"undefined (?:reference to|symbol:) \W*(bw_\w+)", linker_said)))


def compile_all(jobs: list[Job], force: bool) -> None:
    stale = [job for job in jobs if force or not job.fresh()]
    say(f"{len(stale)} of {len(jobs)} objects to compile")
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // max(1, sum(job.weight > 0 for job in stale)))
    with ThreadPoolExecutor(cores) as pool:
        futures = {pool.submit(job.compile, threads): job for job in stale}
        try:
            for future in as_completed(futures):
                seconds, said = future.result()
                source = futures[future].output.relative_to(futures[future].folder)
                say(f"  {source} {seconds:.1f} s" + (f"\n{said}" if said else ""))
        except CompileError as error:
            pool.shutdown(cancel_futures=True)
            source = futures[future].source
            hint = "" if source.suffix == ".c" else "\nTo build without CUDA: BWPROF_CUDA=0"
            raise CompileError(f"{source} does not compile:\n{error}{hint}") from None
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class BuildCore(build_ext):
    """Compiles and links bwprof._core; setuptools then puts it where the kind of install wants it."""

    description: ClassVar[str] = "compile bwprof._core with cc and, where there is one, nvcc"

    def build_extension(self, ext: Extension) -> None:
        if sys.platform != "linux":
            raise PlatformError(
                f"bwprof is built for Linux (x86-64, aarch64), and this is {sys.platform}: build it in a Linux "
                "container, virtual machine or WSL 2"
            )
        plan = Plan(self.distribution.get_version(), decide_cuda())
        say(f"CUDA {'on' if plan.cuda.nvcc else 'off'}: {plan.cuda.reason}")
        if plan.cuda.nvcc:
            ptx = f", PTX for {plan.cuda.oldest}" if plan.cuda.keeps_ptx else ""
            say(f"architectures: {' '.join(plan.cuda.archs)}{ptx}")
        plan.write_info()
        plan.write_suites()
        jobs = plan.jobs()
        compile_all(jobs, bool(self.force))
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        plan.link(jobs, target)
        if (ROOT / LIBRARY_FOLDER).is_dir():
            library = target.parent / LIBRARY_PLACE
            library.parent.mkdir(exist_ok=True)
            plan.link(jobs, library)

    def copy_extensions_to_source(self) -> None:
        """The library lies beside the module in the source tree, too."""
        super().copy_extensions_to_source()
        for built, kept in self.library_files().items():
            Path(kept).parent.mkdir(exist_ok=True)
            self.copy_file(built, kept)

    def library_files(self) -> dict[str, str]:
        """Where the library is built -> where it lies in the source tree; of builds that have one."""
        if not (ROOT / LIBRARY_FOLDER).is_dir():
            return {}
        return {str(Path(self.build_lib, "bwprof", LIBRARY_PLACE)): str(Path("bwprof", LIBRARY_PLACE))}

    def get_outputs(self) -> list[str]:
        found = super().get_outputs()  # in place, the mapping's
        return found if self.inplace else [*found, *self.library_files()]

    def get_output_mapping(self) -> dict[str, str]:
        return super().get_output_mapping() | (self.library_files() if self.inplace else {})


def all_sources() -> list[str]:
    """For the sdist's file list; what is compiled is decided by Plan."""
    found = [path for name in C_FOLDERS for path in sources_under(Path("csrc", name), (".c",))]
    found += sources_under(CUDA_FOLDER, (".c", *CUDA_SUFFIXES))
    return [path.as_posix() for path in found]


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(
        license="Apache-2.0",
        ext_modules=[Extension("bwprof._core", all_sources())],
        cmdclass={"build_ext": BuildCore},
    )
