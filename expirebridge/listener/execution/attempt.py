"""An attempt: one run of a claimed task by its handler."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from expirebridge.handlers import Handler, Kind
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.execution.outcome import AttemptOutcome, CallResult, OutcomeBuilder
from expirebridge.listener.hindrances import Hindrances
from expirebridge.listener.session import SessionOwner
from expirebridge.store.record_values import ring_for
from expirebridge.store.stored_signal import signal_in
from expirebridge.store.task_records import ClaimedTask, listener_of
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.codec import encoded_in
from expirebridge.task.key_ring import MARK, KeyRing, NotOpened
from expirebridge.task.keys import decode_args
from expirebridge.task.lateness import Lateness
from expirebridge.task.missing_ability import NOT_OPENED, SIGNAL_NOT_OPENED
from expirebridge.task.policies import DEFAULT_POLICY, RetryPolicy
from expirebridge.task.signal import Signal
from expirebridge.task.task import State, Task, from_ms
from expirebridge.task.transactions import Transaction

# The parts of a listener that an attempt uses.


class OutcomeRecorder(Protocol):
    """Records outcomes on the server: the settler, as attempts use it."""

    def add(self, finished: "FinishedAttempt") -> None:
        """Record the outcome soon."""
        ...

    def close(self, finished: "FinishedAttempt", settled: Settled = Settled.DONE) -> None:
        """Release an attempt whose outcome is recorded, here or elsewhere, or was refused."""
        ...


class RowLookup(Protocol):
    """Checks tasks of a ledger against their rows."""

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """The outcome if the task is not to run now; None if it is. Raises StartRefused."""
        ...

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """The outcome to record of an attempt that failed."""
        ...

    def completer_for(self, attempt: "Attempt") -> Callable[[Transaction], None]:
        """The function that completes the task in a transaction of its handler."""
        ...


class Consumer(SessionOwner, Protocol):
    """The consumer of a partition, as attempts of its tasks use it."""

    @property
    def hindrances(self) -> Hindrances:
        """What hindered its claims."""
        ...

    @property
    def leases(self) -> Leases:
        """The leases of the tasks that it claimed."""
        ...

    @property
    def settler(self) -> OutcomeRecorder:
        """Records the outcomes of its attempts."""
        ...

    @property
    def row_check(self) -> RowLookup | None:
        """Asks its ledger; None without one."""
        ...


class StartGate(Protocol):
    """Lets each attempt start at most once, and not after it was withdrawn."""

    def begin(self, attempt: "Attempt") -> None:
        """Let the attempt begin. Raises StartRefused."""
        ...


class Attempt:
    """One run of a claimed task, from its claim to its outcome; `AttemptSteps` takes its steps.

    Without a `handler` it ends at once; `hint` then suggests the name that may have been meant.
    `timeout`, in seconds, is the limit where neither the task nor the handler has one. `row_check`
    asks for its row, if it is of a ledger. The testing kit runs attempts without a listener: they
    have no `consumer`, no `gate` and no lease. `key_ring` opens its arguments, and seals its
    outcome.
    """

    encoded: bytes | None = None
    """What a codec made of the arguments, until it has decoded them; None: they were read."""
    not_opened = ""
    """What of it is sealed, and why that could not be opened; empty if it could."""
    retry_policy: RetryPolicy = DEFAULT_POLICY
    lateness = 0.0
    """Seconds from its due time to its start, by the estimate of the server's clock."""
    began: float | None = None
    """Time of the call of its handler, by `time.perf_counter`."""
    answer: CallResult | None = None
    """Result of a plain function in its thread, until the event loop takes it."""
    took = 0.0
    """Seconds that its handler took."""
    stopped = ""
    """The reason if the listener cancelled it."""
    is_over = False
    """Set once its handler has ended, or will not be called."""
    is_stuck = False
    """Set if its handler still ran one grace time after its timeout."""
    settlement: Settlement | None = None
    """The settlement to record, or recorded, once it is decided."""

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler | None,
        *,
        hint: str,
        timeout: float,
        consumer: Consumer | None = None,
        gate: StartGate | None = None,
        row_check: RowLookup | None = None,
        key_ring: KeyRing | None = None,
    ) -> None:
        self._consumer = consumer
        self._gate = gate
        self.claimed = claimed
        self.handler = handler
        self.outcomes = OutcomeBuilder(claimed, key_ring)
        self.row_check = row_check
        self.awaits_row = row_check is not None
        """True until its row was read, or could not be."""
        self.hint = hint
        self.unreadable = claimed.unreadable
        """The unreadable part of the record, and why; empty if all could be read."""
        self.task = self._read()
        self.limit = claimed.timeout or (handler.timeout if handler else None) or timeout
        """Timeout of its handler, in seconds."""

    @property
    def can_be_stopped(self) -> bool:
        """True if its handler can be cancelled, or killed with its process."""
        return self.handler is not None and self.handler.kind is not Kind.THREAD

    @property
    def runs_in_thread(self) -> bool:
        """True if its handler runs on while the event loop is blocked."""
        return self.handler is not None and self.handler.kind is Kind.THREAD

    @property
    def runs_in_process(self) -> bool:
        """True if its handler runs in a process, and can be killed with it."""
        return self.handler is not None and self.handler.kind is Kind.PROCESS

    @property
    def consumer(self) -> Consumer:
        """The consumer that claimed the task."""
        if self._consumer is None:
            raise LookupError(f"task {self.claimed.id} runs without a listener")
        return self._consumer

    def begin(self) -> None:
        """Begin, in the thread that calls the handler, right before the call.

        Raises StartRefused if the lease may have lapsed, or the attempt was withdrawn.
        """
        if self._gate is not None:
            self._gate.begin(self)
        self.began = time.perf_counter()

    def left(self) -> float:
        """Seconds left of its timeout; it starts when its handler is called."""
        began = self.began
        return self.limit if began is None else began + self.limit - time.perf_counter()

    @property
    def is_overdue(self) -> bool:
        """True if its handler runs after its timeout; never in a process, which is killed then."""
        return self._is_running and self.left() <= 0 and not self.runs_in_process

    def may_end_in_thread(self, grace: float) -> bool:
        """True if a plain function runs, and may end in its timeout and this grace (seconds)."""
        return self._is_running and self.runs_in_thread and self.left() + grace > 0

    @property
    def _is_running(self) -> bool:
        return self.began is not None and self.answer is None and not self.is_over

    def has_lease(self) -> bool:
        """True if its lease cannot have lapsed yet; see Leases.is_fresh."""
        claimed, consumer = self.claimed, self._consumer
        return consumer is None or consumer.leases.is_fresh(claimed.id, claimed.token)

    def lease_end(self) -> float:
        """Latest start, by the monotonic clock; see Leases.fresh_until."""
        claimed, consumer = self.claimed, self._consumer
        if consumer is None:
            return math.inf
        return consumer.leases.fresh_until(claimed.id, claimed.token)

    def now(self) -> float:
        """The estimate of the server's time, in seconds since 1970."""
        if self._consumer is None:
            return self.claimed.due / 1000 + self.claimed.waited + self.lateness + self.took
        return self._consumer.session.server_clock.now()

    def note_late(self, seconds: float) -> None:
        """Derive why it is so late; without a listener nobody knows."""
        if self._consumer is not None:
            start = self.claimed.due / 1000 + seconds
            cause = self._consumer.hindrances.cause_of(self.claimed, start)
            self.outcomes.late = Lateness(seconds, cause)

    def _read(self) -> Task:
        """The task as its handler sees it, as far as its record can be read."""
        claimed = self.claimed
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        try:
            stored = self._opened(claimed.args)
            self.encoded = encoded_in(stored)
            if self.encoded is None:
                args, kwargs = decode_args(stored)
        except NotOpened as fault:
            self.not_opened = f"{NOT_OPENED}{fault}"
        except ValueError as error:
            self.unreadable = f"its arguments ({error})"
        return Task(
            id=claimed.id,
            func=claimed.func,
            args=args,
            kwargs=kwargs,
            key=claimed.key,
            state=State.RUNNING,
            due=from_ms(claimed.due),
            created=from_ms(claimed.made * 1000) if claimed.made is not None else None,
            attempt=claimed.attempt,
            lapses=claimed.lapses,
            listener=listener_of(claimed.token),
            signal=self._read_signal(),
            **claimed.shown,
        )

    def _read_signal(self) -> Signal | None:
        """What decided that it runs this function, if it can be read."""
        try:
            return signal_in(self.claimed.told, self.claimed.id, self.outcomes.key_ring)
        except NotOpened as fault:
            self.not_opened = f"{SIGNAL_NOT_OPENED}{fault}"
            return None

    def _opened(self, stored: bytes) -> bytes:
        """Its arguments, opened if they are sealed. Raises NotOpened."""
        if not stored.startswith(MARK):
            return stored
        key_ring = ring_for(stored, self.outcomes.key_ring)
        return key_ring.open_arguments(stored, self.claimed.id, *self.claimed.sealed_for)


class FinishedAttempt(NamedTuple):
    """An attempt that ended, and whose outcome is to be recorded."""

    attempt: Attempt
    outcome: AttemptOutcome
    duration: float
    """Seconds that its handler took."""
