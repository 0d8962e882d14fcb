"""What a driver asks for holds in the actors of a cluster that was started without it."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray
from world import (
    Engine,
    Grader,
    dataset_rows,
    legacy_batch,
    lines,
    make_config,
    wait_for,
)

import rollscope
from rollscope import Sample, capture
from rollscope.adapters.verl.choice import Choice

WORKERS = "actor_rollout_ref.rollout.agent.num_workers=2"
ASKED = {
    "ROLLSCOPE_PROJECT": "maths",
    "ROLLSCOPE_RUN": "tiny/1",
    "ROLLSCOPE_LAUNCH": "third",
    "ROLLSCOPE_SAMPLE": "groups_per_step=3,fraction=0.5,seed=7",
    "ROLLSCOPE_REDACT": "email,paper:hush",
}


@ray.remote
class Probe:
    """A process of the job that nobody told anything, asked by an adapter of its own."""

    def __init__(self) -> None:
        self.before = {k: v for k, v in os.environ.items() if k.startswith("ROLLSCOPE")}

    def joined(self, asked: bool = False) -> dict[str, Any] | None:
        run = capture.join("other", "names", adapter="probe", asked=asked)
        if run is None:
            return None
        setup = run.setup
        return {
            "before": self.before,
            "dir": str(setup.root),
            "names": (setup.project, setup.run, setup.launch),
            "sample": str(setup.sample),
            "redact": list(setup.redact or ()),
            "sinks": ";".join(setup.sinks),
            "pid": os.getpid(),
        }

    def record(self, text: str) -> str:
        run = capture.active()
        (id,) = run.log(rollscope.Rollout(step=1, task="t", messages=[text_message(text)]))
        run.finish()
        return id


def text_message(text: str) -> Any:
    return rollscope.Message(role="user", content=text)


def sinks(folder: Path) -> str:
    return f"paper:path={folder}/a,colour=blue;scroll:path={folder}/b"


def expected(store: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "before": {},
        "dir": str(store),
        "names": ("maths", "tiny/1", "third"),
        "sample": "groups_per_step=3,fraction=0.5,seed=7",
        "redact": ["email", "paper:hush"],
        "sinks": sinks(tmp_path),
    }


def test_what_the_environment_asks_for_is_in_force_in_an_actor(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request
) -> None:
    settings = {"ROLLSCOPE": "on", "ROLLSCOPE_SINKS": sinks(tmp_path), **ASKED}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    request.getfixturevalue("connected")
    found = ray.get(Probe.remote().joined.remote())
    assert found.pop("pid") != os.getpid()
    assert found == expected(own_store, tmp_path)


def test_what_init_asks_for_is_in_force_in_an_actor_and_works_there(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: None
) -> None:
    monkeypatch.setenv("ROLLSCOPE_LAUNCH", "third")
    run = rollscope.init(
        project="maths",
        run="tiny/1",
        sample=Sample(groups_per_step=3, fraction=0.5, seed=7),
        redact=["email", "paper:hush"],
        sinks=sinks(tmp_path).split(";"),
    )
    found = ray.get(Probe.remote().joined.remote())
    assert found.pop("pid") != os.getpid()
    assert found == expected(own_store, tmp_path)
    run.finish()
    # A second run of the driver is another one for actors that begin then.
    rollscope.init(project="maths", run="2", sinks=sinks(tmp_path).split(";"))
    probe = Probe.remote()
    again = ray.get(probe.joined.remote())
    assert (again["names"][:2], again["sample"], again["redact"]) == (("maths", "2"), "None", [])
    id = ray.get(probe.record.remote("to both sinks"))
    capture.active().finish()  # the last process of the run: forwarding comes to its end
    wait_for(own_store, lambda _: all(_has(tmp_path / name, id) for name in "ab"))


def _has(file: Path, id: str) -> bool:
    return file.exists() and id in file.read_text().split()


def test_off_reaches_actors_and_wins_there(
    monkeypatch: pytest.MonkeyPatch, own_store: Path, request
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    request.getfixturevalue("connected")
    assert ray.get(Probe.remote().joined.remote(asked=True)) is None
    assert not own_store.exists()


def test_what_is_set_in_the_actor_itself_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "on")
    monkeypatch.setenv("ROLLSCOPE_PROJECT", "maths")
    monkeypatch.setenv("ROLLSCOPE_REDACT", "email")
    request.getfixturevalue("connected")
    own = {"env_vars": {"ROLLSCOPE_PROJECT": "own"}}
    found = ray.get(Probe.options(runtime_env=own).remote().joined.remote())
    assert (found["names"][0], found["redact"]) == ("own", ["email"])


# -- the effect in verl's own workers ---------------------------------------------------


def generate(config: Any, columns: dict[str, list[Any]], step: int) -> None:
    """Legacy workers as Ray actors, through verl's own manager."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager

    manager = AgentLoopManager.create(config, Engine(config, None), None, [Grader()])
    manager.generate_sequences(legacy_batch(columns, step=step))


def test_a_pattern_of_the_driver_cleans_what_verls_workers_record(
    connected: None, own_store: Path, model: Path
) -> None:
    rollscope.init(project="p", run="r", redact="email")
    columns = dataset_rows(1, 2)
    for row in columns["raw_prompt"]:
        row[1]["content"] += " Ask ann@example.com."
    generate(make_config(model, WORKERS), columns, step=1)
    found = wait_for(own_store, lambda r: [x.fate for x in r] == ["scored", "scored"])
    for rollout in found:
        (asked,) = [m for m in rollout.messages if m.role == "user"]
        assert asked.content.endswith("Ask [email].") and not asked.tokens.ids
        assert [m.tokens.ids != [] for m in rollout.messages if m.sampled] == [True, True]
    assert b"ann@example.com" not in b"".join(
        msgspec.json.encode(line) for _, line in lines(own_store)
    )


def is_cut_group_kept(sample: Sample, step: int) -> bool:
    return Choice().rows([0, 1, 2], 2, sample, step, "train") == [False, False, True]


def test_a_cap_of_the_driver_is_kept_by_every_worker_with_whole_groups(
    connected: None, own_store: Path, model: Path
) -> None:
    """Three groups of two for two workers: the middle one lies on both of them."""
    sample = Sample(groups_per_step=1)
    step = next(s for s in range(99) if is_cut_group_kept(sample, s))
    rollscope.init(project="p", run="r", sample=sample)
    generate(make_config(model, WORKERS), dataset_rows(3, 2), step)
    found = wait_for(own_store, lambda r: len(r) >= 4 and all(x.fate == "scored" for x in r))
    assert Counter(r.group for r in found) == {"uid-1": 2, "uid-2": 2}
    cut = {r.id for r in found if r.group == "uid-1"}
    writers = {log for log, line in lines(own_store) if line.get("rollout", {}).get("id") in cut}
    assert len(writers) == 2
