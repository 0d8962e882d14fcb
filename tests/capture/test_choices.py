"""What is recorded, and where, by whose wish: on and off, redaction, sinks."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout, Sample, Tokens, capture
from rollscope.capture.settings import OPTIONS, setting

from . import reading


def tasks(store: Path) -> list[str]:
    return [r["task"] for r in reading.rollouts(store)]


# -- on and off ----------------------------------------------------------------------------


def test_nothing_happens_until_somebody_asks(own_store: Path) -> None:
    assert capture.active() is None
    assert capture.join(adapter="verl") is None
    assert not own_store.exists()


@pytest.mark.parametrize(("on", "asked"), [("on", False), ("", True)])
def test_an_adapter_begins_a_run_when_asked(
    own_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    on: str,
    asked: bool,
) -> None:
    monkeypatch.setenv("ROLLSCOPE", on)
    run = capture.join("p", "r", adapter="verl", version="0.9", seams=["plugin"], asked=asked)
    assert run is not None
    assert capture.join(adapter="verl", seams=["scores"]) is run is capture.active()
    run.finish()
    assert capture.active() is None
    (info,) = reading.infos(own_store)
    (adapter,) = info.adapters
    assert (adapter.name, adapter.version) == ("verl", "0.9")
    assert adapter.seams == ["plugin", "scores"]
    assert "recording p/r (verl through plugin)" in capfd.readouterr().err


def test_off_wins_over_everything(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    assert capture.join(adapter="verl", asked=True) is None
    with rollscope.init(project="p", run="r") as run:
        assert run.log(Rollout(task="t")) == []
        run.annotate("x", reward=1.0)
        run.metrics(1, {"a": 1})
        with run.rollout(task="t") as r:
            assert r.message("user", "x") is None
            assert r.id is None
    assert capture.child_env() == {"ROLLSCOPE": "off"}
    assert not own_store.exists()


def test_the_environment_wins_over_arguments(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_PROJECT", "env-project")
    monkeypatch.setenv("ROLLSCOPE_RUN", "env-run")
    monkeypatch.setenv("ROLLSCOPE_SAMPLE", "fraction=0")
    with rollscope.init(project="p", run="r", sample=Sample(fraction=1)) as run:
        run.log(Rollout(task="t"))
    assert (run.project, run.name) == ("env-project", "env-run")
    assert reading.infos(own_store)[0].counters.sampled_out == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROLLSCOPE", "maybe"),
        ("ROLLSCOPE_SAMPLE", "half"),
        ("ROLLSCOPE_SAMPLE", "fraction=2"),
        ("ROLLSCOPE_QUEUE", "lots"),
        ("ROLLSCOPE_SINKS", "nonsense"),
    ],
)
def test_a_bad_variable_warns_and_is_ignored(
    own_store: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    with rollscope.init(project="p", run="r") as run:
        run.log(Rollout(task="t"))
    assert tasks(own_store) == ["t"]
    assert name in caplog.text
    assert any(name in p.text for p in reading.infos(own_store)[0].problems)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sinks": ["nonsense"]}, ["nonsense", "trackio, mlflow, weave, otlp", "rollscope.init("]),
        ({"redact": "nonsense"}, ["nonsense", "email, key, phone, ip"]),
        ({"sample": 0.5}, ["rollscope.Sample("]),
        ({"project": ""}, ["project"]),
        ({"run": 7}, ["run=7"]),
    ],
)
def test_wrong_arguments_raise_and_say_what_to_type(
    arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        rollscope.init(**arguments)
    assert all(word in str(caught.value) for word in words)


def test_every_option_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS:
        monkeypatch.delenv(option.name, raising=False)
        assert setting(option.name) is None


# -- the guard -----------------------------------------------------------------------------


def test_an_internal_error_is_logged_once_counted_and_never_raised(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = rollscope.init(project="p", run="r")
    with monkeypatch.context() as broken:
        broken.setattr("rollscope.model.wire.rollout_line", lambda *a, **k: 1 / 0)
        broken.setattr("rollscope.model.wire.more_line", lambda *a, **k: 1 / 0)
        for _ in range(3):
            run.log(Rollout(task="t"))
            with run.rollout(task="u") as r:
                r.message("user", "x")
    run.finish()
    assert caplog.text.count("internal error in run.log") == 1
    (info,) = reading.infos(own_store)
    assert info.counters.dropped == {"could not be encoded": 6}
    assert [p.count for p in info.problems] == [3, 3]


def test_strict_raises_internal_errors(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")
    with rollscope.init() as run, pytest.raises(TypeError):
        run.log(42)  # type: ignore[arg-type]


def test_guard_swallows_as_context_and_as_decorator() -> None:
    @capture.guard("adapter x: hook")
    def hook() -> None:
        raise KeyError("uid")

    assert hook() is None
    with capture.guard("adapter x: hook"):
        raise KeyError("uid")
    with pytest.raises(KeyboardInterrupt), capture.guard("adapter x"):
        raise KeyboardInterrupt


def test_what_an_adapter_reports_is_kept_for_doctor(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    capture.report("adapter verl", "the hook could not attach")
    with rollscope.init(project="p", run="r"):
        pass
    assert "could not attach" in caplog.text
    (problem,) = reading.infos(own_store)[0].problems
    assert problem.text == "adapter verl: the hook could not attach"


# -- redaction -----------------------------------------------------------------------------


def test_redacted_text_never_reaches_the_disk(own_store: Path) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwx"
    config = {"api_key": secret, "layers": [1, 2, 3, 4]}
    redact = ["key", "email", lambda text: text.replace("Zürich", "-")]
    with rollscope.init(redact=redact, config=config) as run:
        message = Message(
            role="user", content=f"mail a.b@c.org {secret}", tokens=Tokens([1, 2], logprob=[0, 1])
        )
        clean = Message(role="assistant", content="fine", tokens=Tokens([3]))
        rollout = Rollout(
            task="t",
            messages=[message, clean],
            meta={"k": [secret]},
            reference="Zürich",
            sampling={"stop": [secret], "stop_token_ids": [1, 2, 3, 4]},
        )
        (id,) = run.log(rollout)
        run.annotate(id, note=f"see {secret}")
        with run.rollout(task="u") as r:
            r.message("tool", secret)
            with r.span("call", key=secret, prompt_ids=[1, 2, 3, 4, 5]) as span:
                span.outputs = {"nested": secret}
            r.set(meta={"secret": secret})
    text = str(reading.lines(own_store))
    assert secret not in text
    assert "a.b@c.org" not in text
    assert "Zürich" not in text
    assert reading.infos(own_store)[0].config == {"api_key": "[key]", "layers": [1, 2, 3, 4]}
    (got,) = [r for r in reading.rollouts(own_store) if r["task"] == "t"]
    assert got["messages"][0]["content"] == "mail [email] [key]"
    assert got["sampling"] == {"stop": ["[key]"], "stop_token_ids": [1, 2, 3, 4]}
    assert got["messages"][0]["tokens"] == {"logprob": [0.0, 1.0]}
    assert got["messages"][1]["tokens"] == {"ids": [3]}
    assert message.content == f"mail a.b@c.org {secret}"  # the trainer's own is untouched
    (live,) = [r for r in reading.rollouts(own_store) if r["task"] == "u"]
    assert live["spans"][0]["inputs"]["prompt_ids"].startswith("<5 whole numbers left out")


def test_a_secret_that_stands_beside_the_text_takes_the_tokens_with_it(own_store: Path) -> None:
    """Tokens, and their texts one by one, would spell out what was found in the whole."""
    around = {"before": "<system>mail ada@example.org<user>", "after": "<end>"}
    pieces = ("<system>", "mail ", "ada", "@example.org", "<user>")
    marks = {str(n): piece for n, piece in enumerate(pieces)}
    ids = [*range(len(pieces)), 90]
    made = [
        Message(role="user", content="hi", tokens=Tokens(ids), meta={**around, "marks": marks}),
        Message(role="user", content="hi", tokens=Tokens([4, 90]), meta={"marks": {"4": "<user>"}}),
    ]
    with rollscope.init(redact=["email"]) as run:
        run.log(Rollout(step=1, messages=made))
    ((beside, plain),) = [r["messages"] for r in reading.rollouts(own_store)]
    assert beside["meta"] == {"before": "<system>mail [email]<user>", "after": "<end>"}
    assert "ids" not in (beside.get("tokens") or {})
    assert plain["meta"] == {"marks": {"4": "<user>"}}
    assert plain["tokens"] == {"ids": [4, 90]}


def test_a_redactor_that_fails_drops_the_rollout_instead_of_writing_it(own_store: Path) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("no")

    with rollscope.init(redact=broken) as run:
        run.log(Rollout(task="t", messages=[Message(role="user", content="secret")]))
    assert tasks(own_store) == []
    assert reading.infos(own_store)[0].counters.dropped == {"could not be encoded": 1}


# -- sinks ---------------------------------------------------------------------------------


def test_sinks_that_cannot_start_are_told_and_recording_goes_on(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        time.sleep(0.5)  # the run is over before this is known
        raise OSError("no processes left")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    with rollscope.init(project="p", run="r", sinks=["trackio"]) as run:
        run.log(Rollout(task="t"))
    assert tasks(own_store) == ["t"]
    assert any("no processes left" in p.text for p in reading.infos(own_store)[0].problems)
    assert "not sent on (no processes left)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "there is no sink 'nonsense'. Known sinks: trackio, mlflow, weave, otlp"),
        ("trackio:nonsense=1", "no option 'nonsense'. It has: project, run, key, space_id"),
        ("trackio:groups_per_step=many", "groups_per_step=many"),
        ("trackio;trackio", "asked for twice"),
    ],
)
def test_a_bad_text_raises_in_init_and_only_warns_in_the_environment(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        rollscope.init(project="p", run="r", sinks=[text])
    monkeypatch.setenv("ROLLSCOPE_SINKS", text)
    with rollscope.init(project="p", run="r") as run:
        run.log(Rollout(task="t"))
    assert tasks(own_store) == ["t"]
    assert any(words in problem.text for problem in reading.infos(own_store)[0].problems)
    assert reading.infos(own_store)[0].forwarded_to == []
