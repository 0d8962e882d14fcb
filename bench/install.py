"""Size of a fresh virtual environment with Rollscope in it, pip included."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "-r", str(root / "requirements" / "base.txt")], check=True)
        wheels = sorted((root / "dist").glob("rollscope-*.whl"))
        if not wheels:
            sys.exit("build the wheel first: make wheel")
        subprocess.run([*pip, "--no-deps", str(wheels[-1])], check=True)
        size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
    print("\n" + json.dumps({"install_mb": size / 1e6}))
