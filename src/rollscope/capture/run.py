"""A run as the program sees it: where rollouts, late facts and metrics are handed over."""

from __future__ import annotations

import itertools
import operator
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ..model import Fact, Message, Rollout, chat, keyed_id, prompt_task, wire
from ..model.algorithm import Algorithm
from ..model.conversation import prompt_size
from ..model.counted import counted
from ..model.identity import id_maker
from ..model.normalise import text
from ..model.redact import Redactor, redact_fact, redact_rollout
from ..model.sample import Sampler
from ..model.staged import Moving, staged
from ..store.write.log import Entry, LogWriter, Phase
from ..store.writers import Adapter, Counters, WriterInfo, new_writer, place, process_start
from . import carrying, forwarding
from .background import Background
from .fact_names import named_facts
from .forwarding import Follower
from .live import LiveRollout
from .problems import guard, odd, problems, swallowed
from .setup import Setup
from .unmatched import Unmatched

_NOT_ENCODED = "could not be encoded"
_REMEMBERED = 100_000  # rollouts that a sample left out, whose late facts are left out as well


class Run:
    """One training run. `rollscope.init` makes it; it is also a context manager."""

    def __init__(self, setup: Setup, *, is_off: bool = False) -> None:
        self.setup = setup
        self.project = setup.project
        self.name = setup.run
        self.launch = setup.launch
        self.redactor: Redactor | None = setup.redactor
        self.streams = setup.streams
        self._sampler = Sampler(setup.sample) if setup.sample is not None else None
        self._adapters: list[Adapter] = []
        self._algorithm: Algorithm | None = None
        self.before_finish: list[Callable[[], None]] = []
        """Called by `finish`: what adapters have taken and not handed over yet."""
        self.is_own = False
        """Did a person begin it, by `init`?"""
        self.trainings: Counter[str] = Counter()
        """How many trainings of this process each adapter has recorded here."""
        self._sampled_out = 0
        self._left_out: dict[str, None] = {}
        self._is_off = is_off
        self._is_finished = is_off
        self._start_writer()

    def __repr__(self) -> str:
        if self._is_off:
            return "<Run: not recorded>"
        dropped = sum(self.counters.dropped.values())
        state = "finished" if self._is_finished else "recording"
        lost = f", {dropped:,} dropped" if dropped else ""
        recorded = counted(self.counters.recorded, "rollout")
        return f"<Run {self.project}/{self.name}: {state}, {recorded}{lost}>"

    def _start_writer(self) -> None:
        """A new writer with an empty queue: at the beginning, and in the child of a fork."""
        setup = self.setup
        self.new_id = id_maker()
        self._fact_numbers = itertools.count()
        self._fact_time = 0.0
        self._unmatched = Unmatched()
        info = WriterInfo(
            writer=new_writer(),
            project=setup.project,
            run=setup.run,
            launch=setup.launch,
            worker=setup.worker,
            host=setup.host,
            pid=os.getpid(),
            place=place(),
            process_start=process_start(os.getpid()),
            started=time.time(),
            rollscope=setup.version,
            adapters=self._adapters,
            config=setup.config,
            algorithm=self._algorithm,
            sample=setup.sample,
            forwarded_to=list(setup.sinks),
        )
        self._background = Background(
            LogWriter(setup.directory, info, setup.limits), setup.queue, setup.beat
        )
        self._background.after_beat["other nodes"] = carrying.beat
        self._follower = None if self._is_off else self._follow()

    @guard("sinks")
    def _follow(self) -> Follower | None:
        """Let the sinks follow what is written."""
        if not self.setup.sinks:
            return None
        follower = forwarding.sinks().follow(self.directory, self.setup.sinks)
        self._background.after_beat["sinks"] = follower.beat
        return follower

    # -- handing over ------------------------------------------------------------------

    def log(
        self,
        rollouts: Rollout | Mapping[str, Any] | Iterable[Rollout | Mapping[str, Any]],
        *,
        step: int | None = None,
        groups: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Record one rollout or many; returns their ids. A rollout may be a dict of its fields;
        other keys go into its `meta`.

        They stay the caller's: nothing is written into them, and they may be changed and logged
        again as soon as this returns. `step` stands for those that have none.
        `groups` is for processes that log one batch together: the size of each of its groups,
        here and elsewhere, by name. A `Sample` then keeps the same groups in all of them.
        """
        if self._is_off:
            return []
        try:
            one = isinstance(rollouts, (Rollout, Mapping))
            batch: list[Any] = [rollouts] if one else list(rollouts)  # type: ignore[arg-type]
        except Exception as error:
            swallowed("run.log", error)
            return []
        ids, good = [], []
        for rollout in batch:
            try:
                taken = self._identified(rollout, step)
                ids.append(taken.id or "")
                good.append(taken)
            except Exception as error:
                ids.append("")
                self._refuse(error)
        if self._sampler is not None:
            good = self._sampled(self._sampler, good, groups)
        moving: Moving = {}
        with guard("run.log: taking tensors over"):
            moving = staged(good)
        for rollout in good:
            try:
                self._record(rollout, moving)
            except Exception as error:
                self._refuse(error)
        return ids

    def _refuse(self, error: Exception) -> None:
        self._background.drop("rollouts", _NOT_ENCODED)
        swallowed("run.log", error)

    def _sampled(
        self, sampler: Sampler, batch: list[Rollout], groups: Mapping[str, int] | None
    ) -> list[Rollout]:
        """The rollouts of a batch that the sample keeps."""
        with guard("run.log: sampling"):
            keep = sampler.keep(batch, is_batch=len(batch) > 1, groups=groups)
            self._leave_out([r for r, kept in zip(batch, keep, strict=True) if not kept])
            return list(itertools.compress(batch, keep))
        return batch

    def _identified(self, rollout: Any, step: int | None = None) -> Rollout:
        """A copy with an id, a time and a task. Its messages are not copied, only listed: a
        generator gives them once."""
        is_dict = type(rollout) is not Rollout and isinstance(rollout, Mapping)
        taken: Rollout = _from_dict(rollout) if is_dict else rollout.__copy__()
        if type(taken.messages) is not list:
            taken.messages = list(taken.messages or ())
        if type(taken.spans) is not list:
            taken.spans = list(taken.spans or ())
        if taken.id is None:
            key = taken.key
            taken.id = self.new_id() if key is None else self.id_of(key)
        else:
            taken.id = text(taken.id)
        if taken.time is None:
            taken.time = time.time()
        if taken.step is None and step is not None:
            taken.step = step
        if taken.task is None and taken.messages:
            taken.task = _prompt_task(taken.messages)
        return taken

    def id_of(self, key: Any, launch: str | None = None) -> str:
        """The id of the rollout that has this `key` in the launch, in whatever process it is
        logged. `launch`: another one of the same run."""
        return keyed_id(self.project, self.name, launch or self.launch, str(key))

    def _leave_out(self, rollouts: list[Rollout]) -> None:
        """Count them, and remember their ids, so that later facts about them are left out too."""
        self._sampled_out += len(rollouts)
        self._background.log.info.counters.sampled_out = self._sampled_out
        for rollout in rollouts:
            self._left_out[str(rollout.id)] = None
        while len(self._left_out) > _REMEMBERED:
            del self._left_out[next(iter(self._left_out))]

    def _record(self, rollout: Rollout, moving: Moving) -> None:
        if self.streams is not None:
            rollout = self.streams.of(rollout)
        if self.redactor is not None:
            rollout = redact_rollout(wire.normalise_tokens_later(rollout, odd), self.redactor)
        line = wire.rollout_line(rollout, problems=odd, moving=moving)
        self._unmatched.logged(str(rollout.id))
        self._background.put(Entry(line, "rollouts", rollout.id, "whole"))

    def annotate(
        self,
        rollout: str | None = None,
        *,
        key: str | None = None,
        message: int | None = None,
        author: str | None = None,
        streams: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Say something about a rollout that was logged, by this process or another one.

        `rollout` is its id; or give the `key` that it was logged with. Facts are fields of
        the rollout (`reward`, `advantage`, `fate`, `fate_reason`, `trained_step`, ...), the
        dicts `rewards`, `reward_texts`, `meta`, and `label`, `flag`, `note`. `streams` are
        values per token of the rollout (or of `message`). A fact that is None is ignored.

        With the number of a `message`, facts are about that message alone: `reward`,
        `stop_reason`, `end` and `meta` are its own, and any other stands in its `meta`.
        """
        if self._is_off:
            return
        try:
            id = text(rollout) if key is None else self.id_of(key)
            if id is None:
                raise TypeError("annotate needs the id of a rollout (`log` returns it), or key=")
            if id in self._left_out:
                return
            if message is not None:
                message = _message_number(message)
            made = [self._fact(id, name, value) for name, value in named_facts(facts)]
            for name, values in (streams or {}).items():
                if values is not None and (self.streams is None or self.streams.take(name)):
                    made.append(self._fact(id, f"tokens.{name}", None))
                    made[-1].stream = values
            for fact in made:
                fact.message, fact.author = message, author
            if self.redactor is not None:
                made = [redact_fact(fact, self.redactor) for fact in made]
            if made:
                line = wire.facts_line(made, odd)
                self._unmatched.annotated(id)
                self._background.put(Entry(line, "facts", None, "whole"))
        except Exception as error:
            self._background.drop("facts", _NOT_ENCODED)
            swallowed("run.annotate", error)

    def _fact(self, id: str, name: str, value: Any) -> Fact:
        # The latest of one writer's facts wins even when the clock was set back.
        self._fact_time = max(self._fact_time, time.time())
        return Fact(
            rollout=id, name=name, value=value, time=self._fact_time, n=next(self._fact_numbers)
        )

    def metrics(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Record the trainer's own numbers of one step."""
        if self._is_off:
            return
        try:
            line = wire.metrics_line(step, dict(values), time.time(), odd)
            self._background.put(Entry(line, "metrics", None, "whole"))
        except Exception as error:
            self._background.drop("metrics", _NOT_ENCODED)
            swallowed("run.metrics", error)

    def rollout(self, *, is_chosen: bool | None = None, **fields: Any) -> LiveRollout:
        """Record a rollout while it happens: `with run.rollout(step=12, task="q-1") as r:`.

        `fields` are those of `Rollout`. `is_chosen` is for adapters that see more of the batch
        than this one rollout: they have done the counting of a `Sample` themselves.
        """
        if self._is_off:
            return LiveRollout(None, Rollout())
        try:
            head = self._identified(Rollout(**fields))
            if self._sampler is not None and not self._sampler.admits(head, is_chosen):
                self._leave_out([head])
                return LiveRollout(None, head)
            return LiveRollout(self, head)
        except Exception as error:
            swallowed("run.rollout", error)
            return LiveRollout(None, Rollout())

    def put_head(self, head: Rollout, id: str, phase: Phase) -> bool:
        """The beginning or the end of a live rollout."""
        self._unmatched.logged(id)
        try:
            line = wire.rollout_line(head, is_open=phase == "open", problems=odd)
        except Exception:
            self._background.drop("rollouts" if phase == "open" else "pieces", _NOT_ENCODED)
            raise
        return self._background.put(Entry(line, "rollouts", id, phase))

    def put_piece(self, line: wire.Line, id: str, is_own: bool = True) -> bool:
        """A new message or span of a live rollout. `is_own`: the rollout began in this process."""
        return self._background.put(Entry(line, "pieces", id, "more" if is_own else "whole"))

    # -- its life ----------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where the run lies on disk."""
        return self.setup.directory

    @property
    def writer(self) -> str:
        """The name of this process's writer."""
        return self._background.log.info.writer

    @property
    def is_on(self) -> bool:
        return not self._is_finished

    @property
    def counters(self) -> Counters:
        """What was recorded and lost up to now."""
        return self._background.counters()

    def add_adapter(self, name: str, version: str | None, seams: Iterable[str]) -> None:
        """Note who hands rollouts over, for the writer's file and the line at the start."""
        known = next((a for a in self._adapters if a.name == name), None)
        if known is None:
            self._adapters.append(Adapter(name=name, version=version, seams=list(seams)))
        else:
            known.version = version or known.version
            known.seams += [seam for seam in seams if seam not in known.seams]

    def note_algorithm(self, algorithm: Algorithm) -> None:
        """Note what the trainer's settings say, for the writer's file."""
        if algorithm != Algorithm():
            self._algorithm = self._background.log.info.algorithm = algorithm

    @guard("run.start")
    def start(self, had_ended: bool = False) -> None:
        """Begin to write, and say so in one line.

        `had_ended`: this goes on with a run that came to its end before.
        """
        self._background.start()
        if not self.setup.is_quiet:
            through = "; ".join(
                a.name + (f" through {', '.join(a.seams)}" if a.seams else "")
                for a in self._adapters
            )
            name = f"{self.project}/{self.name}"
            home = self.setup.carried_to
            carried = f", from where Ray carries it to the driver's {home}" if home else ""
            if self.setup.asked is not None:
                name += f" (there is a {self.project}/{self.setup.asked} already)"
            elif had_ended:
                name += ", which had ended,"
            _say(
                f"recording {name}{f' ({through})' if through else ''} "
                f"to {self.directory}{carried}; look with: rollscope view"
            )

    def reserve(self, size: int, kind: str, count: int) -> bool:
        """For adapters: room in the queue for what is not converted yet. False: it is full, and the
        loss of `count` of this kind is counted."""
        return self._background.reserve(size, kind, count)

    def release(self, size: int) -> None:
        """What was reserved is handed over now, or given up."""
        self._background.release(size)

    @property
    def queued(self) -> int:
        """Bytes that are handed over and not written yet."""
        return self._background.queued

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything handed over is written. False: it took longer than `timeout`.

        Training never needs this; a program that reads back, or imports more than the queue
        holds, does.
        """
        return self._is_off or self._background.flush(timeout)

    def finish(self, *, is_crash: bool = False) -> None:
        """Write everything that is queued, and summarise the run in one line.

        `is_crash`: an exception ended the work, so a restart will repeat some of it.
        """
        if self._is_finished:
            return
        for hand_over in self.before_finish:
            with guard("run.finish"):
                hand_over()
        self._is_finished = True
        with guard("run.finish"):
            self._background.log.info.crashed = is_crash
            self._background.close()
            if not self.setup.is_quiet:
                _say(self._summary())
            self._tell_sinks()
            problems.tell()

    def _tell_sinks(self) -> None:
        """Wait for the sinks a little, and say how far they are."""
        if self._follower is not None:
            text = self._follower.finish(self.setup.sinks_wait)
            if not self.setup.is_quiet:
                _say(f"forwarded: {text}")

    def _summary(self) -> str:
        c = self.counters
        lost = ", ".join(f"{n} ({why})" for why, n in sorted(c.dropped.items())) or "none"
        recorded = counted(c.recorded, "rollout")
        text = f"recorded {recorded} of {self.project}/{self.name}, dropped {lost}"
        if c.sampled_out:
            text += f", left out by sampling {c.sampled_out}"
        text += f", {c.bytes / 1e6:.1f} MB"
        unmatched = self._unmatched.count(self.directory, self.writer)
        if unmatched:
            text += f", facts about {counted(unmatched, 'rollout')} that nobody logged"
        count = sum(problem.count for problem in self._background.log.info.problems)
        return text + (f"; {counted(count, 'problem')}: rollscope doctor" if count else "")

    def after_fork(self) -> None:
        """In the child: a new writer and an empty queue. The parent writes what it has queued."""
        if not self._is_finished:
            self._sampled_out = 0
            self.before_finish = []  # the parent hands its own things over
            self._start_writer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.finish(is_crash=error is not None)


def _message_number(given: Any) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if not 0 <= number < 2**31:
        raise TypeError(f"annotate: message= is the number of a message, from 0, not {given!r:.80}")
    return number


def _from_dict(given: Mapping[str, Any]) -> Rollout:
    fields = {str(name): value for name, value in given.items()}
    known = {name: fields.pop(name) for name in Rollout.__struct_fields__ if name in fields}
    if fields:
        known["meta"] = {**(known.get("meta") or {}), **fields}
    return Rollout(**known)


def _prompt_task(messages: list[Message]) -> str | None:
    """A hash of the prompt: everything before the policy's first message."""
    known = [chat.as_message(message) for message in messages]
    texts: list[str] = []
    for message in known[: prompt_size(known)]:
        content = message.content
        if isinstance(content, str):
            texts.append(content)
        elif content is not None:
            parts = map(chat.part, chat.pieces(content))
            texts += [part.text for part in parts if isinstance(part.text, str)]
    return prompt_task("\n".join(texts)) if texts else None


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # no stderr: nobody to tell
        print(f"rollscope: {text}", file=sys.stderr, flush=True)
