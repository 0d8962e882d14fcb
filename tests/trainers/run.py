"""Run the adapters against the real trainers: `make trainers`, or `make trainers T=verl`.

One virtual environment per set of trainers that can live together, `.venv-<name>`, made from
`requirements/trainers/<name>.txt` (everything pinned; `torch` is installed first, by itself)
and `<name>.nodeps.txt` (packages whose own requirements cannot be had on a CPU machine).
An environment is made again only when one of its files changed.

`make trainers ALL=1` runs other versions, too. They lie over the environment of the usual one:
`requirements/trainers/older/<trainer>-<version>.txt` names the packages that differ.

`make trainers T=trl HEAD=/path/to/trl` runs a trainer's tests against a source instead. Of several
sources, `make trainers HEAD=1 SOURCES=/folder` runs those of each trainer that has one there, in a
folder of its name: `/folder/trl`, `/folder/verl`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / "trainers"

ENVIRONMENTS = {
    "verl": ("verl", "slime", "ray"),
    "skyrl": ("skyrl", "areal", "open_instruct"),
    "trl": ("trl", "tinker", "torch"),
    "verifiers": ("verifiers",),
}
"""Which trainers' tests (`tests/trainers/<trainer>`) run in which environment."""


def main(arguments: list[str]) -> int:
    wanted = [name for name in arguments if not name.startswith("--")]
    known = {trainer for trainers in ENVIRONMENTS.values() for trainer in trainers}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no trainer {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return 2
    head = next((name.removeprefix(HEAD) for name in arguments if name.startswith(HEAD)), None)
    sources = {} if head is None else _sources(head, wanted, sorted(known))
    if head is not None and not sources:
        print(
            "a source needs its trainer: make trainers T=trl HEAD=/path/to/trl; or several: "
            "make trainers HEAD=1 SOURCES=/folder, with /folder/trl, /folder/verl, ... in it"
        )
        return 2
    wanted = list(sources) or wanted
    results: list[tuple[str, str, float]] = []
    for environment, trainers in ENVIRONMENTS.items():
        chosen = [
            name
            for name in trainers
            if (not wanted or name in wanted) and (ROOT / "tests" / "trainers" / name).is_dir()
        ]
        if chosen:
            results += _run(environment, chosen, sources=sources)
        for trainer, pins in _older(chosen) if ALL in arguments else ():
            results += _run(pins.stem, [trainer], pins, environment)
    print("\ntrainers:")
    for name, outcome, seconds in results:
        print(f"  {name:<32} {outcome:<8} {seconds:6.0f} s")
    return 0 if results and all(outcome in _OUTCOMES.values() for _, outcome, _ in results) else 1


ALL = "--all"
HEAD = "--head="


def _sources(head: str, wanted: list[str], known: list[str]) -> dict[str, Path]:
    """The folders that the trainers are to be imported from, by trainer."""
    if head != "1":
        found = {name: Path(head) for name in wanted} if len(wanted) == 1 else {}
    else:
        folder = os.environ.get("SOURCES", "")
        names = wanted or known
        found = {name: Path(folder, name) for name in names} if folder else {}
    return {name: path.resolve() for name, path in found.items() if path.is_dir()}


def _older(trainers: list[str]) -> list[tuple[str, Path]]:
    """The older versions of these trainers, each with its pins."""
    return [
        (name, pins) for name in trainers for pins in sorted((PINS / "older").glob(f"{name}-*.txt"))
    ]


_OUTCOMES = {0: "passed", 5: "skipped"}
"""By pytest's exit code. 5 is "no tests": a trainer whose source is not on this machine."""


_PATIENT = {
    "RAY_memory_monitor_refresh_ms": "0",  # else Ray kills workers when others fill the memory
    "RAY_worker_register_timeout_seconds": "600",
}
"""A busy machine must not fail a test."""


def _run(
    environment: str,
    trainers: list[str],
    pins: Path | None = None,
    base: str = "",
    sources: Mapping[str, Path] = MappingProxyType({}),
) -> list[tuple[str, str, float]]:
    """The tests of these trainers. `pins`: in an older version that lies over `base`. `sources`:
    where they are imported from instead."""
    started = time.monotonic()
    try:
        python = _install(environment) if pins is None else _install_over(base, environment, pins)
    except subprocess.CalledProcessError as error:
        print(f"{environment}: {error}", flush=True)
        return [(f"{environment} (install)", "FAILED", time.monotonic() - started)]
    results = [(f"{environment} (install)", "passed", time.monotonic() - started)]
    for trainer in trainers:
        print(f"\n== {trainer}", flush=True)
        started = time.monotonic()
        tests = [python, "-m", "pytest", "-p", "no:cacheprovider", f"tests/trainers/{trainer}"]
        paths = [str(sources.get(trainer, "")), os.environ.get("PYTHONPATH", "")]
        env = os.environ | _PATIENT | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        code = subprocess.run(tests, cwd=ROOT, env=env, check=False).returncode
        name = trainer if pins is None else pins.stem
        results.append((name, _OUTCOMES.get(code, "FAILED"), time.monotonic() - started))
    return results


def _install(environment: str) -> str:
    """Make `.venv-<environment>` unless it is there and its files are unchanged."""
    files = [PINS / f"{environment}.txt", PINS / f"{environment}.nodeps.txt"]
    pins, bare = (path.read_text() if path.exists() else "" for path in files)
    state = hashlib.sha256(f"{pins}\0{bare}".encode()).hexdigest()
    venv = ROOT / f".venv-{environment}"
    python, ready = str(venv / "bin" / "python"), venv / ".ready"
    if ready.exists() and ready.read_text() == state:
        _pip(python, *_OURSELVES)  # entry points may have changed
        return python
    print(f"\n== {environment}: installing into {venv.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    torch = [line for line in pins.splitlines() if line.startswith("torch==")]
    if torch:
        _pip(python, *torch)
    if bare:
        _pip(python, "--no-deps", "-r", str(files[1]))
    _pip(python, "-r", str(files[0]))
    _pip(python, *_OURSELVES)
    ready.write_text(state)
    return python


def _install_over(base: str, environment: str, pins: Path) -> str:
    """Make `.venv-<environment>`: these packages, and for everything else those of `base`."""
    below = ROOT / f".venv-{base}"
    state = hashlib.sha256(f"{(below / '.ready').read_text()}\0{pins.read_text()}".encode())
    venv = ROOT / f".venv-{environment}"
    python, ready = str(venv / "bin" / "python"), venv / ".ready"
    if not ready.exists() or ready.read_text() != state.hexdigest():
        print(f"\n== {environment}: installing into {venv.name}, over {below.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        (packages,) = venv.glob("lib/python*/site-packages")
        (others,) = below.glob("lib/python*/site-packages")
        (packages / "below.pth").write_text(f"{others}\n")
        _pip(python, "--no-deps", "-r", str(pins))
        ready.write_text(state.hexdigest())
    _pip(python, *_OURSELVES)
    return python


_OURSELVES = ("--no-deps", "--no-build-isolation", "-e", str(ROOT))


def _pip(python: str, *arguments: str) -> None:
    """Install; a package index may fail for a moment, so it is tried three times."""
    quiet = ("-q", "-q", "--disable-pip-version-check")
    command = [python, "-m", "pip", "install", *quiet, *arguments]
    for wait in (10, 30):
        if subprocess.run(command, check=False).returncode == 0:
            return
        time.sleep(wait)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
