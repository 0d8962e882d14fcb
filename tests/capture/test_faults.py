"""Real faults: training goes on, nothing is doubled, every loss is counted and told."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import rollscope
from rollscope import Rollout

from . import children, reading
from .reading import wait_for


def test_eight_processes_at_the_same_instant_lose_and_double_nothing(
    own_store: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = """
        go, name = Path(sys.argv[1]), sys.argv[2]
        until(go.exists)
        run = rollscope.init(project="p", run="shared")
        for n in range(2000):
            run.log(Rollout(task=f"{name}/{n}", messages=[Message(role="user", content="x" * 100)]))
        run.finish()
    """
    workers = [children.start(code, str(go), str(n)) for n in range(8)]
    time.sleep(1)
    go.touch()
    for worker in workers:
        children.told(worker)
    found = collections.Counter(r["task"] for r in reading.rollouts(own_store))
    assert found == {f"{w}/{n}": 1 for w in range(8) for n in range(2000)}
    assert len({i.launch for i in reading.infos(own_store)}) == 8
    assert sum(i.counters.recorded for i in reading.infos(own_store)) == 16_000


KILLED = """
    import random
    from rollscope.capture.background import Background

    def writer(say):
        def note(what):
            os.write(say, f"{os.getpid()} {what}\\n".encode())  # in the order of what happened
        take, write = Background._take, Background._write
        Background._take = lambda self: (note("take"), take(self))[1]
        Background._write = lambda self: (write(self), note("written"))[0]
        run = rollscope.init(project="p", run="killed")
        for n in range(10_000):
            run.log(Rollout(key=f"{os.getpid()}/{n}", task=str(n)))
            note(n)
            time.sleep(0.004)

    def trial():
        hear, say = os.pipe()
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                os.close(hear)
                try:
                    writer(say)
                finally:
                    os._exit(0)
            pids.append(pid)
        os.close(say)
        with open(hear) as pipe:
            told = [pipe.readline() for _ in range(random.randint(1, 400))]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for pid in pids:
                os.waitpid(pid, 0)
            told += pipe.readlines()
        return [line.split() for line in told]

    for _ in range(int(sys.argv[1])):
        tell(told=trial())
"""


def test_a_hundred_kills_lose_nothing_handed_over_before_the_last_frame_was_begun(
    own_store: Path,
) -> None:
    """By the writer's own clock: whatever was logged when it began to take the frame that it
    wrote last. How long that is ago depends on the machine; `bench/` measures it."""
    trials = children.told(children.start(KILLED, "100", ROLLSCOPE_QUIET="1"))
    assert len(trials) == 100
    written = {
        line["rollout"].get("key") for line in reading.good_lines(own_store) if "rollout" in line
    }
    safe, logged = 0, 0
    for trial in trials:
        for writer in {pid for pid, _ in trial["told"]}:
            told = [what for pid, what in trial["told"] if pid == writer]
            ended = max((at for at, what in enumerate(told) if what == "written"), default=0)
            begun = max((at for at, what in enumerate(told[:ended]) if what == "take"), default=0)
            mine = [f"{writer}/{what}" for what in told[:begun] if what.isdecimal()]
            assert written.issuperset(mine), sorted(set(mine) - written)
            safe, logged = safe + len(mine), logged + sum(map(str.isdecimal, told))
    assert 0 < safe < logged, "some were killed in the middle"
    with rollscope.init(project="p", run="killed") as resumed:  # the run goes on
        resumed.log(Rollout(key="resumed"))
    assert any(
        line["rollout"].get("key") == "resumed"
        for line in reading.good_lines(own_store)
        if "rollout" in line
    )


def test_a_full_disk_is_told_and_recording_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    prefix = children.on_a_small_disk(disk, "size=3m")
    if prefix is None:
        pytest.skip("file systems cannot be mounted here")
    code = """
        filler = store / "filler"
        run = rollscope.init(project="p", run="r")
        until(lambda: reading.infos(store))
        filler.write_bytes(os.urandom(2_000_000))
        for n in range(30):
            text = os.urandom(150_000).hex()
            run.log(Rollout(task=f"full-{n}", messages=[Message(role="user", content=text)]))
            until(lambda: run.queued < 1_000_000 or run._background._blocked)
        lost, told = run.counters.dropped, []
        def is_told():  # by a heartbeat on the full disk
            told[:] = [i for i in reading.infos(store) if i.counters.dropped == lost]
            return lost and told
        until(is_told)
        full = told[0]
        filler.unlink()
        until(lambda: run.log(Rollout(task="after")) and run.counters.recorded > 10)
        run.finish()
        (info,) = reading.infos(store)
        tasks = [r["task"] for r in reading.rollouts(store)]
        tell(full=full.counters.dropped, told=[p.text for p in full.problems],
             recorded=info.counters.recorded, tasks=tasks)
    """
    env = {"ROLLSCOPE_DIR": str(disk), "ROLLSCOPE_QUEUE": "2MB"}
    (got,) = children.told(children.start(code, prefix=prefix, **env))
    assert set(got["full"]) == {"disk full"}
    assert any("the disk is full" in text for text in got["told"])
    assert len(got["tasks"]) == len(set(got["tasks"])) + got["tasks"].count("after") - 1
    full = [t for t in got["tasks"] if t.startswith("full")]
    assert len(full) + got["full"]["disk full"] >= 30
    assert "after" in got["tasks"]
    assert got["recorded"] == len(got["tasks"])


def test_a_file_size_limit_cuts_back_to_the_last_good_frame(own_store: Path) -> None:
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        run = rollscope.init(project="p", run="r")
        for n in range(20):
            text = os.urandom(30_000).hex()
            run.log(Rollout(task=str(n), messages=[Message(role="user", content=text)]))
            run.flush()  # one frame: several at once could be larger than a file may be
        run.finish()
    """
    children.told(children.start(code))
    assert len(reading.rollouts(own_store)) == 20  # in several logs, none of them torn
    assert len(list(own_store.rglob("live/*"))) > 1


def test_a_read_only_directory_only_warns(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    prefix = children.on_a_small_disk(disk, "ro")
    if prefix is None:
        pytest.skip("file systems cannot be mounted here")
    code = """
        run = rollscope.init(project="p", run="r")
        run.log(Rollout(task="t"))
        with run.rollout(task="u") as r:
            r.message("user", "x")
        run.finish()
        tell(dropped=run.counters.dropped)
    """
    process = children.start(code, prefix=prefix, ROLLSCOPE_DIR=str(disk))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0
    assert json.loads(out) == {"dropped": {"not writable": 2}}
    assert "the file system is read-only" in err
    assert "recorded 0 rollouts of p/r, dropped 2 (not writable)" in err


def test_a_directory_removed_in_the_middle_is_made_again_and_told(own_store: Path) -> None:
    run = rollscope.init(project="p", run="r")
    run.log(Rollout(task="before"))
    wait_for(lambda: run.counters.recorded == 1)
    shutil.rmtree(own_store)
    run.log(Rollout(task="after"))
    wait_for(lambda: run.counters.recorded == 2)
    run.finish()
    assert [r["task"] for r in reading.rollouts(own_store)] == ["after"]
    (info,) = reading.infos(own_store)
    assert any("was removed or moved while it was written" in p.text for p in info.problems)


def test_too_many_open_files_only_delays_recording(own_store: Path) -> None:
    code = """
        import resource
        from rollscope.capture.problems import problems
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, hard))
        run = rollscope.init(project="p", run="r")
        run.log(Rollout(task="t"))
        until(lambda: any("too many open files" in p.text for p in problems.list({})))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: run.counters.recorded == 1)
        run.finish()
        tell(problems=[p.text for p in reading.infos(store)[0].problems])
    """
    (got,) = children.told(children.start(code))
    assert any("too many open files (ulimit -n)" in text for text in got["problems"])
    assert [r["task"] for r in reading.rollouts(own_store)] == ["t"]


def test_a_fork_in_the_middle_of_logging_doubles_and_loses_nothing(own_store: Path) -> None:
    code = """
        run = rollscope.init(project="p", run="r")
        stop = threading.Event()
        def noise():
            n = 0
            while not stop.is_set() and n < 3000:
                run.log(Rollout(task=f"noise-{n}")); n += 1
                time.sleep(0.0005)
            tell(noise=n)
        threads = [threading.Thread(target=noise) for _ in range(1)]
        [t.start() for t in threads]
        for c in range(20):
            pid = os.fork()
            if pid == 0:
                run.log(Rollout(task=f"child-{c}"))
                run.finish()
                os._exit(0)
            run.log(Rollout(task=f"parent-{c}"))
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        [t.join() for t in threads]
    """
    (got,) = children.told(children.start(code))
    found = collections.Counter(r["task"] for r in reading.rollouts(own_store))
    expected = [f"{who}-{n}" for who in ("child", "parent") for n in range(20)]
    assert found == dict.fromkeys(expected + [f"noise-{n}" for n in range(got["noise"])], 1)
    assert len(reading.infos(own_store)) == 21
    assert len({i.launch for i in reading.infos(own_store)}) == 1


def test_a_child_forked_inside_a_rollout_adds_spans_and_leaves_its_messages_alone(
    own_store: Path,
) -> None:
    code = """
        run = rollscope.init(project="p", run="r")
        @rollscope.op
        def tool(who): return who
        with run.rollout(task="t") as r:
            r.message("user", "before")
            pid = os.fork()
            if pid == 0:
                tool("child")
                r.message("user", "not mine")
                run.finish()
                os._exit(0)
            os.waitpid(pid, 0)
            tool("parent")
    """
    children.told(children.start(code))
    (got,) = reading.rollouts(own_store)
    assert [m["content"] for m in got["messages"]] == ["before"]
    assert sorted(s["inputs"]["who"] for s in got["spans"]) == ["child", "parent"]
    assert not got["open"]


def test_children_of_multiprocessing_write_what_they_logged(own_store: Path) -> None:
    code = """
        import multiprocessing
        run = rollscope.init(project="p", run="r")
        def work(n):
            run.log(Rollout(task=f"child-{n}"))
        fork = multiprocessing.get_context("fork")
        children = [fork.Process(target=work, args=(n,)) for n in range(3)]
        [c.start() for c in children]
        [c.join() for c in children]
        assert [c.exitcode for c in children] == [0, 0, 0]
    """
    children.told(children.start(code))
    assert sorted(r["task"] for r in reading.rollouts(own_store)) == [
        f"child-{n}" for n in range(3)
    ]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_that_begin_a_run_write_what_they_logged(
    own_store: Path, tmp_path: Path, method: str
) -> None:
    program = tmp_path / "program.py"  # a file: forkserver and spawn import it again
    program.write_text(
        textwrap.dedent("""
        import multiprocessing, sys

        def work(n):
            import rollscope
            run = rollscope.init(project="p", run=f"r{n}")
            for i in range(80):
                run.log(rollscope.Rollout(task=f"{n}/{i}"))
            if n == 1:
                raise ValueError("boom")

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            children = [context.Process(target=work, args=(n,)) for n in range(2)]
            [c.start() for c in children]
            [c.join() for c in children]
            assert [c.exitcode for c in children] == [0, 1]
        """)
    )
    subprocess.run([sys.executable, program, method], check=True, capture_output=True)
    assert collections.Counter(r["task"] for r in reading.rollouts(own_store)) == {
        f"{n}/{i}": 1 for n in range(2) for i in range(80)
    }
    assert {i.run: (i.finished is not None, i.crashed) for i in reading.infos(own_store)} == {
        "r0": (True, False),
        "r1": (True, True),
    }


@pytest.mark.parametrize(
    ("ending", "code"), [("pass", 0), ("sys.exit(3)", 3), ("raise ValueError('boom')", 1)]
)
def test_a_program_that_ends_without_finish_loses_nothing(
    own_store: Path, ending: str, code: int
) -> None:
    program = f"""
        run = rollscope.init(project="p", run="r")
        for n in range(500):
            run.log(Rollout(task=str(n)))
        {ending}
    """
    children.told(children.start(program), code)
    assert len(reading.rollouts(own_store)) == 500
    (info,) = reading.infos(own_store)
    assert info.finished is not None
    assert info.counters.recorded == 500


def test_garbage_that_ends_the_process_is_not_collected_before_all_is_written(
    own_store: Path,
) -> None:
    """As a handle of a Ray actor does when it is freed after Ray was shut down."""
    program = """
        import gc
        class Handle:
            def __init__(self): self.itself = self
            def __del__(self): os._exit(0)
        handle = Handle()
        gc.collect()  # it is old now: only a full collection frees it
        run = rollscope.init(project="p", run="r")
        run.before_finish.append(lambda: [[] for _ in range(500_000)])  # brings one about
        for n in range(500):
            run.log(Rollout(task=str(n)))
        del handle
    """
    children.told(children.start(program))
    assert len(reading.rollouts(own_store)) == 500
    (info,) = reading.infos(own_store)
    assert info.finished is not None


def test_threads_whose_first_rollouts_come_at_once_never_end_the_process(own_store: Path) -> None:
    code = """
        sys.setswitchinterval(1e-6)
        run = rollscope.init(project="p", run="r")
        barrier = threading.Barrier(8)
        def first(n):
            barrier.wait()
            run.log(Rollout(task=f"t{n}", messages=[Message(role="user", content="q")]))
        threads = [threading.Thread(target=first, args=(n,)) for n in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    """
    children.told(children.start(code))
    assert sorted(r["task"] for r in reading.rollouts(own_store)) == [f"t{n}" for n in range(8)]
