"""Text from rollouts that a terminal would obey is shown by every command, never sent on."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path

import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall

EVIL = "e\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil\x07\x9b31m\u202elive\u2066\r\x08x"


def rollout(index: int) -> Rollout:
    """With the escapes in every field that takes text."""
    error = Error(kind=EVIL, type=EVIL, text=EVIL)
    said = f"{EVIL} {index}"
    return Rollout(
        id=f"{index}{EVIL}",
        step=1,
        split=EVIL,
        dataset=EVIL,
        task=EVIL,
        group=EVIL,
        index=index,
        reward=float(index),
        rewards={EVIL: 1.0},
        reward_texts={EVIL: EVIL},
        stop_reason=EVIL,
        fate=EVIL,
        fate_reason=EVIL,
        error=error,
        environment=EVIL,
        reference=EVIL,
        sampling={EVIL: EVIL},
        meta={EVIL: {EVIL: said}},
        messages=[
            Message(role=EVIL, name=EVIL, content=EVIL, stop_reason=EVIL),
            Message(
                role="user",
                content=[Part(type=EVIL, data={EVIL: EVIL}), Part(type="image", image=EVIL)],
            ),
            Message(
                role="assistant",
                content=said,
                sampled=True,
                tokens=Tokens(
                    [1, 2], ends=[3, len(said)], **{"logprob": [-1.0, -2.0], EVIL: [1.0, 2.0]}
                ),
                tool_calls=[ToolCall(id=EVIL, name=EVIL, arguments={EVIL: EVIL})],
            ),
        ],
        spans=[Span(name=EVIL, id="s", start=1.0, end=2.0, error=error)],
    )


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    with rollscope.init(project=EVIL, run=EVIL, dir=tmp_path, config={EVIL: EVIL}) as run:
        ids = run.log([rollout(index) for index in range(2)])
        run.annotate(ids[0], label=EVIL, note=EVIL, author=EVIL)
        run.metrics(1, {EVIL: 1.0})
    return ids


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "step:1"],
        ["grep", "live"],
        ["grep", "/l.ve/"],
        ["tail", "--once"],
        ["show", "A"],
        ["show", "A", "--full"],
        ["show", "A", "--tokens", "logprob"],
        ["show", "A", "--tokens", EVIL],
        ["show", "A", "--tokens", "none"],
        ["show", EVIL],
        ["group", "A"],
        ["task", EVIL],
        ["task", "none"],
        ["tasks"],
        ["tasks", "--across", "run", "--compare", EVIL, "x"],
        ["diff", "A", "B"],
        ["diff", "A", "B", "--full"],
        ["doctor"],
        ["compact"],
        ["rm", f"{EVIL}/{EVIL}"],
        ["rm", f"{EVIL}/{EVIL}", "--yes"],
        ["ls", f"nokey:{EVIL}"],
        ["bundle", "--out", "OUT"],
    ],
    ids=lambda words: " ".join(words).replace(EVIL, "EVIL"),
)
def test_no_command_sends_an_escape_to_the_terminal(
    ids: list[str],
    words: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    known = {"A": ids[0], "B": ids[1], "OUT": str(tmp_path / "out")}
    capfd.readouterr()
    main([*(known.get(word, word) for word in words), "--dir", str(tmp_path)])
    said = "".join(capfd.readouterr())
    assert said
    odd = {char for char in said if unicodedata.category(char) in ("Cc", "Cf") and char != "\n"}
    assert not odd, ascii(said)
