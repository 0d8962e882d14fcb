"""`scan` and `findings`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


LOOP = "wait, no. " * 2000


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_store: Path) -> Any:
    monkeypatch.setenv("COLUMNS", "80")
    with rollscope.init(project="p", run="r") as run:
        for n, said in enumerate((LOOP, "42", "43")):
            message = Message(role="assistant", content=said)
            run.log(Rollout(id=f"r{n}", step=1, task="t", index=n, reward=n, messages=[message]))

    def typed(*words: str) -> Said:
        capfd.readouterr()
        code = main([*words, "--dir", str(own_store)])
        return Said(code, *capfd.readouterr())

    return typed


def test_before_a_scan_nobody_has_looked(cli: Any) -> None:
    said = cli("findings")
    assert (said.code, "rollscope scan looks at the rest" in said.err) == (0, True)
    (row,) = [row for row in cli("findings", "--json").rows if row["check"] == "reply.loop"]
    assert (row["found"], row["clear"], row["unobserved"], row["unlooked"]) == (0, 0, 0, 3)


def test_a_scan_says_what_it_did_and_findings_are_counted_and_listed(cli: Any) -> None:
    said = cli("scan", "--processes", "1")
    assert said.code == 0 and "looked at 3 rollouts and 1 group:" in said.err
    assert "nothing new to look at" in cli("scan", "--processes", "1").err
    (row,) = [row for row in cli("findings", "--json").rows if row["check"] == "reply.loop"]
    assert (row["found"], row["found"] + row["clear"] + row["unobserved"]) == (1, 3)
    table = cli("findings").out
    assert "reply.loop" in table and max(map(len, table.splitlines())) <= 80
    said = cli("findings", "--check", "reply.loop")
    assert said.code == 0 and said.out.startswith("r0  step 1, message 0  ")
    (listed,) = cli("findings", "--check", "reply.loop", "--json").rows
    assert (listed["rollout"], listed["end"]) == ("r0", len(LOOP))
    assert "⚑" in cli("ls", "flag:reply.loop").out or "r0" in cli("ls", "flag:reply.loop").out


def test_wrong_use_is_told(cli: Any, own_store: Path) -> None:
    said = cli("findings", "--check", "reply.lop")
    assert said.code == 2 and "there is no check 'reply.lop'" in said.err
    assert cli("findings", "--check", "reply.loop").code == 1
    (own_store / "checks.toml").write_text("[reply.loop]\nratio = 'much'\n")
    said = cli("scan")
    assert said.code == 2 and "ratio is a number, not 'much'" in said.err


def test_the_doctor_tells_what_is_wrong_with_the_record_and_how_much_was_looked_at(
    cli: Any, own_store: Path
) -> None:
    said = cli("doctor")
    assert said.code == 0 and "no check has looked yet" in said.out
    said = cli("doctor", "--scan")
    assert said.code == 0, "behaviour is no business of the doctor"
    assert "checks looked whether the record is right; 0 found something" in said.out
    assert "checks could not look, because the evidence was not recorded" in said.out
    with rollscope.init(project="p", run="wrong") as run:
        message = Message(role="assistant", content="42")
        run.log(Rollout(id="bad", step=1, messages=[message], reward=1.0, fate="trained"))
        run.log(Rollout(id="none", step=1, messages=[message], fate="scored"))
    assert "2 rollouts that not every check has looked at" in cli("doctor").out
    said = cli("doctor", "--scan")
    assert said.code == 1 and "error" in said.out and "fate.contradiction" in said.out
    rows = {row["text"]: row for row in cli("doctor", "--json").rows}
    (wrong,) = [row for text, row in rows.items() if text.startswith("fate.contradiction")]
    assert (wrong["level"], wrong["run"]) == ("error", "p/wrong") and "e.g. none" in wrong["text"]
    store = rollscope.open(own_store)
    with rollscope.init(project="p", run="wrong") as run:
        for finding in store.findings("run:wrong"):
            run.annotate(str(finding.rollout), flag={finding.check: False})
    assert cli("doctor").code == 0, "a person took it back"
