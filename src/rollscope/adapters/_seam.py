"""How an adapter takes hold of a trainer, and lets go of it.

A *seam* is a function of the trainer that an adapter watches. Its *watcher* is a generator
function. The watcher names those parameters of the trainer's function that it wants to see,
and yields once, where the trainer's own code runs:

    def train_step(batch):        # watches Trainer.train_step(self, batch, *, lr=1e-6)
        size = len(batch)         # before the trainer's code
        loss = yield              # the trainer runs; what it returns or raises arrives here
        note(size, loss)          # after it

- The trainer's function gets the arguments that it was called with. Its caller gets what it
  returned or raised. Only `yield {"batch": other}` passes another argument on.
- A watcher may return before it yields; then it does not watch this call. Errors of the watcher
  are counted and told, and never reach the trainer.
- Parameters are found by name. The signature is read when the function is replaced. A function
  that lacks one of the parameters is not watched, and the log says so. Three exceptions: a
  parameter with a default may be missing, one before a `/` may have another name at the same
  position, and `**rest` takes everything that the call gave, by the trainer's names.
- Plain, async and generator functions are watched alike, in modules, classes and objects.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from inspect import Parameter
from types import TracebackType
from typing import Any, NamedTuple, Self

from .. import capture

Watching = Generator[Any, Any, None]
"""The type that a watcher is declared to return."""

Watcher = Callable[..., Watching]

_ABSENT: Any = object()

_ours: weakref.WeakSet[Any] = weakref.WeakSet()
"""Functions that we put in place. They cannot be marked by an attribute: Ray wraps the methods
of its actors and copies all attributes."""


def original(function: Any) -> Any:
    """The trainer's own function, if `function` is one that we put in its place."""
    return function.__wrapped__ if is_ours(function) else function


def is_ours(function: Any) -> bool:
    return function in _ours


def in_place_of(function: Any, ours: Any) -> Any:
    """Make `ours` look like the trainer's function, and remember that it is ours."""
    functools.update_wrapper(ours, function)
    _ours.add(ours)
    return ours


class Seams:
    """The functions that an adapter has replaced, and how they were before."""

    def __init__(
        self, adapter: str, trainer: str, arrive: Callable[[str, str], Any] | None = None
    ) -> None:
        """`trainer` is its name and version, as the log shows them. `arrive`: see `ByName`."""
        self.adapter = adapter
        self.trainer = trainer
        self._arrive = arrive
        self._watching: list[tuple[_Seam, Any]] = []
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def fit(self, owner: Any, paths: Mapping[str, Callable[..., Any]], lost: str) -> bool:
        """Are all these functions there, with the parameters that are looked at?

        `paths` maps names, or paths such as `tracker.log`, to what looks at them. What does not
        fit is told, followed by `lost`: what will not be recorded.
        """
        wrong = []
        for path, looks in paths.items():
            try:
                taken(owner, path, looks)
            except TypeError as error:
                wrong.append(str(error))
        self._tell(wrong, lost)
        return not wrong

    def watch(
        self, owner: Any, paths: Mapping[str, Watcher], lost: str, *, anew: bool = False
    ) -> list[str]:
        """Watch those of these functions that fit, and return their paths. The others are told.

        A function that is watched already keeps its watcher, unless `anew` is set.
        """
        done = []
        for path, watcher in paths.items():
            try:
                self._watch(owner, path, watcher, anew)
                done.append(path)
            except TypeError as error:
                self._tell([str(error)], lost)
        return done

    def _watch(self, owner: Any, path: str, watcher: Watcher, anew: bool) -> None:
        holder, name, found = taken(owner, path, watcher)
        function = _plain(found)
        if not anew and is_ours(getattr(function, "__func__", function)):
            return
        ours = self.watched(original(function), watcher, path)
        if self._arrive is not None:
            ours = in_place_of(function, ByName(ours, self._arrive, holder.__name__, name))
        self.replace(holder, name, ours if function is found else type(found)(ours))

    def watched(self, function: Any, watcher: Watcher, name: str) -> Any:
        """The function with its watcher. It is not put in place yet."""
        seam = _Seam(function, watcher, f"adapter {self.adapter}: {name}")
        ours = in_place_of(function, _wrapper(seam))
        self._watching.append((seam, ours))
        return ours

    def replace(self, owner: Any, name: str, ours: Any) -> None:
        """Put `ours` in the place of a function of this module, class or object."""
        before = _own(owner).get(name, _ABSENT)
        try:
            setattr(owner, name, ours)
        except (AttributeError, TypeError) as error:  # slots, frozen, read-only
            raise TypeError(f"{_label(owner)}.{name} could not be watched ({error})") from error
        self._replaced.append((owner, name, original(before), ours))

    def restore(self) -> None:
        """Put the originals back, the last first. If somebody has wrapped our function in the
        meantime, ours stays inside that wrapper and only passes calls on."""
        while self._replaced:
            owner, name, before, ours = self._replaced.pop()
            if _own(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for seam, ours in self._watching:
            seam.watcher = None
            _ours.discard(ours)
        self._watching.clear()

    def _tell(self, wrong: Sequence[str], lost: str) -> None:
        if wrong:
            text = f"{self.trainer}: {' and '.join(wrong)}; {lost}"
            capture.report(f"adapter {self.adapter}", text)


class ByName:
    """A watched function of a module that is pickled by its name.

    Pickle sends a function by value, with everything it holds, if it is not the one that its
    module defined. This one is sent as `arrive(module, name)`, which returns the function of
    the process where it arrives.
    """

    def __init__(
        self, function: Any, arrive: Callable[[str, str], Any], module: str, name: str
    ) -> None:
        self._function = function
        self._address = arrive, (module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return self._address


# -- finding functions and what they lack ----------------------------------------------


def taken(owner: Any, path: str, looks: Callable[..., Any]) -> tuple[Any, str, Any]:
    """The owner of the function at the end of a path, its name there, and the function.

    A class gives it as it is defined there, for example as a `staticmethod`. If the function is
    missing, or lacks a parameter that `looks` names, a TypeError says so.
    """
    *way, name = path.split(".")
    holder = functools.reduce(lambda found, step: getattr(found, step, None), way, owner)
    if holder is None:
        raise TypeError(f"{_label(owner)} has no {path}")
    static = isinstance(holder, type)
    found = (inspect.getattr_static if static else getattr)(holder, name, None)
    if found is None:
        near = ", ".join(difflib.get_close_matches(name, dir(holder)))
        raise TypeError(f"{_label(holder)} has no {name}" + (f" (it has {near})" if near else ""))
    try:
        lacks = Look(original(_plain(found)), looks).lacks
    except ValueError as error:  # written in C
        lacks = f"cannot be watched ({error})"
    if lacks:
        raise TypeError(f"{_label(holder)}.{name} {lacks}")
    return holder, name, found


def _plain(found: Any) -> Any:
    """The function inside a `staticmethod` or `classmethod`."""
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _label(owner: Any) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return str(getattr(owner, "__name__", type(owner).__name__))


def _own(owner: Any) -> Mapping[str, Any]:
    """The attributes of this object itself, without those of its class."""
    found: Mapping[str, Any] = getattr(owner, "__dict__", {})
    return found


# -- one watched function --------------------------------------------------------------


class _Argument(NamedTuple):
    """Where a call has an argument that the watcher wants to see."""

    name: str
    place: int | None
    """Its position among the arguments without a name. None: it always comes with its name."""
    default: Any
    is_taken: bool
    """Does the trainer's function take it?"""

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.name in kwargs:
            return kwargs[self.name]
        if self.place is not None and self.place < len(args):
            return args[self.place]
        if self.default is Parameter.empty:
            raise TypeError(f"called without {self.name!r}")
        return self.default


_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Look:
    """Calls a function of ours with those arguments of a trainer's call that it names."""

    def __init__(self, function: Any, ours: Callable[..., Any]) -> None:
        self.ours = ours
        self.signature = inspect.signature(function)
        wanted = inspect.signature(ours).parameters
        self._takes_rest = any(p.kind is Parameter.VAR_KEYWORD for p in wanted.values())
        theirs = self.signature.parameters.values()
        self._placed = [p.name for p in theirs if p.kind in _PLACED]
        self.arguments = {
            name: _argument(self.signature, parameter, n)
            for n, (name, parameter) in enumerate(wanted.items())
            if parameter.kind is not Parameter.VAR_KEYWORD
        }
        self._first = [n for n, p in wanted.items() if p.kind is Parameter.POSITIONAL_ONLY]
        lacking = [
            name
            for name, found in self.arguments.items()
            if not found.is_taken and found.default is Parameter.empty
        ]
        self.lacks = ""
        """Which parameters the trainer's function lacks, in words. Empty: none."""
        if lacking:
            self.lacks = f"has no parameter {', '.join(lacking)}: it is {self.signature}"

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found = {name: a.of(args, kwargs) for name, a in self.arguments.items()}
        first = [found.pop(name) for name in self._first]
        return self.ours(*first, **(self._rest(args, kwargs) | found))

    def _rest(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if not self._takes_rest:
            return {}
        if len(args) <= len(self._placed):
            return {**dict(zip(self._placed, args, strict=False)), **kwargs}
        rest: dict[str, Any] = {}
        for name, value in self.signature.bind(*args, **kwargs).arguments.items():
            is_more = self.signature.parameters[name].kind is Parameter.VAR_KEYWORD
            rest |= value if is_more else {name: value}
        return rest


class _Seam:
    """A function of the trainer and its watcher. None: it is not watched any more."""

    def __init__(self, function: Any, watcher: Watcher, where: str) -> None:
        self.function = function
        self.watcher: Look | None = Look(function, watcher)
        self.where = where


def _argument(theirs: inspect.Signature, wanted: Parameter, n: int) -> _Argument:
    """Where a call has the n-th parameter of the watcher."""
    kinds = {p.kind for p in theirs.parameters.values()}
    named = {
        name: p
        for name, p in theirs.parameters.items()
        if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }
    unnamed = [name for name, p in named.items() if p.kind is not Parameter.KEYWORD_ONLY]
    name = wanted.name
    if name in named:
        default = named[name].default
        if default is Parameter.empty:
            default = wanted.default
        return _Argument(name, unnamed.index(name) if name in unnamed else None, default, True)
    if wanted.kind is Parameter.POSITIONAL_ONLY:
        if n < len(unnamed):
            return _Argument(unnamed[n], n, wanted.default, True)
        if Parameter.VAR_POSITIONAL in kinds:
            return _Argument(name, n, wanted.default, True)
    return _Argument(name, None, wanted.default, Parameter.VAR_KEYWORD in kinds)


class _Call:
    """One call of a watched function, as the watcher sees it."""

    def __init__(self, seam: _Seam, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.result: Any = None
        self.goes_on = False
        """The result is a coroutine: the trainer's code has not run yet."""
        self._where = seam.where
        self._watcher: Any = None
        look = seam.watcher
        if look is None:
            return
        with capture.guard(seam.where):
            watcher = look(args, kwargs)
            changes = next(watcher, _ABSENT)
            if changes is not _ABSENT:
                self._change(look, changes or {})
                self._watcher = watcher

    def _change(self, look: Look, changes: Mapping[str, Any]) -> None:
        args, kwargs = list(self.args), dict(self.kwargs)
        for wanted, value in changes.items():
            name, place, _, is_taken = look.arguments[wanted]
            if place is not None and place < len(args):
                args[place] = value
            elif is_taken:
                kwargs[name] = value
        self.args, self.kwargs = tuple(args), kwargs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watcher is None or (self.goes_on and error is None):
            return
        with capture.guard(self._where):
            if error is None:
                self._go_on(self._watcher.send, self.result)
                return
            try:
                self._go_on(self._watcher.throw, error)
            except BaseException as raised:
                # Python lets no StopIteration out of a generator.
                is_stop = isinstance(error, StopIteration) and raised.__cause__ is error
                if raised is not error and not is_stop:
                    raise
            finally:
                error.__traceback__ = traceback  # without the watcher's lines

    def _go_on(self, resume: Callable[[Any], Any], given: Any) -> None:
        with contextlib.suppress(StopIteration):
            resume(given)
            raise RuntimeError("a watcher yields once")


def _wrapper(seam: _Seam) -> Any:
    """A function of the same kind as the trainer's: plain, async, or a generator."""
    function = seam.function

    def plain(*args: Any, **kwargs: Any) -> Any:
        with _Call(seam, args, kwargs) as call:
            call.result = function(*call.args, **call.kwargs)
            call.goes_on = inspect.iscoroutine(call.result)
        return _awaited(call) if call.goes_on else call.result

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with _Call(seam, args, kwargs) as call:
            call.result = await function(*call.args, **call.kwargs)
        return call.result

    def generator(*args: Any, **kwargs: Any) -> Any:
        with _Call(seam, args, kwargs) as call:
            call.result = yield from function(*call.args, **call.kwargs)
        return call.result

    if inspect.isgeneratorfunction(function):
        return generator
    return coroutine if inspect.iscoroutinefunction(function) else plain


async def _awaited(call: _Call) -> Any:
    """The rest of a call of a plain function that returned a coroutine."""
    with call:
        call.goes_on = False
        call.result = await call.result
    return call.result
