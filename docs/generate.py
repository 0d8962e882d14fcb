"""Writes everything that is made from the code: `make generated`.

In a page, what is made stands between `<!-- generated: NAME -->` and `<!-- /NAME -->`. Other files
are made as a whole. `viewer/src/api/schema.d.ts` comes last, from `openapi.json`, by `npm run api`.
A test compares the files with what this program would write.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rollscope.adapters._trainers import TRAINERS
from rollscope.capture import background, settings
from rollscope.checks import Check
from rollscope.checks.registry import ours
from rollscope.model import redact
from rollscope.model.schema import DERIVED, ROLLOUTS, TABLES, Column
from rollscope.query import keys, syntax
from rollscope.query.facets import FACETS, HISTOGRAMS
from rollscope.server.openapi import describe
from rollscope.server.routes import ROUTES
from rollscope.server.shapes.rows import RolloutRow, Unlisted
from rollscope.sinks import KNOWN, load
from rollscope.store import writers
from rollscope.store.write import log

ROOT = Path(__file__).parents[1]

COLUMNS = {column.name: column for column in ROLLOUTS}


def main() -> None:
    for name, text in generated().items():
        (ROOT / name).write_text(text)


def generated() -> dict[str, str]:
    """What each file should hold, by its path from the root."""
    made = {page: with_parts((ROOT / page).read_text(), parts) for page, parts in PAGES.items()}
    return made | {"docs/openapi.json": openapi(), "viewer/src/api/columns.ts": columns()}


def with_parts(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """A page with its generated parts made anew."""
    for name, make in parts.items():
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- /{name} -->"
        before, found, rest = text.partition(begin)
        assert found and end in rest, f"no place for {name}"
        text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
    return text


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [" | ".join(cells) for cells in (head, *rows)]
    dashes = "|".join("---" for _ in head)
    return "\n".join([f"| {lines[0]} |", f"|{dashes}|", *(f"| {line} |" for line in lines[1:])])


# -- docs/format.md and docs/query.md --------------------------------------------------------

TITLES = {
    "rollouts": "one row a rollout, thin",
    "messages": "one row a message; with the tokens that it adds",
    "spans": "one row a timed call inside a rollout",
    "facts": "what was learned about a rollout after it was written",
    "metrics": "the trainer's own numbers, one row a step and name",
    "checked": "one row a rollout (or step) and subject; what its checks answered",
    "findings": "where something was found, one row a finding",
}


HEAD = ("column", "type", "what it is")


def tables(shown: dict[str, tuple[Column, ...]]) -> str:
    made = []
    for name, found in shown.items():
        rows = [(f"`{c.name}`", c.type, c.doc) for c in found]
        made.append(f"### `{name}.parquet`: {TITLES[name]}\n\n{table(HEAD, rows)}")
    return "\n" + "\n\n".join(made) + "\n"


def query_keys() -> str:
    rows = [(f"`{key.name}`", key.kind, key.doc) for key in keys.KEYS.values()]
    return table(("key", "kind", "what it is"), rows)


def aliases() -> str:
    rows = [(f"`{word}`", f"`{key}`") for word, key in sorted(keys.ALIASES.items())]
    return table(("word", "key"), rows)


def grammar() -> str:
    lines = (syntax.__doc__ or "").split("\n\n")[1].splitlines()
    return "```text\n" + "\n".join(line.removeprefix("    ") for line in lines) + "\n```"


# -- docs/configuration.md and docs/sinks.md -------------------------------------------------


def options() -> str:
    rows = [(f"`{o.name}`", o.expected, o.default, o.doc) for o in settings.OPTIONS]
    return table(("variable", "value", "when not set", "what it does"), rows)


def patterns() -> str:
    return "\n".join(f"- `{name}`: `{p}`" for name, p in redact.PATTERNS.items())


def known_sinks() -> str:
    return "Known: " + ", ".join(f"`{name}`" for name in KNOWN) + "."


def sizes() -> str:
    rows = [
        ("a record waits for others before its frame is written", f"{background.GATHER * 1e3:.0f} ms", "`capture.background.GATHER`"),
        ("the writer's thread works before it lets others run", f"{background.HOLD * 1e3} ms", "`capture.background.HOLD`"),
        ("a failed write is tried again after", f"{background.RETRY:.0f} s", "`capture.background.RETRY`"),
        ("the end of the program waits for a slow disk at most", f"{background.CLOSE_WAIT:.0f} s", "`capture.background.CLOSE_WAIT`"),
        ("a frame is full at", f"{log.FRAME_RAW >> 20} MB of text", "`store.write.log.FRAME_RAW`"),
        ("a log takes no new rollouts at", f"{log.MAX_RAW >> 20} MB of text", "`store.write.log.MAX_RAW`"),
        ("or, shared among all live logs of the run, at", f"{log.UNSEALED:,} records", "`store.write.log.UNSEALED`"),
        ("but not before", f"{log.LEAST} records", "`store.write.log.LEAST`"),
        ("heartbeat of a writer", f"{writers.BEAT:.0f} s", "`store.writers.BEAT`"),
        ("a writer that was silent for so long begins a new log", f"{writers.SILENT:.0f} s", "`store.writers.SILENT`"),
        ("an observer takes a silent writer for dead after", f"{writers.DEAD:.0f} s", "`store.writers.DEAD`"),
    ]  # fmt: skip
    return table(("what", "how much", "name in the code"), rows)


def sink_options() -> str:
    found = ((name, load(name).OPTIONS) for name in KNOWN)
    rows = [(name, f"`{o}`", text) for name, options in found for o, text in options.items()]
    return table(("sink", "option", "what it does"), rows)


# -- docs/trainers and the README of the adapters ---------------------------------------------


def trainers(pages: str) -> str:
    rows = [
        (f"[{t.name}]({pages}{t.page}.md)", t.versions, f"`{t.how}`", t.tested) for t in TRAINERS
    ]
    return table(("trainer", "versions", "what to type", "tested by"), rows)


# -- docs/checks.md, from the code and from what `make checks` measured -----------------------

KINDS = {
    "record": "Is the record right?",
    "behaviour": "What is odd about what the policy did?",
    "run": "What goes wrong over the steps?",
}


def measured() -> Any:
    return json.loads((ROOT / "tests" / "checks" / "measured.json").read_text())


def known_checks() -> str:
    numbers = measured()["checks"]
    made = []
    for kind, title in KINDS.items():
        rows = [
            (
                f"`{c.id}`" + (" (off)" if c.off else ""), _cell(c.means), _parameters(c),
                _cell(c.source), *_numbers(numbers.get(c.id, {})),
            )
            for c in sorted(ours().values(), key=lambda c: c.id)
            if c.kind == kind
        ]  # fmt: skip
        head = (
            "check", "what it finds, and why it matters", "parameters", "from", "found of planted",
            "false per 10,000", "unobserved",
        )  # fmt: skip
        made.append(f"### {title}\n\n{table(head, rows)}")
    return "\n" + "\n\n".join(made) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _parameters(check: Check) -> str:
    shown = (f"`{p.name} = {json.dumps(p.default)}`: {_cell(p.doc)}" for p in check.parameters)
    return "<br>".join([*shown, *([f"off by default: {check.off}"] if check.off else [])])


def _numbers(of: Any) -> tuple[str, str, str]:
    found = sum(n for n, _ in of.get("planted", {}).values())
    planted = sum(of for _, of in of.get("planted", {}).values())
    looked, unobserved = of.get("looked", 0), of.get("unobserved", 0)
    wrong = f"{10_000 * of['false'] / looked:.0f} (of {looked:,})" if looked else "not measured"
    share = f"{unobserved / (looked + unobserved):.0%}" if looked + unobserved else ""
    return f"{found} of {planted}", wrong, share


def missed_faults() -> str:
    lines = []
    for id, of in sorted(measured()["checks"].items()):
        missed = [
            f"{how} ({n} of {all})" if all else f"{how} (no rollout was fit for it)"
            for how, (n, all) in of.get("planted", {}).items()
            if n < all or not all
        ]
        if missed:
            lines.append(f"- `{id}`: {_cell('; '.join(missed))}")
    return "\n".join(lines)


def gaming() -> str:
    rows = []
    for of in measured()["gaming"]:
        found = of["hacked found"] + of["honest found"]
        precision = f"{of['hacked found']} of {found}" if found else "nothing was found"
        seen = of["hacked"] - of["hacked unobserved"]
        rows.append((f"{of['set']}, {of['half']}", str(of["hacked"]), str(of["honest"]),
                     str(of["hacked unobserved"] + of["honest unobserved"]), precision,
                     f"{of['hacked found']} of {seen}"))  # fmt: skip
    return table(("runs", "hacked", "honest", "unobserved", "precision", "recall of the rest"), rows)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "docs/checks.md": {"checks": known_checks, "missed": missed_faults, "gaming": gaming},
    "docs/format.md": {"tables": lambda: tables(TABLES), "derived": lambda: tables(DERIVED)},
    "docs/query.md": {"keys": query_keys, "aliases": aliases, "grammar": grammar},
    "docs/configuration.md": {
        "options": options,
        "patterns": patterns,
        "sinks": known_sinks,
        "sizes": sizes,
    },
    "docs/sinks.md": {"options": sink_options},
    "docs/trainers/README.md": {"trainers": lambda: trainers("")},
    "src/rollscope/adapters/README.md": {
        "trainers": lambda: trainers("../../../docs/trainers/"),
    },
}


# -- the API, and what the page knows of it --------------------------------------------------


def openapi() -> str:
    made = describe(ROUTES)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made["info"]["version"] = project["version"]  # what is installed may be older
    return json.dumps(made, indent=1) + "\n"


def columns() -> str:
    """What the page needs to list, sort, count and filter by any column, served or in a bundle."""

    def lines(names: Iterable[str]) -> str:
        return "\n".join(f"  {json.dumps(about(name))}," for name in names)

    words = "\n".join(f"  {word}: {json.dumps(key)}," for word, key in sorted(keys.ALIASES.items()))
    known = "\n".join(
        f"  {json.dumps(key.name)}: {json.dumps({'kind': key.kind} | ({'whole': True} if key.whole else {}))},"
        for key in keys.KEYS.values()
    )
    return f"""\
/** What the schema and the query language say about columns. Made by `make generated`. */
import type {{ Detail, RolloutRow }} from "./types";

export interface Column<Name extends string = string> {{
  name: Name;
  /** The key of the query language that asks for it. */
  key: string;
  /** How a term with that key matches; empty: there is no such key. */
  kind: "number" | "time" | "bool" | "equal" | "contains" | "member" | "map" | "json" | "";
  doc: string;
  /** Heading where space is short. */
  title?: string;
  /** Is it a whole number? */
  whole?: true;
}}

/** The columns of a row of a list. */
export const ROW: readonly Column<keyof RolloutRow>[] = [
{lines(RolloutRow.__struct_fields__)}
];

/** The columns that only the answer about a whole rollout has. */
export const BESIDE: readonly Column<keyof Detail>[] = [
{lines(Unlisted.__struct_fields__)}
];

/** Keys whose values are counted, to narrow a selection. */
export const FACETS: readonly string[] = {json.dumps(FACETS)};

/** Numbers that are drawn as histograms. */
export const HISTOGRAMS: readonly (keyof RolloutRow)[] = {json.dumps(HISTOGRAMS)};

/** Every key of the query language. After `.*` stands a name of the user's own. */
export const KEYS: Readonly<Record<string, {{ kind: Column["kind"] | "text" | "any"; whole?: true }}>> = {{
{known}
}};

/** Words of the trainers, and the keys they mean. */
export const ALIASES: Readonly<Record<string, string>> = {{
{words}
}};
"""


def about(name: str) -> dict[str, str | bool]:
    column = COLUMNS.get(name)
    if column is None:  # made of other columns
        key = keys.KEYS[name]
        return {"name": name, "key": name, "kind": key.kind, "doc": key.doc}
    told = {"name": name, "key": column.key, "kind": column.match or "", "doc": column.doc}
    extra = {"title": column.title, "whole": column.type == "BIGINT"}
    return told | {name: value for name, value in extra.items() if value}


if __name__ == "__main__":
    main()
