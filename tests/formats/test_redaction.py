"""With `--redact`, no byte of any export holds a secret, whatever field it stood in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import rollscope
from rollscope import Message, Rollout, Span, Tokens
from rollscope.cli import main
from rollscope.formats import EXPORTERS
from rollscope.model import Error, Part, ToolCall
from rollscope.model.redact import make_redactor, redact_names, redact_text

FILES = ("jsonl", "sft", "pairs", "atif", "parquet", "hf", "scout")


class Secrets:
    """Every one is different, so that a leak names the field it came from."""

    def __init__(self) -> None:
        self.planted: dict[str, str] = {}

    def __call__(self, where: str) -> str:
        name = where.replace(".", "-")
        self.planted[where] = f"{name}@secret.example"
        return f"see {self.planted[where]} now"


def full(secret: Secrets, index: int) -> Rollout:
    """A rollout with a secret in every text that a rollout can have."""
    s = lambda where: secret(f"{where}{index}")  # noqa: E731
    call = ToolCall(id=s("call.id"), name=s("call.name"), arguments={s("arg.key"): [s("arg")]})
    text = ToolCall(id="c2", name="f", arguments=json.dumps({"to": s("text.arg")}))
    escaped = json.dumps({"to": s("escaped.arg")}).replace("@", "\\u0040")
    parts = [
        Part(type="text", text=s("part.text")),
        Part(type="reasoning", text=s("reasoning")),
        Part(type="image", image=f"http://x/?m={s('image').split()[1]}"),
        Part(type=s("part.type"), data={s("part.key"): s("part.data")}),
        Part(type="tool_call", call=ToolCall(id="c3", name="g", arguments=s("part.call"))),
        Part(type="tool_result", id=s("part.id"), text=s("result")),
    ]
    tokens = Tokens([7, 8, 9], ends=[1, 2, 3], logprob=[-0.1] * 3, **{s("stream"): [1.0] * 3})
    return Rollout(
        key=s("key"), step=1, split="see split@secret.example", dataset=s("dataset"),
        task=s("task"),
        group="see group@secret.example", index=index, reward=float(index),
        rewards={s("rewards.name"): 1.0}, reward_texts={s("judge.name"): s("judge")},
        stop_reason=s("stop"), fate="failed", fate_reason=s("fate.reason"),
        error=Error(kind="tool", type=s("error.type"), text=s("error")),
        sampling={s("sampling.key"): s("sampling")}, reference={s("reference.key"): s("reference")},
        environment=s("environment"),
        meta={s("meta.key"): {"deep": [s("meta")]}, "model": s("model"), "tools": [
            {"type": "function", "name": "f", "description": s("tools")}]},
        messages=[
            Message(role="system", content="see prompt@secret.example"),
            Message(role="user", content="ask", name="see name@secret.example"),
            Message(role="assistant", content=parts, tool_calls=[call, text], tokens=tokens,
                    sampled=True, stop_reason=s("message.stop"), state={s("state.key"): s("state")},
                    meta={s("message.meta.key"): s("message.meta")}),
            Message(role="assistant", sampled=True, content="ok",
                    tool_calls=[ToolCall(id="c4", name="f", arguments=escaped)]),
            Message(role="tool", name=s("tool.name"), tool_call_id=s("tool.id"), content=s("tool")),
            Message(role=s("role"), content="x"),
            Message(role="assistant", content=s("final"), sampled=True, tokens=Tokens([4, 5, 6])),
        ],
        spans=[
            Span(name=s("span.name"), id=s("span.id"), parent=s("span.parent"),
                 inputs={s("span.key"): s("span.in")}, outputs=s("span.out"),
                 error=Error(type=s("span.error.type"), text=s("span.error")),
                 meta={s("span.meta.key"): s("span.meta")}),
        ],
    )  # fmt: skip


@pytest.fixture
def planted(own_store: Path) -> Secrets:
    secret = Secrets()
    secret.planted |= {
        n: f"{n}@secret.example" for n in ("group", "split", "prompt", "name", "query")
    }
    project, name, worker = secret("project"), secret("run"), secret("worker")
    with rollscope.init(project=project, run=name, config={"who": secret("config")}) as run:
        rollouts = [full(secret, index) for index in range(2)]
        for rollout in rollouts:
            rollout.worker = worker
        run.log(rollouts)
        for rollout in rollouts:
            run.annotate(
                key=rollout.key,
                author=secret("author"),
                note=secret("own.note"),
                **{f"label.{secret('label')}": secret("note"), f"flag.{secret('flag')}": True},
            )
        run.metrics(1, {secret("metric.name"): 0.5})
    return secret


def everything(path: Path) -> Iterator[tuple[Path, bytes]]:
    """The bytes of an export: as they lie, and as a reader of the format sees them."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            yield file, str(file.relative_to(path)).encode() + b"\0" + file.read_bytes()
            if file.suffix == ".parquet":
                db = duckdb.connect()
                rows = db.execute(f"SELECT * FROM '{file}'").fetchall()
                yield file, repr(rows).encode()


@pytest.mark.parametrize("name", FILES)
def test_no_byte_of_an_export_holds_a_secret(
    name: str, planted: Secrets, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["export", name, '-"query@secret.example"', "--redact", "emails", "--out", str(out)]
    assert main(words) == 0, capfd.readouterr().err
    assert not out.with_name("out.partial").exists(), "the key of the hashes is gone"
    found = list(everything(out))
    leaks = {
        where
        for _, data in found
        for where, secret in planted.planted.items()
        if secret.encode() in data or secret.replace("@", "\\u0040").encode() in data
    }
    assert leaks == set()
    assert any(b"[email]" in data for _, data in found), "the rest of the texts is still there"


@pytest.mark.parametrize("name", FILES)
def test_the_secrets_are_there_without_redaction(
    name: str, planted: Secrets, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert main(["export", name, "--out", str(out)]) == 0
    data = b"".join(data for _, data in everything(out))
    found = {where for where, secret in planted.planted.items() if secret.encode() in data}
    assert "final1" in found
    never = {"query", "config", "escaped.arg0", "escaped.arg1"}  # escaped: told apart below
    only_facts = {"author", "note", "own.note", "metric.name"}
    if name in ("jsonl", "parquet"):
        missing = set(planted.planted) - found
        assert missing == never | (only_facts if name == "jsonl" else set())
        assert b"u0040secret" in data


def test_every_file_format_was_tried() -> None:
    sinks = {"trackio", "mlflow", "weave", "otlp"}
    assert set(EXPORTERS) - sinks == set(FILES)


def test_redacted_messages_lose_their_token_ids_and_others_keep_them(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(
            Rollout(
                messages=[
                    Message(role="user", content="hi", tokens=Tokens([1, 2], logprob=[0.0, 0.0])),
                    Message(
                        role="assistant",
                        content="a@b.example",
                        tokens=Tokens([3], logprob=[-1.0], other=[5.0]),
                    ),
                ]
            )
        )
    capfd.readouterr()
    assert main(["export", "jsonl", "--redact", "email"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    kept, cleaned = json.loads(line)["messages"]
    assert kept["tokens"] == {"ids": [1, 2], "logprob": [0.0, 0.0]}
    assert cleaned["tokens"] == {"logprob": [-1.0]}


def test_redacted_names_still_tell_groups_apart(
    own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="p", run="r") as run:
        for task in ("a@b.example", "c@d.example", "a@b.example", "plain"):
            run.log(Rollout(task=task, messages=[Message(role="user", content="x")]))
    capfd.readouterr()
    assert main(["export", "jsonl", "--redact", "email"]) == 0
    tasks = [json.loads(line)["task"] for line in capfd.readouterr().out.splitlines()]
    assert len(set(tasks)) == 3
    assert sorted(tasks)[-1] == "plain"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("emails,keys", ["emails", "keys"]),
        ("email, key ,", ["email", "key"]),
        ("emails,regex=a{1,2},b", ["emails", "regex=a{1,2},b"]),
        ("regex=x", ["regex=x"]),
    ],
)
def test_names_of_patterns_stand_in_one_text(text: str, names: list[str]) -> None:
    assert redact_names(text) == names
    clean = make_redactor(names)
    assert make_redactor(redact_names(redact_text(names)))("aa,b x") == clean("aa,b x")


def test_several_regexes_survive_the_way_through_the_environment() -> None:
    names = ["regex=q+", "email", "regex=b,c"]
    clean = make_redactor(redact_names(redact_text(names)))
    assert clean("xqqy b,c m@n.example") == "x[redacted]y [redacted] [email]"
