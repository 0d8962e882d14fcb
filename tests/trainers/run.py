"""Run the adapters against the real trainers: `make trainers`, or `make trainers T=verl`.

One virtual environment per set of trainers that can live together, `.venv-<name>`, made from
`requirements/trainers/<name>.txt` (everything pinned; `torch` is installed first, by itself)
and `<name>.nodeps.txt` (packages whose own requirements cannot be had on a CPU machine).
An environment is made again only when one of its files changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "requirements" / "trainers"

ENVIRONMENTS = {
    "verl": ("verl", "slime"),
    "skyrl": ("skyrl", "areal", "open_instruct"),
    "trl": ("trl", "tinker", "torch"),
    "verifiers": ("verifiers",),
}
"""Which trainers' tests (`tests/trainers/<trainer>`) run in which environment."""


def main(wanted: list[str]) -> int:
    known = {trainer for trainers in ENVIRONMENTS.values() for trainer in trainers}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no trainer {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return 2
    results: list[tuple[str, str, float]] = []
    for environment, trainers in ENVIRONMENTS.items():
        chosen = [
            name
            for name in trainers
            if (not wanted or name in wanted) and (ROOT / "tests" / "trainers" / name).is_dir()
        ]
        if chosen:
            results += _run(environment, chosen)
    print("\ntrainers:")
    for name, outcome, seconds in results:
        print(f"  {name:<24} {outcome:<8} {seconds:6.0f} s")
    return 0 if results and all(outcome in _OUTCOMES.values() for _, outcome, _ in results) else 1


_OUTCOMES = {0: "passed", 5: "skipped"}
"""By pytest's exit code. 5 is "no tests": a trainer whose source is not on this machine."""


_PATIENT = {
    "RAY_memory_monitor_refresh_ms": "0",  # else Ray kills workers when others fill the memory
    "RAY_worker_register_timeout_seconds": "600",
}
"""A busy machine must not fail a test."""


def _run(environment: str, trainers: list[str]) -> list[tuple[str, str, float]]:
    started = time.monotonic()
    try:
        python = _install(environment)
    except subprocess.CalledProcessError as error:
        print(f"{environment}: {error}", flush=True)
        return [(f"{environment} (install)", "FAILED", time.monotonic() - started)]
    results = [(f"{environment} (install)", "passed", time.monotonic() - started)]
    for trainer in trainers:
        print(f"\n== {trainer}", flush=True)
        started = time.monotonic()
        tests = [python, "-m", "pytest", "-p", "no:cacheprovider", f"tests/trainers/{trainer}"]
        code = subprocess.run(tests, cwd=ROOT, env=os.environ | _PATIENT, check=False).returncode
        results.append((trainer, _OUTCOMES.get(code, "FAILED"), time.monotonic() - started))
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
