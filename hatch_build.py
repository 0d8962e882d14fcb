"""Builds the wheel with the documents and the viewer inside, so that its users need no Node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "src/rollscope/viewer/static"


class ViewerHook(BuildHookInterface[Any]):
    """`pip install .` and `make wheel` run this; an editable install does not need the page."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version == "editable":
            return
        root = Path(self.root)
        if (root / "viewer" / "package.json").is_file():
            build(root)
        if not (root / STATIC / "index.html").is_file():
            raise RuntimeError("the viewer is not built and its source is not here")
        included = build_data["force_include"]
        if self.target_name == "sdist":
            included[str(root / STATIC)] = STATIC
            return
        included[str(root / STATIC)] = "rollscope/viewer/static"
        for page in (root / "docs").glob("**/*.md"):
            included[str(page)] = f"rollscope/{page.relative_to(root).as_posix()}"


def build(root: Path) -> None:
    """npm ci and vite build, unless what they would build is already there and newer."""
    viewer = root / "viewer"
    page = root / STATIC / "index.html"
    # The same files as in the Makefile: what else lies there (tests, notes) is not in the page.
    named = [viewer / name for name in ("index.html", "vite.config.ts", "package-lock.json")]
    sources = [*named, *(viewer / "src").rglob("*"), *(viewer / "public").rglob("*")]
    newest = max((path.stat().st_mtime for path in sources if path.is_file()), default=0.0)
    if page.is_file() and page.stat().st_mtime >= newest:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "building Rollscope from a checkout needs npm (Node 20.19 or newer) to build the "
            "viewer. Install Node, or install a wheel: it has the viewer inside."
        )
    # A copy of an installed tree keeps its packages; a fresh checkout gets the locked ones.
    if not (viewer / "node_modules" / ".package-lock.json").is_file():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=viewer, check=True)
    subprocess.run([npm, "run", "build"], cwd=viewer, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    build(Path(__file__).parent)
