"""Programs of their own, for faults that a test cannot survive itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

_PRELUDE = """
import json, os, signal, sys, threading, time
from pathlib import Path
import rollscope
from rollscope import Message, Rollout
from capture import reading
store = Path(os.environ["ROLLSCOPE_DIR"])
def tell(**what): print(json.dumps(what), flush=True)
def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
"""

TESTS = Path(__file__).parent.parent


def start(code: str, *args: str, prefix: tuple[str, ...] = (), **env: str) -> subprocess.Popen[str]:
    """Run `code` (see the prelude for what it can use); it prints JSON lines with `tell`."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", _PRELUDE + textwrap.dedent(code), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), **env},
    )


def told(process: subprocess.Popen[str], code: int | None = 0) -> list[dict[str, Any]]:
    """Wait for the program's end and return what it told."""
    out, err = process.communicate(timeout=600)  # a hundred trials take long on a busy machine
    assert code is None or process.returncode == code, err
    return [json.loads(line) for line in out.splitlines()]


def on_a_small_disk(directory: Path, options: str) -> tuple[str, ...] | None:
    """Start a program with a file system of its own mounted at `directory`; None if that is
    not permitted here."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = f"mount -t tmpfs -o {options} tmpfs {directory}"
    if shutil.which("unshare") is None:
        return None
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True)
    if tried.returncode:
        return None
    return ("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")
