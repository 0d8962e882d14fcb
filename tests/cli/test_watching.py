"""`rollscope watch`, as a script uses it beside a training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.checks.watching import EVERY
from rollscope.cli import main
from rollscope.model import Tokens

Start = Callable[..., "subprocess.Popen[str]"]


def log(run: rollscope.Run, steps: range, *, cut: bool = False, logprob: float = -1.0) -> None:
    tokens = Tokens([1, 2], logprob=[logprob, logprob])
    for step in steps:
        for n in range(40):
            said = Message(role="assistant", content="ab", sampled=True, tokens=tokens)
            run.log(Rollout(step=step, task=f"t{n // 4}", index=n % 4, reward=float(n % 2),
                            truncated=cut and n > 5, messages=[said]))  # fmt: skip
    run.flush()


@pytest.fixture
def start(own_store: Path) -> Iterator[Start]:
    """Starts the command in a process of its own."""
    begun: list[subprocess.Popen[str]] = []

    def started(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rollscope", "watch", *words, "--dir", str(own_store)]
        begun.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "COLUMNS": "80"},
            )
        )  # fmt: skip
        return begun[-1]

    yield started
    for process in begun:
        process.kill()
        process.communicate()


def test_alarms_are_told_while_the_run_goes_on_and_each_once(own_store: Path, start: Start) -> None:
    with rollscope.init(project="p", run="it's") as run:
        log(run, range(15))
        watching = start("it's", "--json")
        assert watching.stdout is not None
        log(run, range(15, 20), cut=True)
        first = json.loads(watching.stdout.readline())
        assert first["check"] == "run.truncation" and "it's" in first["query"]
        assert 15 <= first["step"] < 20
        log(run, range(20, 35), cut=True, logprob=-0.001)
        second = json.loads(watching.stdout.readline())
        assert second["check"] == "run.entropy_collapse", "made of what a scan beside it notes"
        assert watching.poll() is None, "the run goes on"
        assert {row.step for row in rollscope.open(own_store).rollouts(second["query"])}
    out, err = watching.communicate(timeout=120)
    assert (watching.returncode, out) == (0, ""), "each onset is told once"
    assert "p/it's is over: 2 alarms" in err
    assert EVERY <= 2.0, "what is on disk is told within five seconds"


def test_an_alarm_that_was_asked_for_ends_it_with_a_code_of_its_own(
    own_store: Path, start: Start
) -> None:
    own_store.mkdir()
    watching = start("r", "--fail-on", "run.truncation")
    assert watching.stderr is not None
    assert "waiting for a run 'r'" in watching.stderr.readline()
    with rollscope.init(project="p", run="r") as run:
        log(run, range(15))
        log(run, range(15, 25), cut=True)
        out, err = watching.communicate(timeout=120)
        assert watching.returncode == 3, err
    assert "run.truncation" in out and "rollscope ls 'project:p run:r" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["watch", "p/r", "--dir", str(own_store)]) == 0, "over, and nothing was asked for"


def test_once_tells_what_there_is(own_store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> tuple[int, str, str]:
        return main(["watch", *words, "--once", "--dir", str(own_store)]), *capfd.readouterr()

    with rollscope.init(project="p", run="r") as run:
        log(run, range(15))
        log(run, range(15, 30), cut=True, logprob=-0.001)
        code, out, err = typed("r", "--json")
        found = [json.loads(line)["check"] for line in out.splitlines()]
        assert (code, sorted(found)) == (0, ["run.entropy_collapse", "run.truncation"])
        assert "p/r goes on: 2 alarms" in err
    assert typed("r", "--fail-on", "run.gap")[0] == 0
    assert typed("r", "--fail-on", "run.gap", "--fail-on", "run.truncation")[0] == 3
    code, _, err = typed("r", "--fail-on", "reply.loop")
    assert code == 2 and "'reply.loop' raises no alarm here; these do: run.ceiling" in err
    code, _, err = typed("s")
    assert code == 1 and "no run 's'" in err
    with rollscope.init(project="q", run="r"):
        pass
    code, _, err = typed("r")
    assert code == 2 and "p/r, q/r" in err
    (own_store / "checks.toml").write_text("[run.truncation]\nsigmas = 'many'\n")
    code, _, err = typed("p/r")
    assert code == 2 and "sigmas is a number" in err
