"""A trainer's function is watched: nothing that passes through it changes."""

import asyncio
import copy
import gc
import inspect
import pickle
import sys
import traceback
import types
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollscope import capture
from rollscope.adapters import _seam
from rollscope.adapters._seam import Seams, is_ours, original

LOST = "no batch is recorded"


class Loop:
    """A trainer with one function of each kind."""

    scale = 10

    def plain(self, batch: list[int], *, rate: float = 0.5) -> Any:
        if not batch:
            raise KeyError("empty")
        return [n * rate for n in batch]

    async def coroutine(self, batch: list[int], rate: float = 0.5) -> Any:
        await asyncio.sleep(0)
        return self.plain(batch, rate=rate)

    def generator(self, batch: list[int]) -> Generator[int, int, str]:
        heard = 0
        for n in batch:
            heard += yield n
        return f"heard {heard}"

    def promised(self, batch: list[int]) -> Any:
        """A plain function that gives a coroutine, as some decorators make them."""
        return self.coroutine(batch)

    @classmethod
    def of_class(cls, batch: list[int]) -> int:
        return cls.scale * len(batch)

    @staticmethod
    def of_nobody(batch: list[int]) -> int:
        return len(batch)


@pytest.fixture
def seams() -> Iterator[Seams]:
    made = Seams("test", "loop 1.2")
    yield made
    made.restore()


class Seen(list[Any]):
    """A watcher of `batch`, and what it saw."""

    def watch(self, batch: list[int]) -> Generator[None, Any, None]:
        self.append(("before", list(batch)))
        try:
            result = yield
        except BaseException as error:
            self.append(("raised", error))
        else:
            self.append(("after", result))


def broken_before(batch: Any) -> Generator[None, Any, None]:
    raise ZeroDivisionError("ours")
    yield


def broken_after(batch: Any) -> Generator[None, Any, None]:
    yield
    raise ZeroDivisionError("ours")


def broken_by_errors(batch: Any) -> Generator[None, Any, None]:
    try:
        yield
    except KeyError as error:
        raise ZeroDivisionError("ours") from error


def yields_twice(batch: Any) -> Generator[None, Any, None]:
    yield
    yield


BROKEN = [broken_before, broken_after, broken_by_errors, yields_twice]


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function of any kind. A generator is driven, with answers."""
    result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    if not inspect.isgenerator(result):
        return result
    given = []
    try:
        given.append(next(result))
        while True:
            given.append(result.send(given[-1]))
    except StopIteration as end:
        return [*given, end.value]


KINDS = ["plain", "coroutine", "generator", "promised", "of_class", "of_nobody"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_class", [True, False])
def test_what_a_function_gives_is_the_same_watched_or_not(
    seams: Seams, kind: str, of_class: bool
) -> None:
    class Mine(Loop): ...

    loop = Mine()
    before = run(getattr(loop, kind), [1, 2, 3])
    seen = Seen()
    assert seams.watch(Loop if of_class else loop, {kind: seen.watch}, LOST) == [kind]
    batch = [1, 2, 3]
    assert run(getattr(loop, kind), batch) == before
    assert run(getattr(loop, kind), batch=batch) == before
    assert batch == [1, 2, 3]
    result = before[-1] if kind == "generator" else before
    assert seen == [("before", batch), ("after", result)] * 2


def test_a_function_of_a_module_is_watched(seams: Seams, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("some_trainer")
    exec("def step(batch):\n    return len(batch)", module.__dict__)
    seen = Seen()
    seams.watch(module, {"step": seen.watch}, LOST)
    assert module.step([1, 2]) == 2
    assert seen[-1] == ("after", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_watched_function_looks_like_the_trainers_own(seams: Seams, kind: str) -> None:
    loop = Loop()
    before = getattr(loop, kind)
    seams.watch(loop, {kind: Seen().watch}, LOST)
    after = getattr(loop, kind)
    assert inspect.signature(after) == inspect.signature(before)
    assert inspect.iscoroutinefunction(after) == inspect.iscoroutinefunction(before)
    assert inspect.isgeneratorfunction(after) == inspect.isgeneratorfunction(before)
    assert (after.__name__, after.__doc__) == (before.__name__, before.__doc__)


@pytest.mark.parametrize("watcher", BROKEN)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_ours_never_reaches_the_trainer(
    seams: Seams, kind: str, watcher: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    before = run(getattr(loop, kind), [1, 2])
    seams.watch(loop, {kind: watcher}, LOST)
    assert run(getattr(loop, kind), [1, 2]) == before
    told = [r.getMessage() for r in caplog.records]
    assert all("adapter test: " in text for text in told)
    assert len(told) == (0 if watcher is broken_by_errors else 1)


@pytest.mark.parametrize("watcher", [Seen().watch, *BROKEN])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "promised"])
def test_the_trainers_own_error_passes_unchanged(seams: Seams, kind: str, watcher: Any) -> None:
    loop = Loop()
    seams.watch(loop, {kind: watcher}, LOST)
    with pytest.raises(KeyError, match="empty") as caught:
        run(getattr(loop, kind), [])
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    lines = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "plain" in lines and "watch" not in lines


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StopIteration(3), GeneratorExit()])
def test_errors_of_every_kind_pass_and_are_seen(
    seams: Seams, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Ends:
        def step(self, batch: Any) -> None:
            raise error

        def after(self, batch: Any) -> None:
            raise error

    def lets_it_pass(batch: Any) -> Generator[None, Any, None]:
        yield

    ends, seen = Ends(), Seen()
    seams.watch(ends, {"step": seen.watch, "after": lets_it_pass}, LOST)
    for function in (ends.step, ends.after):
        with pytest.raises(type(error)) as caught:
            function([])
        assert caught.value is error
    assert seen[-1] == ("raised", error)
    assert caplog.records == []


def test_a_cancelled_call_is_seen_and_stays_cancelled(seams: Seams) -> None:
    class Waits:
        async def step(self, batch: Any) -> None:
            await asyncio.sleep(600)

    waits, seen = Waits(), Seen()
    seams.watch(waits, {"step": seen.watch}, LOST)

    async def cancel() -> None:
        task = asyncio.create_task(waits.step([]))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert isinstance(seen[-1][1], asyncio.CancelledError)


def test_a_generator_that_is_given_up_is_seen(seams: Seams) -> None:
    loop, seen = Loop(), Seen()
    seams.watch(loop, {"generator": seen.watch}, LOST)
    items = loop.generator([1, 2, 3])
    assert next(items) == 1
    items.close()
    assert isinstance(seen[-1][1], GeneratorExit)


# -- arguments -------------------------------------------------------------------------


def test_arguments_are_found_by_name_wherever_the_call_has_them(seams: Seams) -> None:
    seen: list[Any] = []

    def watch(rate: float, batch: Any, unknown: str = "not there") -> Generator[None, Any, None]:
        seen.append((batch, rate, unknown))
        yield

    class Changed(Loop):
        """Another version of the trainer, with one more parameter."""

        def plain(self, why: str, batch: list[int], *, rate: float = 0.25) -> Any:  # type: ignore[override]
            return super().plain(batch, rate=rate)

    for loop, more in ((Loop(), {}), (Changed(), {"why": "so"})):
        seams.watch(loop, {"plain": watch}, LOST)
        loop.plain(batch=[2], rate=1.0, **more)
        loop.plain(*more.values(), [2])
    assert seen == [([2], r, "not there") for r in (1.0, 0.5, 1.0, 0.25)]


def test_a_function_that_users_write_may_call_its_parameters_as_it_likes(seams: Seams) -> None:
    seen: list[Any] = []

    def watch(batch: Any, /) -> Generator[None, Any, None]:
        seen.append(batch)
        yield

    class Users:
        def renamed(self, rows: Any, *args: Any) -> None: ...

        def wrapped(self, *args: Any, **kwargs: Any) -> None: ...

        def reordered(self, seed: int, batch: Any) -> None: ...

    users = Users()
    paths = dict.fromkeys(("renamed", "wrapped", "reordered"), watch)
    assert seams.watch(users, paths, LOST) == list(paths)
    users.renamed([1], 2)
    users.renamed(rows=[2])
    users.wrapped([3])
    users.wrapped(batch=[4])
    users.reordered(0, [5])
    assert seen == [[1], [2], [3], [4], [5]]


def test_a_watcher_may_ask_for_everything(seams: Seams) -> None:
    seen: list[Any] = []

    def watch(loop: Any, /, **rest: Any) -> Generator[None, Any, None]:
        seen.append((type(loop), rest))
        yield

    class More(Loop):
        def plain(self, batch: Any, **options: Any) -> None: ...  # type: ignore[override]

    seams.watch(More, {"plain": watch}, LOST)
    loop = More()
    loop.plain([1], rate=2, seed=3)
    assert seen == [(More, {"self": loop, "batch": [1], "rate": 2, "seed": 3})]


def test_only_what_a_watcher_yields_is_changed(seams: Seams) -> None:
    def watch(batch: Any, rate: float, seed: int = 0) -> Generator[Any, Any, None]:
        yield {"batch": [*batch, 4], "rate": 10, "seed": 7}  # the trainer has no seed

    loop = Loop()
    seams.watch(loop, {"plain": watch}, LOST)
    given = [1]
    assert loop.plain(given) == loop.plain(batch=given, rate=1) == [10, 40]
    assert given == [1]


def test_a_watcher_that_returns_first_lets_the_call_pass(seams: Seams) -> None:
    def watch(batch: Any) -> Generator[None, Any, None]:
        if len(batch) > 1:
            yield

    loop = Loop()
    seams.watch(loop, {"plain": watch}, LOST)
    assert (loop.plain([2]), loop.plain([2, 4])) == ([1.0], [1.0, 2.0])


# -- attaching and letting go ----------------------------------------------------------


@pytest.mark.parametrize("of_class", [True, False])
def test_watching_twice_is_watching_once(seams: Seams, of_class: bool) -> None:
    loop, seen = Loop(), Seen()
    for _ in range(2):
        seams.watch(Loop if of_class else loop, {"plain": seen.watch}, LOST)
    Seams("other", "loop 1.2").watch(Loop if of_class else loop, {"plain": seen.watch}, LOST)
    loop.plain([1])
    assert len(seen) == 2


def test_watching_anew_replaces_the_watcher(seams: Seams) -> None:
    loop, first, second = Loop(), Seen(), Seen()
    seams.watch(loop, {"plain": first.watch}, LOST)
    Seams("other", "loop 1.2").watch(loop, {"plain": second.watch}, LOST, anew=True)
    loop.plain([1])
    assert (len(first), len(second)) == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_as_before_when_it_is_put_back(seams: Seams, kind: str) -> None:
    class Heir(Loop): ...

    heir = Heir()
    owners: list[Any] = [Loop, Heir, heir]
    before = [dict(vars(owner)) for owner in owners]
    for owner in owners:
        seams.watch(owner, {kind: Seen().watch}, LOST)
    seams.restore()
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_function_put_around_ours_stays_and_ours_only_passes_on(seams: Seams) -> None:
    loop, seen = Loop(), Seen()
    seams.watch(loop, {"plain": seen.watch}, LOST)
    ours = loop.plain
    theirs = loop.plain = lambda batch: [*ours(batch), "theirs"]  # type: ignore[method-assign, assignment]
    seams.restore()
    assert loop.plain is theirs and loop.plain([2]) == [1.0, "theirs"]
    assert seen == []


def test_a_name_that_somebody_imported_meanwhile_can_be_watched_again(seams: Seams) -> None:
    one, other = types.ModuleType("one"), types.ModuleType("other")
    one.step = lambda batch: len(batch)  # type: ignore[attr-defined]
    seams.watch(one, {"step": Seen().watch}, LOST)
    other.step = one.step  # type: ignore[attr-defined]
    seams.restore()
    seen = Seen()
    seams.watch(other, {"step": seen.watch}, LOST)
    assert other.step([1]) == 1 and len(seen) == 2


def test_ours_is_known_but_not_by_its_attributes(seams: Seams) -> None:
    """Ray puts functions of its own around methods, and copies all attributes."""
    loop = Loop()
    before = Loop.plain
    seams.watch(Loop, {"plain": Seen().watch}, LOST)
    ours = vars(Loop)["plain"]
    assert is_ours(ours) and original(ours) is before

    def rays(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    rays.__dict__.update(vars(ours))
    assert not is_ours(rays) and original(rays) is rays
    assert not is_ours(before) and not is_ours(loop)


def test_nothing_is_kept_of_a_trainer_that_is_gone() -> None:
    loop = Loop()
    gone = weakref.ref(loop)

    class Knows(Seen):
        trainer = loop

    Seams("test", "loop 1.2").watch(loop, {"plain": Knows().watch}, LOST)
    del loop, Knows
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("plane", "Loop has no plane (it has plain)"),
        ("tracker.log", "Loop has no tracker.log"),
        ("other", "Loop.other has no parameter batch: it is (rows)"),
    ],
)
def test_what_is_missing_is_told_once_with_what_was_found_instead(
    seams: Seams, path: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    loop.other = lambda rows: rows  # type: ignore[attr-defined]
    before = dict(vars(loop))
    watchers = {"plain": Seen().watch, path: Seen().watch}
    for _ in range(2):
        assert not seams.fit(loop, watchers, LOST)
    assert vars(loop) == before
    assert seams.watch(loop, watchers, LOST) == ["plain"]
    (text,) = [record.getMessage() for record in caplog.records]
    assert text == f"rollscope: adapter test: loop 1.2: {told}; {LOST}"


def test_an_object_that_cannot_be_changed_runs_unwatched(
    seams: Seams, caplog: pytest.LogCaptureFixture
) -> None:
    class Frozen(Loop):
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError("frozen")

    loop = Frozen()
    assert seams.watch(loop, {"plain": Seen().watch}, LOST) == []
    assert loop.plain([2]) == [1.0]
    assert "Frozen.plain could not be watched (frozen)" in caplog.text


# -- functions that travel -------------------------------------------------------------


def step(batch: list[int]) -> int:
    """A function of this module, as of a trainer's."""
    return len(batch)


def arrive(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


def test_a_function_that_travels_by_name_arrives_as_the_one_that_is_there() -> None:
    module = sys.modules[__name__]
    before = module.step  # type: ignore[attr-defined]
    seams, seen = Seams("test", "loop 1.2", arrive), Seen()
    seams.watch(module, {"step": seen.watch}, LOST)
    try:
        ours = module.step  # type: ignore[attr-defined]
        assert isinstance(ours, _seam.ByName) and original(ours) is before
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert ours([1]) == 1 and seen[-1] == ("after", 1)
        assert copy.copy(ours) is ours
    finally:
        seams.restore()
    assert module.step is before  # type: ignore[attr-defined]


def test_strict_raises_what_is_ours(seams: Seams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")
    loop = Loop()
    seams.watch(loop, {"plain": broken_after}, LOST)
    with pytest.raises(ZeroDivisionError, match="ours"):
        loop.plain([1])


@pytest.fixture(autouse=True)
def told_anew(own_store: Path) -> None:
    """Each test is told its own problems."""
    capture.problems.problems.forget()  # type: ignore[attr-defined]
