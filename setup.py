"""Build libbwprof.so and bwprof._core from csrc/: C with the C compiler, CUDA with nvcc where there is one.

The library has all objects but those of csrc/python. The module has those alone and links to the library beside it.

CONTRIBUTING.md lists the environment variables. Objects are under build/: those that depend on neither CUDA nor Python
in one folder, the rest in one per configuration. An object is fresh if the same command and compiler made it and no
file that it includes is newer.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, OptionError, PlatformError

ROOT = Path(__file__).resolve().parent
LIBRARY = "libbwprof"
CUDA_SUFFIXES = (".cu", ".cc")
# A card of 8.9 runs the code for 8.6: its own would be the same instructions, except in *_fp8.cu.
DEFAULT_ARCHS = ("80", "86", "90a", "100", "120")
OLDEST_ARCH = "80"  # sources are compiled for it; the PTX is assembled for each architecture
SM90_ARCH = "90a"  # of files *_sm90.cu
FP8_ARCH = "89"  # the oldest that converts FP8; of files *_fp8.cu
OLDEST_CUDA = (12, 0)
SIZE_CUDA = (13, 0)  # each of its drivers reads code that is compressed for size; drivers before 12.4 do not
BACKENDS = ("cuda", "cpu")  # whose cases of suites the library lists
SANITIZERS = ("address", "undefined", "thread", "leak")
WITHOUT_CUDA = "build without CUDA: BWPROF_CUDA=0"


def log(text: str) -> None:
    print(f"bwprof: {text}", flush=True)


def setting(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool in the project's root; stdout has both of its streams."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def output_of(*command: str, advice: str = "") -> str:
    done = run(*command)
    if done.returncode:
        raise PlatformError(f"{shlex.join(command)} failed: {done.stdout.strip()}{advice}")
    return done.stdout


def write_header(header: Path, text: str) -> None:
    """Write a file of the build's folder unless it has this text: objects that include it stay fresh."""
    header.parent.mkdir(parents=True, exist_ok=True)
    if not header.exists() or header.read_text() != text:
        header.write_text(text)


@dataclass(frozen=True)
class Isa:
    """An instruction set of csrc/cpu/isa.h; files under csrc/cpu/simd are compiled once for each."""

    name: str
    machine: str
    flags: tuple[str, ...]


def read_isas() -> list[Isa]:
    """Read the lines X(<isa>, <machine or any>, "<flags>") of csrc/cpu/isa.h."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (ROOT / "csrc/cpu/isa.h").read_text(), flags=re.DOTALL)
    rows = re.findall(r'\bX\(\s*(\w+)\s*,\s*(\w+)\s*,\s*"([^"]*)"', text)
    return [Isa(name, machine, tuple(flags.split())) for name, machine, flags in rows]


@dataclass(frozen=True)
class Cuda:
    """The CUDA toolkit in use; without nvcc, the reason why there is none."""

    reason: str
    nvcc: str = ""
    version: str = ""
    identity: str = ""
    archs: tuple[str, ...] = ()
    oldest: str = ""  # the architecture that sources are compiled for
    ptx: bool = False  # keep its PTX for GPUs that are newer than all of archs
    options: tuple[str, ...] = ()
    include: str = ""  # "": where the compiler looks anyway
    cudart: str = ""


def find_cuda() -> Cuda:
    mode = setting("BWPROF_CUDA", "auto")
    if mode not in ("auto", "1", "0"):
        raise OptionError(f"BWPROF_CUDA is '{mode}': allowed are auto, 1, 0")
    if mode == "0":
        return Cuda("BWPROF_CUDA=0 was set when bwprof was built")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    places = [*(f"{home}/bin/nvcc" for home in homes if home), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    nvcc = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if nvcc is None:
        absence = "nvcc was not found in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda"
        if mode == "1":
            raise PlatformError(f"BWPROF_CUDA=1, but {absence}")
        return Cuda(f"{absence} when bwprof was built")
    identity = " ".join(ask_nvcc(nvcc, "--version").split())
    match = re.search(r"release \d+\.\d+, V((\d+)\.(\d+)[\d.]*)", identity)
    if match is None:
        raise PlatformError(f"{nvcc} --version prints no release: {identity!r}; {WITHOUT_CUDA}")
    version, release = match[1], (int(match[2]), int(match[3]))
    if release < OLDEST_CUDA:
        oldest = ".".join(map(str, OLDEST_CUDA))
        advice = f"Set CUDA_HOME to a newer toolkit, or {WITHOUT_CUDA}"
        raise PlatformError(f"{nvcc} is CUDA {match[2]}.{match[3]}; bwprof needs {oldest} or newer. {advice}")
    options = ("--compress-mode=size",) if release >= SIZE_CUDA else ()
    reason = f"nvcc {version} at {nvcc}"
    return Cuda(reason, nvcc, version, identity, *choose_archs(nvcc), options, *find_toolkit_files(nvcc))


def ask_nvcc(nvcc: str, *arguments: str) -> str:
    """Run nvcc; its failure is an error, because a CPU-only build would be a surprise."""
    return output_of(nvcc, *arguments, advice=f"\nRepair the CUDA toolkit, or {WITHOUT_CUDA}")


def choose_archs(nvcc: str) -> tuple[tuple[str, ...], str, bool]:
    """Choose the architectures to assemble code for, the one to compile for, and whether to keep its PTX."""
    offered = re.findall(r"sm_(\w+)", ask_nvcc(nvcc, "--list-gpu-code"))

    def available(arch: str) -> bool:
        # For sm_90a, and from 12.9 for sm_100f, nvcc lists sm_90 and sm_100.
        return arch in offered or arch.rstrip("af") in offered

    requested = tuple(dict.fromkeys(re.findall(r"[^,;\s]+", setting("BWPROF_CUDA_ARCHS"))))
    for arch in requested:
        if not re.fullmatch(r"[1-9]\d{1,2}[af]?", arch):
            raise OptionError(f"BWPROF_CUDA_ARCHS: '{arch}' is no architecture; write a list such as 80,90a,120")
        if not available(arch):
            raise OptionError(f"BWPROF_CUDA_ARCHS: {nvcc} does not offer '{arch}'; it offers {', '.join(offered)}")
    archs = requested or tuple(filter(available, DEFAULT_ARCHS))
    if not archs:
        raise PlatformError(f"{nvcc} offers none of {', '.join(DEFAULT_ARCHS)}; {WITHOUT_CUDA}")
    oldest = OLDEST_ARCH if available(OLDEST_ARCH) else min((arch.rstrip("af") for arch in archs), key=int)
    return archs, oldest, not requested


def find_toolkit_files(nvcc: str) -> tuple[str, str]:
    """Find the folder of cuda_runtime.h and libcudart_static.a where nvcc itself looks for them."""
    plan = ask_nvcc(nvcc, "--dryrun", "--cudart", "static", "-shared", "-o", "none", "none.cu")
    values = re.findall(r"^#\$ (?:INCLUDES|LIBRARIES|SYSTEM_INCLUDES)=(.*)$", plan, flags=re.MULTILINE)
    words = [word for value in values for part in shlex.split(value) for word in shlex.split(part)]
    machine = platform.machine()
    top = Path(nvcc).resolve().parent.parent
    target = top / f"targets/{'sbsa' if machine == 'aarch64' else machine}-linux"

    def find(name: str, flag: str, *others: str | Path) -> Path:
        for folder in [*(word[2:] for word in words if word.startswith(flag)), *others]:
            if Path(folder, name).exists():
                return Path(folder)
        advice = f"Install its development files, or {WITHOUT_CUDA}"
        raise PlatformError(f"the CUDA toolkit of {nvcc} has no {name}\n{advice}")

    include = find("cuda_runtime.h", "-I", top / "include", target / "include", "/usr/include")
    folders = [top / "lib64", top / "lib", target / "lib", f"/usr/lib/{machine}-linux-gnu"]
    archive = find("libcudart_static.a", "-L", *folders) / "libcudart_static.a"
    # As an option, /usr/include would move before the compiler's own folders.
    return "" if include == Path("/usr/include") else str(include.resolve()), str(archive.resolve())


def arch_flags(source: Path, cuda: Cuda) -> list[str]:
    """List nvcc's flags for a file's architectures.

    No source depends on the architecture that it is compiled for, so nvcc compiles it once, for the oldest, and
    assembles that PTX for each. The code for a card is then the same in every build. A file's name may ask for other
    architectures than the build's. No file is left out, because the tables of variants name what it defines.
    """
    archs, oldest, ptx = cuda.archs, cuda.oldest, cuda.ptx
    if source.stem.endswith("_sm90"):  # instructions that no other architecture has, newer ones included
        archs, oldest, ptx = (SM90_ARCH,), SM90_ARCH, False
    if source.stem.endswith("_fp8"):
        archs = tuple(arch if int(arch.rstrip("af")) >= int(FP8_ARCH) else FP8_ARCH for arch in archs)
        oldest = max(oldest, FP8_ARCH, key=lambda arch: int(arch.rstrip("af")))
    # The instructions that "100f" adds to "100" are in its own PTX alone; without them the code is the same.
    codes = [*dict.fromkeys(f"sm_{arch.rstrip('f')}" for arch in archs), *([f"compute_{oldest}"] if ptx else [])]
    return ["-gencode", f"arch=compute_{oldest},code=[{','.join(codes)}]"]


@dataclass(frozen=True)
class Job:
    """An object to compile; the command and the compiler's identity decide whether it is fresh."""

    source: Path
    output: Path
    options: tuple[str, ...]
    identity: str

    @property
    def command(self) -> list[str]:
        dependencies = str(self.output.with_suffix(".d"))
        return [*self.options, "-MMD", "-MF", dependencies, "-c", str(self.source), "-o", str(self.output)]

    @property
    def cuda_size(self) -> int:
        """Bytes of a file for nvcc; 0 for C."""
        return 0 if self.source.suffix == ".c" else (ROOT / self.source).stat().st_size

    def record(self) -> tuple[Path, str]:
        """Return the file that says how the object was made, and its text."""
        return self.output.with_suffix(".command"), f"{self.identity}\n{shlex.join(self.command)}\n"

    def fresh(self) -> bool:
        record, text = self.record()
        try:
            if record.read_text() != text:
                return False
            made = self.output.stat().st_mtime_ns
            listed = self.output.with_suffix(".d").read_text().replace("\\\n", " ").partition(": ")[2]
            return all(os.stat(ROOT / name).st_mtime_ns <= made for name in shlex.split(listed))
        except OSError:
            return False

    def compile(self, threads: int) -> str:
        """Make the object; return its name, the seconds and the compiler's warnings. nvcc uses the threads."""
        started = time.monotonic()
        record, text = self.record()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        done = run(*self.command, *(["--threads", str(threads)] if self.cuda_size else []))
        if done.returncode:
            advice = f"\nTo {WITHOUT_CUDA}" if self.cuda_size else ""
            raise CompileError(f"{self.source} does not compile:\n{shlex.join(self.command)}\n{done.stdout}{advice}")
        record.write_text(text)
        name = Path(*self.output.parts[2:])  # without the folder under build/
        return f"{name} {time.monotonic() - started:.1f} s\n{done.stdout}".strip()


def compile_all(jobs: list[Job], force: bool) -> None:
    stale = [job for job in jobs if force or not job.fresh()]
    log(f"{len(stale)} of {len(jobs)} objects to compile")
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // max(1, sum(job.cuda_size > 0 for job in stale)))
    with ThreadPoolExecutor(cores) as pool:
        try:
            for future in as_completed([pool.submit(job.compile, threads) for job in stale]):
                log(f"  {future.result()}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class Plan:
    """The commands of one configuration."""

    def __init__(self, version: str) -> None:
        self.cuda = find_cuda()
        self.isas = read_isas()
        self.sanitize = setting("BWPROF_SANITIZE")
        self.werror = setting("BWPROF_WERROR", "0") != "0"
        unknown = [name for name in self.sanitize.split(",") if name and name not in SANITIZERS]
        if unknown:
            raise OptionError(f"BWPROF_SANITIZE: unknown '{unknown[0]}': allowed are {', '.join(SANITIZERS)}")
        names = [*shlex.split(sysconfig.get_config_var("CC") or "")[:1], "cc", "gcc", "clang"]
        self.compiler = shlex.split(os.environ.get("CC", "")) or list(filter(shutil.which, names))[:1]
        if not self.compiler:
            raise PlatformError(
                "no C compiler: install gcc or clang, or set CC (Debian: apt-get install gcc libc6-dev)"
            )
        self.identity = output_of(*self.compiler, "--version").splitlines()[0]
        suffix = f"-{self.sanitize.replace(',', '-')}" if self.sanitize else ""
        machine, backends = platform.machine(), "cuda" if self.cuda.nvcc else "cpu"
        self.shared = Path(f"build/c-{machine}{suffix}")  # of objects that every configuration has
        self.folder = Path(f"build/{backends}-{machine}-{sys.implementation.cache_tag}{suffix}")
        self.write_headers(version)

    def write_headers(self, version: str) -> None:
        """Write build_info.h, which is this configuration, and suite_table.h, the suites of bwprof/suites in C."""
        ptx = [f"ptx{self.cuda.oldest}"] if self.cuda.ptx else []
        values = {
            "VERSION": version,
            "CUDA": int(bool(self.cuda.nvcc)),
            "CUDA_REASON": self.cuda.reason,
            "CUDA_VERSION": self.cuda.version,
            "CUDA_ARCHS": " ".join([*self.cuda.archs, *ptx]),
            "COMPILER": self.identity,
            "ISAS": " ".join(isa.name for isa in self.isas if isa.machine in ("any", platform.machine())),
        }
        lines = [f"#define BW_BUILD_{name} {json.dumps(value)}\n" for name, value in values.items()]
        write_header(ROOT / self.folder / "build_info.h", "/* Written by setup.py. */\n" + "".join(lines))
        write_header(ROOT / self.folder / "suite_table.h", suite_table())

    def host_flags(self) -> list[str]:
        """List the flags of every compilation for the host; none has a comma, at which nvcc divides them.

        Symbols are visible, because the library exports some of them to the module; its export list hides the others.
        """
        flags = ["-Wall", "-Wextra", "-fPIC", "-fno-semantic-interposition"]
        if self.sanitize:
            flags += ["-g", "-fno-omit-frame-pointer", *(f"-fsanitize={name}" for name in self.sanitize.split(","))]
            flags += ["-fno-sanitize-recover=undefined"] if "undefined" in self.sanitize else []
        return flags

    def c_job(self, source: Path, folder: Path, extra: list[str], tag: str = "") -> Job:
        options = [*self.compiler, "-std=c11", *self.host_flags(), "-pthread", "-D_GNU_SOURCE", "-Icsrc"]
        options += ["-O1"] if self.sanitize else ["-O3", "-DNDEBUG"]
        options += ["-Werror"] if self.werror else []
        options += [*extra, *shlex.split(os.environ.get("CFLAGS", ""))]
        return Job(source, folder / source.relative_to("csrc").with_suffix(f"{tag}.o"), tuple(options), self.identity)

    def cuda_job(self, source: Path) -> Job:
        # -O is for host code alone, which here chooses what C launches.
        options = [self.cuda.nvcc, "-std=c++17", "-O1", "-Icsrc", "-DNDEBUG", *self.cuda.options]
        options += ["-ccbin", os.environ["CXX"]] if os.environ.get("CXX") else []
        options += ["-Werror", "all-warnings"] if self.werror else []
        # Toolkits have CUPTI's headers beside the others, or here.
        cupti = Path(self.cuda.nvcc).resolve().parent.parent / "extras/CUPTI/include"
        options += ["-isystem", str(cupti)] if cupti.is_dir() else []
        options += [*arch_flags(source, self.cuda), "-Xcompiler", ",".join(self.host_flags())]
        output = self.folder / source.relative_to("csrc").with_suffix(f"{source.suffix}.o")
        return Job(source, output, tuple(options), self.cuda.identity)

    def simd_jobs(self, source: Path) -> list[Job]:
        """Compile `gemm.c` for each instruction set of this machine, `gemm_avx512.c` for avx512 alone."""
        own = [isa for isa in self.isas if isa.name == source.stem.rpartition("_")[2]]
        return [
            self.c_job(source, self.shared, [f"-DBW_ISA={isa.name}", *isa.flags], f".{isa.name}")
            for isa in own or self.isas
            if isa.machine in ("any", platform.machine())
        ]

    def jobs(self) -> list[Job]:
        """List all objects, the slowest first: CUDA before C, large files before small ones."""
        info = f"-I{self.folder}"  # where build_info.h is
        python = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
        own = {  # the flags of folders whose objects depend on the configuration
            "python": [info, "-fvisibility=hidden", *python],
            "api": [info, "-Ibwprof/include"],
            "backend": [info, f"-DBW_WITH_CUDA={int(bool(self.cuda.nvcc))}"],
            "cuda": [f"-isystem{self.cuda.include}"] if self.cuda.include else [],
        }
        jobs = []
        for path in sorted((ROOT / "csrc").rglob("*")):
            source = path.relative_to(ROOT)
            folder = source.parts[1]
            if path.suffix not in (".c", *CUDA_SUFFIXES) or (folder == "cuda" and not self.cuda.nvcc):
                continue
            if path.suffix != ".c":
                jobs.append(self.cuda_job(source))
            elif source.is_relative_to("csrc/cpu/simd"):
                jobs += self.simd_jobs(source)
            else:
                jobs.append(self.c_job(source, self.folder if folder in own else self.shared, own.get(folder, [])))
        return sorted(jobs, key=lambda job: -job.cuda_size)

    def link_all(self, jobs: list[Job], library: Path, module: Path) -> None:
        """Link the library, then the module to it."""
        own = [job for job in jobs if job.source.is_relative_to("csrc/python")]
        others = [job for job in jobs if job not in own]
        # A library that was closed stays: threads of a device that is still open run in it.
        options = [f"-Wl,-soname,{library.name}", "-Wl,-z,nodelete", "-Wl,-Bsymbolic"]
        options.append(f"-Wl,--version-script={self.write_exports(own, others)}")
        if self.cuda.nvcc:
            # libstdc++ as an archive, so that the library needs no copy of the user's; shared if there is no archive.
            archive = output_of(*self.compiler, "-print-file-name=libstdc++.a").strip()
            cxx = archive if os.path.isabs(archive) else "-lstdc++"
            options += [self.cuda.cudart, cxx, "-static-libgcc", "-ldl", "-lrt", "-lpthread"]
        self.link(library, others, options)
        # Python's symbols are found when the module is loaded. Unlike RUNPATH, RPATH comes before LD_LIBRARY_PATH,
        # where another bwprof may be.
        options = ["-Wl,--warn-unresolved-symbols", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/lib"]
        self.link(module, own, [str(library), *options])

    def write_exports(self, own: list[Job], others: list[Job]) -> Path:
        """List what the library exports: the functions of its header, and what the module needs.

        The name of the private node comes from the objects, so that a module loads with its own build's library alone.
        """
        headers = "".join(path.read_text() for path in sorted((ROOT / "bwprof/include").glob("*.h")))
        public = re.findall(r"^BWPROF_API [^;]*?(\w+)\(", headers, flags=re.MULTILINE)
        nm = output_of(*self.compiler, "-print-prog-name=nm").strip()
        symbols = output_of(nm, "--undefined-only", *(str(job.output) for job in own))
        digest = hashlib.sha256(b"".join((ROOT / job.output).read_bytes() for job in others)).hexdigest()
        private = set(re.findall(r"\bU (bw_\w+)", symbols))
        path = self.folder / "exports.map"
        write_header(
            ROOT / path,
            f"BWPROF_1 {{ global: {'; '.join(sorted(public))}; local: *; }};\n"
            f"BWPROF_PRIVATE_{digest[:16]} {{ global: {'; '.join(sorted(private))}; }};\n",
        )
        return path

    def link(self, target: Path, jobs: list[Job], options: list[str]) -> None:
        # A new file, not the old one rewritten: a running process may have that mapped.
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.compiler, "-shared", "-pthread", *sorted(str(job.output) for job in jobs), "-o", str(target)]
        command += ["-Wl,--as-needed", "-Wl,-z,relro,-z,now", "-Wl,-z,defs", *options]
        command += [f"-fsanitize={self.sanitize}"] if self.sanitize else []
        done = run(*command, "-lm", *shlex.split(os.environ.get("LDFLAGS", "")))
        # Names of ours that nothing defines, such as the kernel table of a new operation.
        missing = sorted(set(re.findall(r"undefined (?:reference to|symbol:) \W*(bw_\w+)", done.stdout)))
        if missing:
            target.unlink(missing_ok=True)
            raise CompileError(f"nothing under csrc/ defines {', '.join(missing)}")
        if done.returncode:
            raise CompileError(f"linking failed: {shlex.join(command)}\n{done.stdout}")
        log(f"linked {target.name}")


def c_list(values: list[Any] | str | None, kind: str = "const char *const", end: str = "NULL") -> str:
    """Write a list of csrc/api/benchmark/benchmark.h in C."""
    return "NULL" if values is None else f"({kind}[]){{{', '.join([*map(json.dumps, as_list(values)), end])}}}"


def as_list(values: Any) -> list[Any]:
    """Return a value of a suite that may be one or a list of them as a list."""
    return list(values) if isinstance(values, list) else [values]


def c_mask(precisions: Any) -> str:
    """Write a set of precisions in C."""
    return " | ".join(f"BW_MASK({name.upper()})" for name in as_list(precisions))


def suite_cases(entry: dict[str, Any], precisions: Any, spread: Any) -> list[str]:
    """Write an entry's rows of bw_suite_case, one for each combination of its parameters, caches and variants."""
    axes = {name: spread(as_list(value), name) for name, value in entry.get("params", {}).items()}
    lengths = spread(entry["kv_lens"], "kv_lens") if "kv_lens" in entry else None
    several = [name for name, values in axes.items() if len(set(values)) > 1]
    caches, variants = as_list(entry.get("cache", "cold")), as_list(entry.get("variants"))
    if "all" in variants:
        raise CompileError(f"suite: {entry}: a case of bwprof's own suites names its variants, and not all of them")
    rows = []
    for *values, cache, variant in itertools.product(
        *axes.values(), ["cold", "hot"] if "both" in caches else caches, variants
    ):
        point = dict(zip(axes, values, strict=True))
        name = " ".join([entry.get("name", entry["operation"]), *(f"{axis}={point[axis]}" for axis in several)])
        numbers = [int(value) for value in values]
        params = ", ".join([c_list(list(point)), c_list(numbers, "const int64_t", "0"), str(len(point))])
        cells = [json.dumps(name), f"{{{json.dumps(entry['operation'])}, NULL, {params}}}"]
        cells += [c_list(lengths, "const int64_t", "0"), str(len(lengths or []))]
        cells += [c_mask(entry.get("precisions", precisions)), str(int("precisions" in entry))]
        cells += [f"BW_CACHE_{cache.upper()}", json.dumps(variant) if variant else "NULL", str(int(len(variants) > 1))]
        rows.append("{" + ", ".join(cells) + "}")
    return rows


def suite_table() -> str:
    """Write the array bw_suites of csrc/api/benchmark/benchmark.h for the library, which does not read TOML."""
    paths = sorted((ROOT / "bwprof/data/suites").glob("*.toml"))
    if not paths:
        return "/* Written by setup.py: there are no suites. */\n"
    spread = runpy.run_path(str(ROOT / "bwprof/text/parsing.py"))[
        "expand_ranges"
    ]  # reads sizes; the package is not built yet
    rows = []
    for path, backend in itertools.product(paths, BACKENDS):
        suite = tomllib.loads(path.read_text("utf-8-sig"))
        settings = {"precisions": ["fp32", "fp16"], "target_seconds": 0} | suite | suite.get("on", {}).get(backend, {})
        entries = [entry for entry in suite["case"] if backend in as_list(entry.get("backends", list(BACKENDS)))]
        cases = [row for entry in entries for row in suite_cases(entry, settings["precisions"], spread)]
        if cases:
            rows.append(
                f"    {{{json.dumps(path.stem)}, {json.dumps(backend)}, {settings['target_seconds']},\n"
                "     (const bw_suite_case[]){\n        " + ",\n        ".join(cases) + f"}}, {len(cases)}}},\n"
            )
    return "/* Written by setup.py. */\nstatic const bw_suite bw_suites[] = {\n" + "".join(rows) + "};\n"


class BuildCore(build_ext):
    """Build both files; setuptools then puts them where the kind of install wants them."""

    def build_extensions(self) -> None:
        if sys.platform != "linux":
            raise PlatformError(
                f"bwprof is built for Linux (x86-64, aarch64), and this is {sys.platform}: build it in a Linux "
                "container, virtual machine or WSL 2"
            )
        plan = Plan(self.distribution.get_version())
        log(f"CUDA {'on' if plan.cuda.nvcc else 'off'}: {plan.cuda.reason}")
        if plan.cuda.nvcc:
            ptx = f", PTX for {plan.cuda.oldest}" if plan.cuda.ptx else ""
            log(f"architectures: {' '.join(plan.cuda.archs)}{ptx}")
        jobs = plan.jobs()
        compile_all(jobs, bool(self.force))
        library, module = (Path(self.get_ext_fullpath(ext.name)).resolve() for ext in self.extensions)
        plan.link_all(jobs, library, module)

    def get_ext_filename(self, fullname: str) -> str:
        found: str = super().get_ext_filename(fullname)
        return str(Path(found).with_name(f"{LIBRARY}.so")) if fullname.endswith(LIBRARY) else found

    def copy_extensions_to_source(self) -> None:
        (ROOT / "bwprof/lib").mkdir(exist_ok=True)
        super().copy_extensions_to_source()


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(
        license="Apache-2.0",
        ext_modules=[Extension(f"bwprof.lib.{LIBRARY}", []), Extension("bwprof._core", [])],
        cmdclass={"build_ext": BuildCore},
    )
