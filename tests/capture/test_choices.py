"""What is recorded, where and by whose wish: on and off, samples, redaction, launches, sinks."""

from __future__ import annotations

import os
import re
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout, Sample, Tokens, capture
from rollscope.capture import begin
from rollscope.capture.launch import launch_name, worker_name
from rollscope.capture.settings import OPTIONS, setting
from rollscope.capture.setup import resolve

from . import children, reading


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


# -- samples -------------------------------------------------------------------------------


def batch(step: int, groups: int = 20, size: int = 4) -> list[Rollout]:
    return [
        Rollout(step=step, split="train", task=f"q-{g}", index=i)
        for g in range(groups)
        for i in range(size)
    ]


def kept(store: Path, step: int | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in reading.rollouts(store):
        if step is None or r["step"] == step:
            found[r["task"]] = found.get(r["task"], 0) + 1
    return found


def test_a_batch_keeps_an_exact_number_of_whole_groups(own_store: Path) -> None:
    with rollscope.init(sample=Sample(groups_per_step=3)) as run:
        run.log(batch(1))
        run.log(batch(2))
    assert list(kept(own_store, 1).values()) == [4, 4, 4]
    assert list(kept(own_store, 2).values()) == [4, 4, 4]
    assert kept(own_store, 1) != kept(own_store, 2)
    assert reading.infos(own_store)[0].counters.sampled_out == 2 * 68


def test_whole_groups_win_over_an_exact_count_of_rollouts(own_store: Path) -> None:
    with rollscope.init(sample=Sample(rollouts_per_step=6)) as run:
        run.log(batch(1))
    assert list(kept(own_store).values()) == [4, 4]


def test_every_worker_makes_the_same_choice_however_rollouts_come(tmp_path: Path) -> None:
    stores = [tmp_path / name for name in ("batch", "one by one", "reversed")]
    for store in stores:
        with rollscope.init(dir=store, sample=Sample(fraction=0.3, seed=5)) as run:
            if store.name == "batch":
                run.log(batch(1))
            for rollout in {"one by one": batch(1), "reversed": batch(1)[::-1]}.get(store.name, []):
                run.log(rollout)
    first, second, third = map(kept, stores)
    assert first == second == third
    assert 0 < len(first) < 20
    assert set(first.values()) == {4}


@pytest.mark.parametrize(
    ("sample", "groups"),
    [(Sample(groups_per_step=3), 3), (Sample(rollouts_per_step=10), 3), (Sample(fraction=0.5), 0)],
)
def test_workers_that_share_a_batch_keep_the_same_groups_whole(
    tmp_path: Path, sample: Sample, groups: int
) -> None:
    """Two workers with every other rollout of each group, in two batches of one step."""
    found: Counter[str] = Counter()
    for worker in (0, 1):
        store = tmp_path / str(worker)
        with rollscope.init(dir=store, sample=sample) as run:
            for n in (0, 1):
                whole = [
                    Rollout(step=1, split="train", task=f"{n}-{g}", group=f"{n}-{g}", index=i)
                    for g in range(8)
                    for i in range(4)
                ]
                sizes = {f"{n}-{g}": 4 for g in range(8)}
                run.log(whole[worker::2], groups=sizes)
        found.update(kept(store))
    assert set(found.values()) == {4}
    assert len(found) == groups or (not groups and 0 < len(found) < 16)


def test_live_rollouts_are_sampled_too(own_store: Path) -> None:
    with rollscope.init(sample=Sample(groups_per_step=2)) as run:
        for group in range(5):
            for index in range(3):
                with run.rollout(step=1, task=f"q-{group}", index=index) as r:
                    r.message("user", "x")
    assert kept(own_store) == {"q-0": 3, "q-1": 3}


def test_facts_about_rollouts_that_were_left_out_are_left_out(own_store: Path) -> None:
    """Else they would be facts without a rollout, which look like a fault of the recording."""
    with rollscope.init(sample=Sample(groups_per_step=1)) as run:
        run.log([Rollout(step=1, task=f"t{n}", key=f"k{n}") for n in range(5)])
        for n in range(5):
            run.annotate(key=f"k{n}", advantage=float(n))
    (kept,) = reading.rollouts(own_store)
    assert [fact["rollout"] for fact in reading.facts(own_store)] == [kept["id"]]


def test_failed_rollouts_of_a_batch_are_kept_besides(own_store: Path) -> None:
    failed = Rollout(step=1, task="bad", fate="failed")
    with rollscope.init(sample=Sample(fraction=1e-9)) as run:
        run.log([*batch(1), failed])
    assert kept(own_store) == {"bad": 1}


def test_a_sample_that_cannot_judge_records_everything(own_store: Path) -> None:
    odd: Any = [1, 2]
    with rollscope.init(sample=Sample(fraction=0.5)) as run:
        run.log([Rollout(step=odd, task="t"), Rollout(step=1, task="u")])
    assert "u" in tasks(own_store)
    assert any("sampling" in p.text for p in reading.infos(own_store)[0].problems)


def test_zero_is_none_and_none_is_all(own_store: Path) -> None:
    with rollscope.init(run="none", sample=Sample(groups_per_step=0)) as run:
        run.log([*batch(1), Rollout(step=1, task="bad", fate="failed")])
    assert kept(own_store) == {}
    with rollscope.init(run="all", sample=Sample()) as run:
        run.log(batch(1))
    assert len(kept(own_store)) == 20


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
        run.log(rollout)
        run.annotate(rollout.id, note=f"see {secret}")
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


def test_a_redactor_that_fails_drops_the_rollout_instead_of_writing_it(own_store: Path) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("no")

    with rollscope.init(redact=broken) as run:
        run.log(Rollout(task="t", messages=[Message(role="user", content="secret")]))
    assert tasks(own_store) == []
    assert reading.infos(own_store)[0].counters.dropped == {"could not be encoded": 1}


# -- launches ------------------------------------------------------------------------------


def test_a_launch_is_found_without_talking(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = launch_name()
    assert alone == launch_name()
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    first = launch_name()
    assert "slurm-77" in first
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    requeued = launch_name()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    torch = launch_name()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    restarted = launch_name()
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "mine")
    assert len({alone, first, requeued, torch, restarted, launch_name()}) == 6
    assert launch_name() == "mine"


def test_the_same_torchrun_id_given_again_is_another_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = launch_name()
    monkeypatch.setattr("rollscope.capture.launch.process_start", lambda pid: "another agent")
    assert launch_name() != first


def test_ray_session_and_job_name_the_launch_of_a_stand_in_for_ray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for Ray's module: Ray itself is tested with the trainers."""
    node = types.SimpleNamespace(session_name="session_2026")
    worker = types.SimpleNamespace(global_worker=types.SimpleNamespace(node=node))
    ray: Any = types.SimpleNamespace(
        is_initialized=lambda: True,
        get_runtime_context=lambda: types.SimpleNamespace(get_job_id=lambda: "01"),
        _private=types.SimpleNamespace(worker=worker),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert launch_name() == "session_2026-job01"


def test_processes_that_this_one_starts_share_its_launch(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "")
    with rollscope.init(project="p", run="r") as run:
        code = 'rollscope.init(project="p", run="r").annotate(key="k", advantage=0.5)'
        children.told(children.start(code))
        (id,) = run.log(Rollout(key="k", task="t"))
    assert {i.launch for i in reading.infos(own_store)} == {run.launch}
    (fact,) = reading.facts(own_store)
    assert fact["rollout"] == id  # one process logs, another annotates by key


def test_plain_processes_have_launches_of_their_own(own_store: Path) -> None:
    code = 'run = rollscope.init(project="p", run="r"); run.log(Rollout(step=1, task="t", index=0))'
    for _ in range(3):
        children.told(children.start(code))
    assert len({i.launch for i in reading.infos(own_store)}) == 3
    assert len(reading.rollouts(own_store)) == 3


def test_a_run_without_a_name_is_shared_by_its_launch(own_store: Path) -> None:
    with rollscope.init() as run:
        children.told(children.start("rollscope.init()"))
    assert {(i.project, i.run) for i in reading.infos(own_store)} == {("default", run.launch)}


def test_child_env_carries_a_run_to_another_machine(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rollscope.init(
        project="p", run="r", dir=own_store / "x", sample=Sample(groups_per_step=2), redact="email"
    ) as run:
        env = capture.child_env()
    assert env == {
        "ROLLSCOPE": "on",
        "ROLLSCOPE_DIR": str(own_store / "x"),
        "ROLLSCOPE_PROJECT": "p",
        "ROLLSCOPE_RUN": "r",
        "ROLLSCOPE_LAUNCH": run.launch,
        "ROLLSCOPE_SAMPLE": "groups_per_step=2,seed=0",
        "ROLLSCOPE_REDACT": "email",
        "ROLLSCOPE_MIN_FREE": "0",
        "ROLLSCOPE_SEAL": "off",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    joined = capture.join("ignored", "ignored", adapter="x")
    assert joined is not None
    assert joined.setup._replace(redactor=None) == run.setup._replace(
        redactor=None, redact=["email"]
    )
    joined.finish()


def test_a_worker_is_named_after_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_name().endswith(f":{os.getpid()}")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert worker_name() == "rank3"


# -- sinks ---------------------------------------------------------------------------------


def test_sinks_that_cannot_start_are_told_and_recording_goes_on(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no processes left")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setenv("ROLLSCOPE_SINKS_WAIT", "0")
    with rollscope.init(project="p", run="r", sinks=["trackio"]) as run:
        run.log(Rollout(task="t"))
    assert tasks(own_store) == ["t"]
    assert any("no processes left" in p.text for p in reading.infos(own_store)[0].problems)


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


def test_children_are_told_the_sinks_as_they_were_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = "trackio:space_id=u/s,groups_per_step=8"
    setup = resolve(
        "p", "r", dir=None, config=None, sample=None, redact=None, sinks=[asked], worker=None
    )
    run = rollscope.Run(setup, is_off=False)
    monkeypatch.setattr(begin, "_runs", [run])
    assert capture.child_env()["ROLLSCOPE_SINKS"] == asked
