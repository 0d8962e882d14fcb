"""What a scan promises: everything is looked at once, three answers, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rollscope
from rollscope import Store
from rollscope.checks import ScanReport, Settings, SettingsError, scan, unlooked
from rollscope.store import derived
from rollscope.store.runs import remove_run
from rollscope.store.seal.compact import compact

from .made import BROKEN, LOUD, SAME, group, rollout, settings


def recorded(*rollouts: rollscope.Rollout, run: str = "r") -> Path:
    with rollscope.init(project="p", run=run) as made:
        made.log(list(rollouts))
    return made.directory


def look(store: Store, *, toml: Path | None = None) -> ScanReport:
    return scan(store, settings=settings(LOUD, SAME, toml=toml))


def ids(store: Store, query: str) -> list[str]:
    return sorted(str(row.key) for row in store.rollouts(query))


def numbers(store: Store, check: str, query: str = "") -> tuple[int, int, int, int]:
    (count,) = store.findings(query).of(check).counts()
    return count.found, count.clear, count.unobserved, count.unlooked


@pytest.fixture
def store(own_store: Path) -> Store:
    """Four rollouts: the first is found, the second clear, the third unobserved, the last too."""
    recorded(
        rollout("think!", key="a"),
        rollout("think", key="b"),
        rollout("!", key="c"),
        rollout("", key="d"),
    )
    return rollscope.open(own_store)


def test_there_are_three_answers_and_a_fourth_number_and_all_are_queries(store: Store) -> None:
    assert look(store).rollouts == 4
    assert numbers(store, "made.loud") == (1, 1, 2, 0)
    assert ids(store, "flag:made.loud") == ["a"]
    assert ids(store, "clear:made.loud") == ["b"]
    assert ids(store, "unobserved:made.loud") == ["c", "d"]
    assert ids(store, "flag:/^made/ -unobserved:made.loud") == ["a", "b"], "made.same finds all"
    assert ids(store, "-has:flag") == []
    recorded(rollout("think!", key="new"), run="other")
    assert numbers(store, "made.loud") == (1, 1, 2, 1)
    assert ids(store, "-flag:made.loud -clear:made.loud -unobserved:made.loud") == ["new"]


def test_a_finding_says_where_and_rows_carry_flags(store: Store) -> None:
    look(store)
    (row,) = store.rollouts("flag:made.loud")
    assert row.flags == ["made.loud", "made.same"]
    (found,) = store.findings("run:r").of("made.loud")
    assert (found.rollout, found.message, found.start, found.end) == (row.id, 1, 5, 6)
    assert (found.text, found.value, found.subject) == ("it shouts here", 1.5, "rollout")
    assert found in [*store.findings()]
    assert [f.check for f in store.findings_of(row.id)] == ["made.same", "made.loud"]
    assert store.row(row.id).flags == store.opened(row.id, 9).row.flags == row.flags
    assert [r.flags for r in store.group(row.id) if r.key == "a"] == [row.flags]
    everything = {r.key: r.flags for batch in [store.rollouts("", order="key")] for r in batch}
    assert everything["a"] == row.flags and everything["b"] == ["made.same"]
    (facet,) = store.facets(keys=["flag"])
    assert [(v.value, v.count) for v in facet.values] == [("made.same", 4), ("made.loud", 1)]
    assert [v.value for v in store.values("flag", "made.l")] == ["made.loud"]
    assert [v.value for v in store.values("unobserved", "made")] == ["made.loud", "made.same"]
    sql = 'SELECT "check", count(*) FROM findings GROUP BY 1 ORDER BY 1'
    assert store.sql(sql).fetchall() == [("made.loud", 1), ("made.same", 4)]


def test_nobody_looks_twice_unless_there_is_news(store: Store, own_store: Path) -> None:
    assert (look(store).rollouts, look(store).rollouts) == (4, 0)
    with rollscope.init(project="p", run="r") as run:
        id = store.rollouts("flag:made.loud")[0].id
        run.annotate(id, label={"good": True}, note="read it", flag={"mine": True})
        run.flush()
        assert look(store).rollouts == 0, "labels, notes and flags are no news"
        run.annotate(id, reward=1.0)
    assert look(store).rollouts == 1
    compact(own_store / "p" / "r", grace=0)
    assert look(store).rollouts == 0, "where it lies is no news either"
    assert numbers(store, "made.loud") == (1, 1, 2, 0)


def test_another_version_or_parameter_looks_again(store: Store, tmp_path: Path) -> None:
    look(store)
    newer = LOUD._replace(version=2)
    assert scan(store, settings=settings(newer, SAME)).rollouts == 4
    assert look(store).rollouts == 0, "an older program leaves the answers of a newer one alone"
    toml = tmp_path / "checks.toml"
    toml.write_text("[made.loud]\nmarks = 2\n")
    assert scan(store, settings=settings(newer, SAME, toml=toml)).rollouts == 4
    assert numbers(store, "made.loud") == (0, 2, 2, 0)
    toml.write_text('["made.loud"]\non = false\n')
    again = scan(store, settings=settings(newer, SAME, toml=toml))
    assert again.rollouts == 0, "there is one check less, and nothing to look for"
    assert ids(store, "flag:made.loud") == []
    assert [count.check for count in store.findings().counts()] == ["made.same"]


def test_a_group_is_looked_at_again_when_it_changes(own_store: Path) -> None:
    store = rollscope.open(own_store)
    with rollscope.init(project="p", run="r") as run:
        run.log(group(1, [1.0, 1.0, 0.0]))
        run.log(group(2, [1.0, 1.0]))
        run.flush()
        report = look(store)
        assert (report.rollouts, report.groups) == (5, 2)
        assert ids(store, "flag:made.same") == ["2/0", "2/1"]
        run.log(rollout("think", key="2/2", step=2, task="t", index=2, split="train", reward=0.5))
        run.flush()
        report = look(store)
        assert (report.rollouts, report.groups) == (1, 1)
        assert ids(store, "flag:made.same") == []
        run.annotate(key="2/2", reward=1.0)
    report = look(store)
    assert report.rollouts == 1
    assert ids(store, "flag:made.same") == ["2/0", "2/1", "2/2"]
    assert numbers(store, "made.same") == (3, 3, 0, 0)


def test_open_rollouts_are_in_no_group(own_store: Path) -> None:
    store = rollscope.open(own_store)
    with rollscope.init(project="p", run="r") as run:
        run.log(group(1, [1.0]))
        with run.rollout(step=1, task="t", index=1, split="train", key="open") as r:
            r.message("assistant", "think!")
            run.flush()
            assert look(store).rollouts == 2
            assert ids(store, "flag:made.loud") == ["open"]
            assert ids(store, "flag:made.same") == ["1/0"], "it is a group of one so far"
            r.reward(1.0)
    look(store)
    assert ids(store, "flag:made.same") == ["1/0", "open"]


def test_what_people_say_wins(store: Store) -> None:
    look(store)
    by_key = {row.key: row.id for row in store.rollouts()}
    with rollscope.init(project="p", run="r") as run:
        run.annotate(by_key["a"], flag={"made.loud": False})
        run.annotate(by_key["c"], flag={"made.loud": True, "mine": True})
    assert ids(store, "flag:made.loud") == ["c"]
    assert ids(store, "clear:made.loud") == ["a", "b"]
    assert ids(store, "unobserved:made.loud") == ["d"]
    assert ids(store, "flag:mine") == ["c"]
    assert numbers(store, "made.loud") == (1, 2, 1, 0)
    assert [found.rollout for found in store.findings().of("made.loud")] == []
    assert store.row(by_key["a"]).flags == ["made.same"]
    with rollscope.init(project="p", run="r") as run:
        run.annotate(by_key["a"], flag={"made.loud": True})
    assert ids(store, "flag:made.loud") == ["a", "c"]


def test_a_broken_check_is_told_and_the_others_go_on(store: Store) -> None:
    report = scan(store, settings=settings(BROKEN, LOUD))
    assert report.broken["made.broken"].count == 4
    assert report.broken["made.broken"].error == "ValueError: no such thing"
    assert numbers(store, "made.broken") == (0, 0, 4, 0)
    assert numbers(store, "made.loud") == (1, 1, 2, 0)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[made.lout]\nmarks = 1", "there is no such check; did you mean made.loud?"),
        ("[made.loud]\nmark = 1", "has no parameter 'mark'; it has: on, marks"),
        ("[made.loud]\nmarks = 'two'", "marks is a whole number, not 'two'"),
        ("[project.p.made.loud]\non = 1", "on is true or false, not 1"),
        ("marks = 1", "marks belongs to no check"),
        ("[made.loud", "cannot be read"),
    ],
)
def test_a_mistake_in_checks_toml_is_told_in_words(tmp_path: Path, toml: str, words: str) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(toml)
    with pytest.raises(SettingsError, match=f"{file}.*"):
        try:
            settings(LOUD, toml=file)
        except SettingsError as error:
            assert words in str(error)
            raise


def test_a_project_has_parameters_of_its_own(store: Store, tmp_path: Path) -> None:
    toml = tmp_path / "checks.toml"
    toml.write_text("[made.loud]\nmarks = 2\n[project.p.made.loud]\nmarks = 1\n")
    found = settings(LOUD, toml=toml)
    assert [b.settings["marks"] for b in found.bound("p") + found.bound("q")] == [1, 2]
    look(store, toml=toml)
    assert ids(store, "flag:made.loud") == ["a"]


def test_many_units_become_one_and_a_reader_sees_the_same_all_along(
    store: Store, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "MANY", 3)
    monkeypatch.setattr(derived, "GRACE", 0.0)
    look(store)
    for n in range(4):
        recorded(*group(n, [1.0, 0.0], said="think!"), run="r")
        look(store)
        expected = 1 + 2 * (n + 1)
        assert store.rollouts("flag:made.loud").count() == expected
        with rollscope.open(own_store).reader as fresh:
            sql = "SELECT count(*) FROM findings WHERE \"check\" = 'made.loud'"
            assert fresh.connection.execute(sql).fetchone() == (expected,)
    look(store)
    names = [path.name for path in (own_store / "p" / "r" / "derived").iterdir()]
    assert any(name.startswith("merged-") for name in names)
    assert len([name for name in names if not name.startswith(".")]) <= 4
    assert numbers(store, "made.loud") == (9, 1, 2, 0)


def test_two_scans_at_once_leave_one_answer_each(store: Store, own_store: Path) -> None:
    other = rollscope.open(own_store)
    look(store)
    units = list(store.reader.found.all_units)
    assert look(other).rollouts == 0
    # The same rows once more, as from a scan that knew nothing of the first.
    run = own_store / "p" / "r" / derived.FOLDER
    for unit in units:
        twin = run / f"twin-{unit.directory.name}"
        twin.mkdir()
        for file in unit.directory.iterdir():
            (twin / file.name).write_bytes(file.read_bytes())
    assert numbers(other, "made.loud") == (1, 1, 2, 0)
    assert len(list(other.findings().of("made.loud"))) == 1
    assert ids(other, "flag:made.loud") == ["a"]


@pytest.mark.parametrize("subject", ["rollouts", "groups"])
def test_what_another_scan_has_done_meanwhile_is_not_done_again(
    store: Store, own_store: Path, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    """A scan lists what is to do, then waits for its turn: somebody may have done it by then."""
    asked = getattr(unlooked, subject)

    def overtaken(*words: object) -> object:
        todo = asked(*words)
        monkeypatch.setattr(unlooked, subject, asked)
        look(rollscope.open(own_store))
        return todo

    monkeypatch.setattr(unlooked, subject, overtaken)
    report = look(store)
    assert (report.rollouts, report.groups) == (4 if subject == "groups" else 0, 0)
    for reader in (store, rollscope.open(own_store)):
        flags = [sorted(row.flags) for row in reader.rollouts() if row.key == "a"]
        assert flags == [["made.loud", "made.same"]] and numbers(reader, "made.loud") == (
            1,
            1,
            2,
            0,
        )
        counted = reader.reader.reading(
            lambda db: db.execute(
                'SELECT count(*), count(DISTINCT ("check", rollout)) FROM flagged'
            ).fetchone()
        )
        assert counted is not None and counted[0] == counted[1]


@pytest.mark.parametrize("table", ["checked", "findings"])
@pytest.mark.parametrize("how", ["cut", "garbled", "removed", "foreign"])
def test_damaged_findings_cost_only_themselves(
    store: Store, own_store: Path, table: str, how: str
) -> None:
    look(store)
    for file in own_store.rglob(f"derived/*/{table}.parquet"):
        data = file.read_bytes()
        if how == "removed":
            file.unlink()
        elif how == "cut":
            file.write_bytes(data[: len(data) // 2])
        elif how == "garbled":
            file.write_bytes(data[:4] + bytes(len(data) - 12) + data[-8:])
        else:
            file.write_bytes(b"no parquet")
    fresh = rollscope.open(own_store)
    assert fresh.rollouts().count() == 4
    assert fresh.rollouts("flag:made.loud").count() in (0, 1)
    list(fresh.findings())
    assert any("derived" in problem.path for problem in fresh.reader.problems())
    assert look(fresh).rollouts == 4
    assert ids(fresh, "flag:made.loud") == ["a"]


def test_thrown_away_they_are_made_again_and_a_removed_run_takes_them_along(
    store: Store, own_store: Path
) -> None:

    look(store)
    shutil.rmtree(own_store / "p" / "r" / "derived")
    assert ids(store, "has:flag") == []
    assert numbers_or_none(store) is None
    assert look(store).rollouts == 4
    assert ids(store, "flag:made.loud") == ["a"]
    remove_run(own_store, "p", "r")
    assert ids(store, "has:flag") == []
    assert list(store.findings()) == []


def numbers_or_none(store: Store) -> object:
    return store.findings().counts() or None


SLOW = """
import sys, time, rollscope
from rollscope.checks import check, scan, scan as scanning, Spot
from rollscope.checks.settings import Settings

import rollscope.checks.scanning as module
from pathlib import Path

@check("made.slow", kind="behaviour", means="Slow.", source="made up")
def SLOW(one):
    time.sleep(0.02)
    yield Spot("slow")

module.COMMIT, module.PIECE = 0.0, 8
module._pieces = lambda todo, processes: (todo[i:i + 8] for i in range(0, len(todo), 8))
store = rollscope.open(sys.argv[1])
scan(store, settings=Settings(Path("none"), {SLOW.id: SLOW}),
     progress=lambda done, total: print(done, flush=True))
"""


def test_a_killed_scan_keeps_what_it_has_finished(own_store: Path) -> None:
    recorded(*(rollout("x", key=str(n)) for n in range(200)))
    command = [sys.executable, "-c", SLOW, str(own_store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 40:
            break
    process.kill()
    process.wait()
    with rollscope.open(own_store).reader as reader:
        (found,) = reader.connection.execute("SELECT count(*) FROM checked").fetchone() or (0,)
    assert 16 <= found < 200
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(done[-1]) == 200 - found, "the next one looks at the rest only"
    assert rollscope.open(own_store).rollouts("flag:made.slow").count() == 200


def test_several_processes_find_the_same(own_store: Path) -> None:
    loops = ["again and again, " * 1000, "once", "no, " * 5000]
    made = [r for n in range(6) for r in group(n, [1.0, 0.0, 0.0], loops[n % 3])]
    recorded(*made)
    compact(own_store / "p" / "r", grace=0)
    store = rollscope.open(own_store)
    program = (
        "import sys, rollscope\nfrom rollscope.checks import scan\n"
        "if __name__ == '__main__':\n"
        "    report = scan(rollscope.open(sys.argv[1]), processes=2)\n"
        "    print(report.rollouts, report.broken)\n"
    )
    script = own_store.parent / "script.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, script, own_store], capture_output=True, text=True, check=True
    )
    assert done.stdout == "18 {}\n"
    together = sorted((f.check, f.rollout, f.text) for f in store.findings())
    for unit in store.reader.found.all_units:
        shutil.rmtree(unit.directory)
    scan(store)
    assert sorted((f.check, f.rollout, f.text) for f in store.findings()) == together != []


def test_the_process_beside_the_viewer_looks_at_what_is_new_and_ends_with_it(
    own_store: Path,
) -> None:
    from rollscope.checks.beside import Scanning

    own_store.mkdir()
    scanning = Scanning(own_store)
    scanning.start()
    process = scanning._process
    assert process is not None and process.poll() is None
    with rollscope.init(project="p", run="r") as run:
        run.log(rollout("no, " * 5000, key="a"))
        run.flush()
        store = rollscope.open(own_store)
        wait_for(lambda: store.rollouts("flag:reply.loop").count() == 1)
        run.log(rollout("no, " * 5000, key="b"))
        run.flush()
        wait_for(lambda: store.rollouts("flag:reply.loop").count() == 2)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) >= 15
    assert process.stdin is not None
    process.stdin.close()  # as if this process had been killed
    process.wait(300)


def wait_for(what: object, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_folder_that_cannot_be_written_is_left_alone(store: Store, own_store: Path) -> None:
    from rollscope.checks import scan as looking

    blocked = own_store / "p" / "r" / "derived"
    blocked.write_text("no folder")
    report = looking(store, settings=settings(LOUD))
    assert report.rollouts == 0 and "p/r" in report.skipped


def test_settings_of_the_store_are_read(store: Store, own_store: Path) -> None:
    (own_store / "checks.toml").write_text("[reply.loop]\nratio = 'x'\n")
    with pytest.raises(SettingsError, match="ratio is a number"):
        scan(store)
    assert isinstance(Settings(own_store / "none.toml"), Settings)
