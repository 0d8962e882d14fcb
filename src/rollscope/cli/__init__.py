"""The command `rollscope`.

    rollscope ls                      the runs; with a query, the rollouts it finds
    rollscope show ID                 read one rollout
    rollscope grep 'reward:<0.2 "sys.exit"'

Every command takes `--dir` (default: $ROLLSCOPE_DIR, else ~/.rollscope) and `--json`.
Exit codes: 0 done, 1 nothing found or a check failed, 2 wrong use, 3 an alarm of `watch --fail-on`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "demo": ("running", "train a small policy and look at its rollouts"),
    "view": ("running", "open the viewer"),
    "serve": ("running", "serve the viewer for a team"),
    "ls": ("finding", "list runs; with a query, rollouts"),
    "grep": ("finding", "list the rollouts that a query finds, with the words it found"),
    "tail": ("finding", "follow new rollouts"),
    "group": ("finding", "show the siblings of a rollout, side by side"),
    "task": ("finding", "show one task through training"),
    "tasks": ("crossing", "show tasks against runs, steps or models"),
    "fate": ("counting", "what became of rollouts, and why"),
    "failures": ("counting", "what failed, and by whose fault"),
    "show": ("reading", "read one rollout"),
    "diff": ("reading", "show where two rollouts part"),
    "scan": ("checking", "let checks look at what nobody has looked at yet"),
    "findings": ("checking", "what checks found: a table, or the findings of one check"),
    "watch": ("checking", "print the alarms of a run as they arise"),
    "import": ("importing", "bring in rollouts that other programs wrote"),
    "export": ("exporting", "write rollouts for other programs and systems"),
    "files": ("exporting", "list the Parquet files of a table, for other engines"),
    "bundle": ("running", "make a static site of rollouts for any web server or bucket"),
    "compact": ("keeping", "merge small files, seal the logs of dead writers"),
    "rm": ("keeping", "remove a run"),
    "docs": ("docs", "read the documentation"),
    "doctor": ("keeping", "check that everything is recorded, readable and consistent"),
}
"""Each command: the module it lives in, and what it does."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="rollscope",
        description="Find, read, compare and explain every rollout of RL training.",
        epilog='Queries: reward:<0.2 step:100..200 split:eval fate:dropped "exact words". '
        "See rollscope docs query; all pages: rollscope docs.",
    )
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, help) in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        command.add_argument("--dir", help="the store (default: $ROLLSCOPE_DIR, else ~/.rollscope)")
        command.add_argument("--json", action="store_true", help="print JSON lines")
        command.set_defaults(module=module)
        importlib.import_module(f"{__name__}.{module}").arguments(name, command)
    return top


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """argparse, but the words of a query may stand behind options and may begin with `-`. So may
    the value of `--order`: `--order -advantage`."""
    words = list(sys.argv[1:] if argv is None else argv)
    for at in [n for n, word in enumerate(words[:-1]) if word == "--order"][::-1]:
        words[at : at + 2] = [f"--order={words[at + 1]}"]
    args, rest = parser().parse_known_args(words)
    if rest and (not hasattr(args, "query") or any(word.startswith("--") for word in rest)):
        parser().error(f"not understood: {' '.join(rest)} (rollscope {args.command} --help)")
    if rest:
        args.query += rest
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code of the process."""
    from .output import Failed, end_output, say, speak_plainly

    speak_plainly()
    args = _parse(argv)
    try:
        code = _run(args)
        if (unsaid := end_output()) is not None:
            raise unsaid
        return code
    except Failed as error:
        say(f"rollscope {args.command}: {error}")
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `rollscope grep ... | head`
        end_output()
        return 0
    except OSError as error:  # a full disk, a folder that is not ours
        end_output()
        where = f"{error.filename}: " if error.filename else ""
        why = error.strerror or str(error) or type(error).__name__
        say(f"rollscope {args.command or '--version'}: {where}{why}")
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.version:
        from ..server.version import VERSION

        print(f"rollscope {VERSION}")
        return 0
    if args.command is None:
        parser().print_help()
        return 2
    module = importlib.import_module(f"{__name__}.{args.module}")
    code = getattr(module, args.command.replace("import", "import_"))(args)
    return int(code or 0)
