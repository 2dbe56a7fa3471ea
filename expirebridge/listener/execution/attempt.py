"""An attempt: one run of a claimed task by its handler."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from expirebridge.errors import InvalidTask
from expirebridge.handlers import Handler, Kind, check_binding
from expirebridge.limits.values import Rate
from expirebridge.listener.execution.exceptions import (
    DecodingFailed,
    HandlerDiffers,
    HandlerMissing,
    ProcessFailure,
    TimedOut,
)
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.execution.outcome import AttemptOutcome, CallResult, OutcomeBuilder
from expirebridge.listener.hindrances import Hindrances
from expirebridge.listener.session import SessionOwner
from expirebridge.store.record_values import ring_for
from expirebridge.store.task_records import ClaimedTask, listener_of
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.codec import encoded_in
from expirebridge.task.durations import human
from expirebridge.task.key_ring import MARK, KeyRing, NotOpened
from expirebridge.task.keys import decode_args
from expirebridge.task.lateness import LATE, Lateness
from expirebridge.task.objective import Objective
from expirebridge.task.policies import (
    DEFAULT_POLICY,
    Busy,
    Discard,
    Retry,
    RetryPolicy,
    Snooze,
    decode_misfire,
    decode_policy,
)
from expirebridge.task.task import State, Task, from_ms
from expirebridge.task.transactions import Transaction

logger = logging.getLogger("expirebridge")

BROKEN_OFF = 1.0
"""Retry delay in seconds after an error of the listener's own."""


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
    """One run of a claimed task, from its claim to its outcome.

    Without a `handler` it ends at once; `hint` then suggests the name that may have been meant.
    `timeout`, in seconds, is the limit where neither the task nor the handler has one. The testing
    kit runs attempts without a listener: they have no `consumer`, no `gate` and no lease.
    `key_ring` opens its arguments, and seals its outcome.
    """

    encoded: bytes | None = None
    """What a codec made of the arguments, until it has decoded them; None: they were read."""
    _not_opened = ""
    """Why its arguments, which are sealed, could not be opened; empty if they could."""

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler | None,
        *,
        hint: str,
        timeout: float,
        consumer: Consumer | None = None,
        gate: StartGate | None = None,
        key_ring: KeyRing | None = None,
    ) -> None:
        self._consumer = consumer
        self._gate = gate
        self.claimed = claimed
        self.handler = handler
        self.outcomes = OutcomeBuilder(claimed, key_ring)
        self._hint = hint
        self._retry_policy: RetryPolicy = DEFAULT_POLICY
        self._unreadable = claimed.unreadable
        """The unreadable part of the record, and why; empty if all could be read."""
        self.task = self._read()
        self.limit = claimed.timeout or (handler.timeout if handler else None) or timeout
        """Timeout of its handler, in seconds."""
        self.lateness = 0.0
        """Seconds from its due time to its start, by the estimate of the server's clock."""
        self.began: float | None = None
        """Time of the call of its handler, by `time.perf_counter`."""
        self.answer: CallResult | None = None
        """Result of a plain function in its thread, until the event loop takes it."""
        self.took = 0.0
        """Seconds that its handler took."""
        self.stopped = ""
        """The reason if the listener cancelled it."""
        self.is_over = False
        """Set once its handler has ended, or will not be called."""
        self.is_stuck = False
        """Set if its handler still ran one grace time after its timeout."""
        self.settlement: Settlement | None = None
        """The settlement to record, or recorded, once it is decided."""

    @property
    def late(self) -> Lateness | None:
        """How late it is, and why, if that is more than its `late_after`, or a second."""
        return self.outcomes.late

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

    @property
    def row_check(self) -> RowLookup | None:
        """The check of its row, if its task is of a ledger that this listener has."""
        if self.claimed.ledger is None or self._consumer is None:
            return None
        return self._consumer.row_check

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

    def misfire(self, lateness: float) -> AttemptOutcome | None:
        """The outcome if the attempt is too late, by so many seconds, to call the handler.

        One that is skipped when it is late is so, too, if it waited for a slot.
        """
        policy = self.handler.misfire if self.handler is not None else None
        if self.handler is not None and (objective := self.handler.late) is not None:
            self.outcomes.objective = Objective(objective, is_kept=lateness <= objective)
        if self.claimed.misfire is not None:
            try:
                policy = decode_misfire(self.claimed.misfire)
            except ValueError as error:
                reason = f"its misfire policy cannot be read: {error}"
                return self.outcomes.failed(reason, open=True)
        whole = lateness + self.claimed.waited
        if policy is None or policy.late_after is None:
            if whole > LATE:
                self._note_late(whole)
            return None
        if policy.window is None:
            lateness = whole
        if lateness <= policy.late_after:
            return None
        self._note_late(whole)
        found = f"found {human(lateness)} late, more than {human(policy.late_after)}"
        delay = policy.delay()
        if delay is None:
            return self.outcomes.failed(f"skipped: {found}", open=True)
        return self.outcomes.spread(delay, f"spread: {found}")

    def _note_late(self, seconds: float) -> None:
        """Derive why it is so late; without a listener nobody knows."""
        if self._consumer is not None:
            start = self.claimed.due / 1000 + seconds
            cause = self._consumer.hindrances.cause_of(self.claimed, start)
            self.outcomes.late = Lateness(seconds, cause)

    def take_arguments(self, decoded: bytes) -> AttemptOutcome | None:
        """Read the arguments that a codec has decoded; the outcome if these are none."""
        try:
            args, kwargs = decode_args(decoded)
        except (TypeError, ValueError) as error:
            return self.outcomes.failed(f"its codec decoded no arguments: {error}")
        self.task = replace(self.task, args=args, kwargs=kwargs)
        self.encoded = None
        return None

    def refusal(self) -> AttemptOutcome | None:
        """The outcome if there is no handler, or the record cannot be read."""
        if self.handler is None:
            return self.outcomes.unknown(f"in the listener that claimed it{self._hint}")
        if self._not_opened:
            return self.outcomes.not_opened(self._not_opened)
        if self._unreadable:
            return self.outcomes.failed(f"{self._unreadable} cannot be read", open=True)
        try:
            self._retry_policy = self._read_retry_policy(self.handler)
        except ValueError as error:
            reason = f"its retry policy cannot be read: {error}"
            return self.outcomes.failed(reason, open=True)
        return None

    def overrun(self) -> AttemptOutcome:
        """The outcome if its handler overran its timeout and still runs when its listener ends."""
        self.took = self.limit - self.left()
        reason = f"timed out after {self.limit:g} s and could not be stopped"
        return self.outcomes.retry_or_fail(self._retry_policy, reason, open=True)

    def after(self, error: BaseException) -> AttemptOutcome:
        """The outcome of an error that the call raised. Raises nothing, whatever the error is."""
        try:
            if isinstance(error, DecodingFailed):
                return self.outcomes.not_decodable(self._retry_policy, error)
            return self._after(error)
        except BaseException as another:  # to format its error may raise, too
            # Without the traceback, which may be what cannot be formatted.
            logger.error("%s %s raised an unprintable error", self.task.func, self.task.id)  # noqa: TRY400
            return self.outcomes.failed(
                f"its error cannot be printed: to format it raised {type(another).__name__}"
            )

    def broken_off(self, error: BaseException) -> AttemptOutcome:
        """The outcome of an error, or a cancellation, outside of its handler's call.

        The attempt is not counted. An unexpected error may repeat, so the next one is delayed.
        """
        reason = self.stopped or f"its listener raised {type(error).__name__}"
        delay = BROKEN_OFF if isinstance(error, Exception) else 0.0
        if self.began is None:
            return self.outcomes.not_begun(delay, reason)
        return self.outcomes.spread(delay, reason)

    def _after(self, error: BaseException) -> AttemptOutcome:
        """One branch for each way to fail."""
        outcomes, policy = self.outcomes, self._retry_policy
        match error:
            case asyncio.CancelledError() if self.stopped:
                return outcomes.given_back(self.stopped)
            case asyncio.CancelledError():
                reason = "the handler was cancelled from within"
                return outcomes.retry_or_fail(policy, reason, open=True)
            case Retry():
                return outcomes.obeys(error)
            case Snooze():
                now = self.now()
                return outcomes.snoozed(error, policy, snoozes=self.task.snoozes, now=now)
            case Busy():
                return outcomes.busy(error, policy, self._rate_of(error))
            case Discard():
                return outcomes.failed(str(error))
            case HandlerMissing():
                return outcomes.unknown(str(error))
            case HandlerDiffers():
                return self._wrong_arguments() or outcomes.misfit(str(error))
            case ProcessFailure():
                return outcomes.retry_or_fail(policy, str(error), open=True)
            case TimedOut():
                reason = f"timed out after {self.limit:g} s"
                return outcomes.retry_or_fail(policy, reason, open=True)
            case TypeError():
                return self._wrong_arguments() or outcomes.raised(policy, error)
            case _:  # a handler's sys.exit() ends its task, not the listener
                return outcomes.raised(policy, error)

    def _rate_of(self, busy: Busy) -> str | None:
        """The name of the handler's rate with this `per`; None if it has none."""
        limits = self.handler.limits if self.handler is not None else ()
        rates = (one for one in limits if isinstance(one.limit, Rate))
        return next((one.name for one in rates if one.limit.per == busy.per), None)

    def _wrong_arguments(self) -> AttemptOutcome | None:
        """The outcome if the arguments do not fit the handler of this listener."""
        if self.handler is None:
            return None
        try:
            check_binding(self.handler.function, self.task.args, self.task.kwargs)
        except InvalidTask as error:
            return self.outcomes.unfit(f"its arguments do not fit: {error}")
        return None

    def _read_retry_policy(self, handler: Handler) -> RetryPolicy:
        if self.claimed.retry is not None:
            return decode_policy(self.claimed.retry)
        return handler.retry or DEFAULT_POLICY

    def _read(self) -> Task:
        claimed = self.claimed
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        try:
            stored = self._opened(claimed.args)
            self.encoded = encoded_in(stored)
            if self.encoded is None:
                args, kwargs = decode_args(stored)
        except NotOpened as fault:
            self._not_opened = str(fault)
        except ValueError as error:
            self._unreadable = f"its arguments ({error})"
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
            **claimed.shown,
        )

    def _opened(self, stored: bytes) -> bytes:
        """Its arguments, opened if they are sealed. Raises NotOpened."""
        if not stored.startswith(MARK):
            return stored
        key_ring = ring_for(stored, self.outcomes.key_ring)
        return key_ring.open_arguments(stored, self.claimed.id, self.claimed.func)


class FinishedAttempt(NamedTuple):
    """An attempt that ended, and whose outcome is to be recorded."""

    attempt: Attempt
    outcome: AttemptOutcome
    duration: float
    """Seconds that its handler took."""
