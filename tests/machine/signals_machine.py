"""The machine of `machine.py` with tasks that wait for signals: one of two functions runs."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from expirebridge import Change, State
from expirebridge.signals import calls
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.reconciling import EventKind
from tests.machine import machine
from tests.machine.machine import CALLS, STEP, Claimed, ids
from tests.machine.model import LIMITED, Decision

AWAITED = {CALLS[0]: LIMITED, CALLS[2]: "mail.ship"}
"""By call: what a signal runs instead. The other call waits for none."""
ROWS = (
    "signal", "signal again", "replace, signal", "run_now, signal", "slot, signal", "raw SET lost",
)  # fmt: skip
ANSWERS = (
    Change.SIGNALLED, Change.SIGNALLED_BEFORE, Change.RUNNING, Change.FINISHED, Change.BEGUN,
    Change.NOT_AWAITED, Change.NOT_FOUND,
)  # fmt: skip

senders = st.sampled_from(["", "", "psp"])


@dataclass
class Promised:
    """What one was told who sent a signal."""

    func: str
    said: bytes


class SignalMachine(machine.Machine):
    """One database, most of whose tasks wait for signals."""

    awaited: ClassVar[Mapping[str, str]] = AWAITED
    answers: ClassVar[Counter[Change]]

    def __init__(self) -> None:
        super().__init__()
        self.promised: dict[Decision, Promised] = {}
        """By life of an id: it runs this, and nothing else."""
        self.ran: dict[Decision, str] = {}
        """By life of an id: the function that has run."""

    def _operations(self, id: int, name: int, call: str) -> dict[str, Callable[[], None]]:
        return super()._operations(id, name, call) | {
            "signal": lambda: self.signal(id, 1, "", twice=False),
            "signal again": lambda: self._signal_twice(id),
            "replace, signal": lambda: self.replace_and_signal(id, CALLS[0], STEP),
            "run_now, signal": lambda: self.run_now_and_signal(id),
            "slot, signal": lambda: self.free_slot_and_signal(id),
            "raw SET lost": lambda: self._set_lost_again(id),
        }

    @rule(pick=ids, said=st.integers(1, 2), by=senders, twice=st.booleans())
    def signal(self, pick: int, said: int, by: str, twice: bool) -> None:
        self._signal(self.id_for("signal", pick), said, by, twice=twice)

    def _signal(self, id: str, said: int, by: str, *, twice: bool = False) -> Change:
        """`twice`: with one nonce. Without it each call has another."""
        task = self.model.tasks.get(id)
        last = task and (task.run.replacement or task)
        # What the running one was told is told to its successor in vain: it is the same again, if
        # it says who sends it.
        is_again = bool(
            task and task.decision.said == (str(said), by) and (by or task.run.replacement is None)
        )
        func = last.decision.on_signal if last and not is_again else None
        call = calls.signal(id, said, by, None)
        answer = self.run(call, twice=twice)
        self.answers[answer] += 1
        with self._taking_over():
            assert answer is self.model.signal(id, (str(said), by))
        if func and answer is Change.SIGNALLED and last and task:
            assert last.decision not in self.ran
            self.promised[last.decision] = Promised(func, str(said).encode())
            self.promise.acknowledged(id, self.model.now)
            if task.state is State.PAUSED:
                self.promise.paused(id, self.model.now)
        return answer

    @precondition(lambda self: self.promised)
    @rule(pick=ids)
    def signal_again(self, pick: int) -> None:
        """Who sent the signal sends it again, with another nonce: a webhook that comes twice."""
        self._signal_again(self.id_for("signal again", pick))

    def _signal_again(self, id: str) -> None:
        task = self.model.tasks.get(id)
        if task and task.decision.said:
            said, by = task.decision.said
            answer = self._signal(id, int(said), by)
            assert answer is Change.SIGNALLED or (task.run.replacement and not by)

    def _signal_twice(self, id: int) -> None:
        name = self.id_for("signal again", id)
        self._signal(name, 1, "psp")
        self._signal_again(name)

    @rule(pick=ids, call=machine.any_call, delay=machine.delays)
    def replace_and_signal(self, pick: int, call: str, delay: int) -> None:
        """The successor of one that runs is signalled."""
        id = self.id_for("replace, signal", pick)
        self._make(id, call, delay, "", "replace")
        self._signal(id, 1, "")

    @rule(pick=ids)
    def run_now_and_signal(self, pick: int) -> None:
        """A signal comes too late for what has begun, or has ended, and is to run now once more."""
        id = self.id_for("run_now, signal", pick)
        if self.model.state_of(id) is State.RUNNING:
            self._settle(Claimed(id, self._token(id)), "retry", STEP)
        self._run_now(id)
        self._signal(id, 1, "")

    @rule(pick=ids)
    def free_slot_and_signal(self, pick: int) -> None:
        """A signal comes for one that was given a slot, and has not used it yet."""
        id = self.id_for("slot, signal", pick)
        for other in self._in(State.RUNNING):
            self._settle(Claimed(other, self._token(other)), "succeeded")
        self._signal(id, 1, "")

    @precondition(lambda self: any(task.decision.lost for task in self.model.tasks.values()))
    @rule(pick=ids, is_heard=st.booleans())
    def raw_set_lost(self, pick: int, is_heard: bool) -> None:
        """Another client sets the key of the function that will not run."""
        self._raw_set_lost(self.id_for("raw SET lost", pick), is_heard=is_heard)

    def _raw_set_lost(self, id: str, *, is_heard: bool) -> None:
        task = self.model.tasks.get(id)
        if task is None or task.decision.lost is None:
            return
        name = f"{id}:?{task.decision.lost}"
        owner = self.model.owner_of(name)
        self.client.set(name, "", px=STEP * 1000)
        self.model.raw_set(name, self.model.now + STEP)
        self._edited(name, owner, self.model.now + STEP)
        if is_heard:
            self._adopt(name, EventKind.LIVE)

    def _set_lost_again(self, id: int) -> None:
        name = self.id_for("raw SET lost", id)
        self._signal(name, 1, "")
        self._raw_set_lost(name, is_heard=True)

    def _started(self, task: ClaimedTask) -> None:
        super()._started(task)
        decision = self.model.tasks[task.id].decision
        promised = self.promised.get(decision)
        assert task.told.get("signal") == (promised and promised.said)
        assert promised is None or task.func == promised.func
        assert self.ran.setdefault(decision, task.func) == task.func


def machine_for(
    url: str, hits: Counter[tuple[str, str]], aims: list[tuple[str, str]], answers: Counter[Change]
) -> type[SignalMachine]:
    """The machine on one server, counting the cells that it meets, and the answers."""
    values = {"url": url, "hits": hits, "aims": aims, "answers": answers}
    return type("SignalMachineOn", (SignalMachine,), values)
