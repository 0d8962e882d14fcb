"""Curves of what `bench/scale.py` has measured: pictures, and the tables of docs/scale.md."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from scale import ALL_TEXT

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

FAR = 100_000_000
"""What is extrapolated to."""

Point = tuple[float, float]
Measured = Mapping[int, Mapping[str, Mapping[str, float]]]
"""By the size of the store, or the number of nodes, and by the step that measured it."""


class Figure(NamedTuple):
    """One line of the table."""

    title: str
    step: str
    name: str
    unit: str
    growth: str = "as before"
    """Beyond the last size: `as before`, `linear` (ten times the text costs ten times as much), or
    `bounded`, by the engine's share of memory."""


FIELDS = (
    Figure("newest 50", "ask", "page", "ms"),
    Figure("filtered, sorted first page", "ask", "filter", "ms"),
    Figure("histogram per step", "ask", "histogram", "ms"),
    Figure("facets of that filter", "ask", "facets", "ms"),
    Figure("get one", "ask", "get", "ms"),
    Figure("task list", "ask", "tasks", "ms"),
)
TEXT = (
    Figure("rare word, exact", "ask", "search", "ms", "linear"),
    Figure("rare word, any case", "ask", "search_any", "ms", "linear"),
)
FILES = (
    Figure("open, segments", "open_segments", "open", "s"),
    Figure("open, compacted", "open", "open", "s"),
    Figure("compact", "compact", "compact", "s", "linear"),
)
MEMORY = (
    Figure("memory to open, segments", "open_segments", "memory", "mb"),
    Figure("memory to open, compacted", "open", "memory", "mb"),
    Figure("memory after all questions", "ask", "memory", "mb"),
    Figure("memory of compaction", "compact", "memory", "mb", "bounded"),
)
_COLORS = ("#1565c0", "#c62828", "#2e7d32", "#6a1b9a", "#ef6c00", "#00838f")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 412, 70, 32, 230, 50


def write(folder: Path) -> None:
    """Everything that was measured, as pictures and as docs/scale.md."""
    sizes, nodes = _read(folder, ""), _read(folder, "nodes-")
    if len(sizes) < 2:
        return  # a curve needs two points
    for name, up, figures in (
        ("fields", "CPU, ms", FIELDS),
        ("files", "CPU, s", FILES),
        ("memory", "MB", MEMORY),
    ):
        _picture(name, "rollouts", up, [_curve(sizes, figure) for figure in figures])
    whole = {size: found for size, found in sizes.items() if size <= ALL_TEXT}
    by_text = {round(found["make"]["text_mb"]): found for found in whole.values()}
    _picture(
        "text", "MB of text on disk", "CPU, ms", [Curve(f.title, _points(by_text, f)) for f in TEXT]
    )
    live = [(n, found["open"]) for n, found in sorted(nodes.items())]
    _picture(
        "nodes",
        "nodes, 8 writers each",
        "CPU s, and GB",
        [
            Curve("open: CPU, s", [(n, found["open_cpu_s"]) for n, found in live]),
            Curve("open: memory, GB", [(n, found["memory_mb"] / 1e3) for n, found in live]),
        ],
    )
    text = (HERE / "scale.md.in").read_text()
    for name, value in {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} shared cores, Python {platform.python_version()}",
        "table": _table(sizes),
        "stores": _stores(sizes),
        "nodes": _nodes(nodes),
    }.items():
        text = text.replace(f"{{{name}}}", value)
    (DOCS / "scale.md").write_text(text)


def _read(folder: Path, prefix: str) -> Measured:
    found = {}
    for path in folder.glob(f"{prefix}*.json"):
        number = path.stem.removeprefix(prefix)
        if number.isdecimal():
            found[int(number)] = json.loads(path.read_text())
    return dict(sorted(found.items()))


# -- tables --------------------------------------------------------------------------------


def _points(measured: Measured, figure: Figure) -> list[Point]:
    """CPU time, or memory, by size."""
    name = f"{figure.name}_{'' if figure.unit == 'mb' else 'cpu_'}{figure.unit}"
    return [(size, found[figure.step][name]) for size, found in sorted(measured.items())]


def _far(points: Sequence[Point], figure: Figure) -> float | None:
    """The value at `FAR`; None: it grows no more. `as before`: as it grew between the last two
    sizes, at most as fast as these."""
    (near, low), (last, high) = points[-2:]
    if figure.growth == "bounded":
        return None
    slope = min(1.0, math.log(high / low) / math.log(last / near))
    return float(high * (FAR / last) ** (1.0 if figure.growth == "linear" else slope))


def _table(sizes: Measured) -> str:
    head = " | ".join(f"{size:,}" for size in sizes)
    lines = [f"| | {head} | {FAR:,}, extrapolated |", "|---" * (len(sizes) + 2) + "|"]
    for figure in (*FIELDS, *TEXT, *FILES, *MEMORY):
        points = _points(sizes, figure)
        cells = [_cell(found[figure.step], figure) for found in sizes.values()]
        far = _far(points, figure)
        cells.append("bounded" if far is None else _short(far, figure.unit))
        lines.append(f"| {figure.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Mapping[str, float], figure: Figure) -> str:
    if figure.unit == "mb":
        return _short(found[f"{figure.name}_mb"], "mb")
    cpu, wall = (found[f"{figure.name}_{kind}{figure.unit}"] for kind in ("cpu_", ""))
    return f"{_short(cpu, figure.unit)} ({_short(wall, figure.unit)})"


def _short(value: float, unit: str) -> str:
    scaled, unit = (value / 1e3, "s") if unit == "ms" and value >= 1e3 else (value, unit)
    scaled, unit = (scaled / 1e3, "GB") if unit == "mb" and scaled >= 1e3 else (scaled, unit)
    digits = 0 if scaled >= 20 else 1 if scaled >= 2 else 2
    return f"{scaled:,.{digits}f} {unit.replace('mb', 'MB')}"


def _stores(sizes: Measured) -> str:
    lines = ["| rollouts | segments | parts | on disk | of it text |", "|---|---|---|---|---|"]
    for size, found in sizes.items():
        made, merged = found["make"], found["compact"]
        lines.append(
            f"| {size:,} | {made['segments']:,} | {merged['parts']:,} | "
            f"{_short(made['mb'], 'mb')} | {_short(made['text_mb'], 'mb')} |"
        )
    return "\n".join(lines)


def _nodes(nodes: Measured) -> str:
    lines = ["| nodes | live logs | rollouts in them | open | memory |", "|---|---|---|---|---|"]
    for number, found in nodes.items():
        live, opened = found["live"], found["open"]
        cell = _cell(opened, Figure("", "", "open", "s"))
        lines.append(
            f"| {number} | {live['logs']:,} | {live['unsealed']:,} | {cell} | "
            f"{_short(opened['memory_mb'], 'mb')} |"
        )
    return "\n".join(lines)


# -- pictures ------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A line of a picture."""

    title: str
    points: list[Point]
    far: float | None = None
    """Where a dashed line leads to."""


def _curve(sizes: Measured, figure: Figure) -> Curve:
    points = _points(sizes, figure)
    return Curve(figure.title, points, _far(points, figure))


def _picture(name: str, across: str, up: str, lines: Sequence[Curve]) -> None:
    """Lines on two logarithmic axes, as SVG."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + [line.far for line in lines if line.far]
    left, right = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)) + 0.01)
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def place(point: Point) -> tuple[float, float]:
        x = _LEFT + (math.log10(point[0]) - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        y = (math.log10(point[1]) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return round(x, 1), round(_HEIGHT - _BOTTOM - y, 1)

    drawn = [_text((_WIDTH - _RIGHT + _LEFT) / 2, _HEIGHT - 8, across, "middle")]
    drawn.append(_text(8, 14, up))
    for power in range(left, right + 1):
        x, y = place((10.0**power, 10.0**low))
        drawn.append(f'<path d="M{x} {_TOP}V{y}" stroke="#ddd"/>')
        drawn.append(_text(x, y + 18, _power(power), "middle"))
    for power in range(low, high + 1):
        x, y = place((10.0**left, 10.0**power))
        drawn.append(f'<path d="M{x} {y}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        drawn.append(_text(x - 8, y + 4, _power(power), "end"))
    for number, (title, points, far) in enumerate(lines):
        color = _COLORS[number % len(_COLORS)]
        places = [place(point) for point in points]
        drawn.append(_line(places, color))
        if far is not None:
            drawn.append(_line([places[-1], place((FAR, far))], color, ' stroke-dasharray="5 4"'))
        drawn += [f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in places]
        at = _TOP + 14 + 20 * number
        drawn.append(
            f'<path d="M{_WIDTH - _RIGHT + 14} {at - 4}h18" stroke="{color}" stroke-width="2"/>'
        )
        drawn.append(_text(_WIDTH - _RIGHT + 38, at, title))
    body = "\n".join(drawn)
    (DOCS / "images" / f"scale-{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" '
        f'fill="white"/>\n{body}\n</svg>\n'
    )


def _line(places: Sequence[Point], color: str, how: str = "") -> str:
    path = "M" + "L".join(f"{x} {y}" for x, y in places)
    return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"{how}/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'


def _power(power: int) -> str:
    if power < 6:
        return f"{10.0**power:,.{max(0, -power)}f}"
    return f"{10 ** (power - 6)} million"


def main() -> None:
    write(HERE.parent / "out" / "scale")


if __name__ == "__main__":
    main()
