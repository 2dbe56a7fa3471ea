"""The executor: runs claimed tasks concurrently, as many as there are places for."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from expirebridge.handlers import Kind, Registry
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.hooks import Hooks
from expirebridge.listener.execution.attempt import Attempt, Consumer, FinishedAttempt
from expirebridge.listener.execution.capacity import Capacity
from expirebridge.listener.execution.condition import Condition
from expirebridge.listener.execution.exceptions import StartRefused, Withdrawn
from expirebridge.listener.execution.in_flight import InFlight, PendingStarts, Running
from expirebridge.listener.execution.invoke import Invoker, OverrunPolicy
from expirebridge.listener.execution.leases import CodeVersion, HandlersDeclaration
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.execution.steps import AttemptSteps, after_overrun, broken_off
from expirebridge.listener.execution.thread_pool import ThreadPool
from expirebridge.listener.hindrances import LoopPulse
from expirebridge.listener.wakeups import StopRequest
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.texts import event

if TYPE_CHECKING:
    from expirebridge.listener.execution.process_pool.pool import ProcessPool


# Processes are only started, and their code only imported, if a handler needs them.


def processes_for(registry: Registry, settings: Settings, hooks: Hooks) -> "ProcessPool | None":
    """The process pool for these handlers; None if none of them has `process=True`."""
    if not any(handler.kind is Kind.PROCESS for handler in registry):
        return None
    from expirebridge.listener.execution.process_pool.pool import ProcessPool  # noqa: PLC0415

    return ProcessPool(settings, hooks)


logger = logging.getLogger("expirebridge")

CANCEL_LIMIT = 5.0
"""Seconds that a cancelled handler has to end."""
STOPS = "its listener stopped"


class Executor:
    """Runs an attempt for each claimed task, whichever partition it comes from.

    An attempt has a place of the capacity until its handler has ended, and a lease until its
    outcome is recorded.
    """

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        *,
        hooks: Hooks,
        shutdown: StopRequest,
    ) -> None:
        self.registry = registry
        self.fingerprint = Fingerprint.of(registry)
        self._settings = settings
        self.in_flight = InFlight()
        self.pulse = LoopPulse()
        self._processes = processes_for(registry, settings, hooks)
        self.capacity = Capacity(self._places(), self.in_flight)
        self._threads = ThreadPool(settings.concurrency)
        self._pending = PendingStarts()
        overrun_policy = OverrunPolicy(settings.grace, shutdown, self.in_flight)
        self.condition = Condition(shutdown, self.in_flight)
        invoker = Invoker(self._threads, overrun_policy, self._processes)
        self.steps = AttemptSteps(registry, settings, invoker=invoker, hooks=hooks)
        self._running = Running()
        self._hurried = False

    def _places(self) -> int:
        """The number of tasks that run at once; if all handlers need a process, one in each.

        A task that waits for a process could run in another listener instead.
        """
        most = self._settings.concurrency
        if self._processes is None or any(h.kind is not Kind.PROCESS for h in self.registry):
            return most
        return min(most, self._processes.most)

    def code_version(self, limits: HandlersDeclaration, words: Sequence[str]) -> CodeVersion:
        """What the heartbeats of a partition say of this listener; `words` of its capabilities."""
        key_ring = self._settings.key_ring
        keys = key_ring.checks if key_ring is not None else ()
        return CodeVersion(
            self.fingerprint, limits, self.condition,
            concurrency=self._settings.concurrency, keys=keys, more=words,
        )  # fmt: skip

    def share_processor(self) -> None:
        """Let computing threads release the interpreter's lock sooner, in the whole process."""
        self._threads.switching.take_charge()

    def open(self) -> None:
        """Before the first task: begin to beat, and start a process if a handler needs one."""
        self.pulse.start()
        if self._processes is not None:
            self._processes.open()

    def start(self, claimed: ClaimedTask, consumer: Consumer, *, asked: float) -> None:
        """Run a task that has a place; its claim was sent at `asked` (monotonic)."""
        attempt = self._attempt_of(claimed, consumer)
        consumer.leases.hold(claimed.id, claimed.token, asked=asked)
        self.in_flight.add(attempt)
        self._pending.add(attempt)
        self._running.add(attempt, asyncio.create_task(self._run(attempt)))

    def give_back(self, claimed: ClaimedTask, consumer: Consumer, reason: str) -> None:
        """Release a claimed task for which there is no place to another listener."""
        attempt = self._attempt_of(claimed, consumer)
        self.in_flight.add(attempt)
        self._settle(attempt, attempt.outcomes.given_back(reason))

    def _attempt_of(self, claimed: ClaimedTask, consumer: Consumer) -> Attempt:
        row_check = None if claimed.ledger is None else consumer.row_check
        return self.steps.attempt_of(
            claimed, consumer=consumer, gate=self._pending, row_check=row_check
        )

    # An attempt, step by step

    async def _run(self, attempt: Attempt) -> None:
        """Take all steps of an attempt, and end it."""
        try:
            self._check(attempt)
            outcome = await self.steps.take(attempt)
        except StartRefused as reason:
            self._give_back(attempt, reason)
        except BaseException as error:
            self._break_off(attempt, error)
            raise
        else:
            self._settle(attempt, outcome)
        finally:
            self._end(attempt)

    def _check(self, attempt: Attempt) -> None:
        """Check that it was not stopped, and has its lease. Raises StartRefused."""
        self._pending.check(attempt)
        if attempt.stopped:
            raise asyncio.CancelledError  # see Running.stop
        attempt.lateness = attempt.now() - attempt.claimed.due / 1000 - attempt.claimed.waited

    def _settle(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        """Pass the outcome to the settler, unless the listener gave up the attempt before."""
        if attempt.settlement is None:
            attempt.settlement = outcome.settlement
            attempt.consumer.settler.add(FinishedAttempt(attempt, outcome, attempt.took))

    def _give_back(self, attempt: Attempt, reason: StartRefused) -> None:
        outcome = attempt.outcomes.not_begun(0.0, str(reason))
        if isinstance(reason, Withdrawn):
            # The heartbeat's thread records that.
            attempt.consumer.settler.close(FinishedAttempt(attempt, outcome, 0.0))
        else:
            # Another listener may run it by now. If none does, this one claims it again.
            self._settle(attempt, outcome)

    def _break_off(self, attempt: Attempt, error: BaseException) -> None:
        """Settle an attempt that an error ended outside of its handler, mostly a cancellation."""
        outcome = broken_off(attempt, error)
        try:
            if attempt.began is None:
                attempt.begin()
        except StartRefused as reason:
            self._give_back(attempt, reason)
        else:
            self._settle(attempt, outcome)

    def _end(self, attempt: Attempt) -> None:
        attempt.is_over = True
        self._running.leave(attempt)
        self._pending.forget(attempt)
        self.capacity.release()

    # Stopping

    async def finish_others(self, shutdown: StopRequest) -> None:
        """Once a handler is stuck: wait until nothing else runs, or a stop is requested.

        Every other attempt ends, or is stuck, too, one grace time after its own timeout. The wait
        has a limit, since a server that is away records nothing.
        """
        longest = max((attempt.limit for attempt in self.in_flight), default=0.0)
        await self.in_flight.wait_until(
            lambda: shutdown.asked or self._only_stuck_ones(),
            longest + CANCEL_LIMIT + self._settings.grace,
        )

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for running attempts; then stop those that can be stopped.

        Attempts that wait for a process, or for their rows, are released at once. Plain functions
        that still run in threads keep their leases until these lapse; handlers that overran their
        timeout are recorded as timed out. At the end no process is left.
        """
        in_flight, processes = self.in_flight, self._processes
        self._running.stop(self._running.asking, STOPS)
        if processes is not None:
            processes.stop()
        await in_flight.wait_until(lambda: self._hurried or self._only_stuck_ones(), grace)
        self.cancel_running()
        await in_flight.wait_until(
            lambda: not any((a.can_be_stopped or a.stopped) and not a.is_stuck for a in in_flight),
            CANCEL_LIMIT,
        )
        await self._settle_overdue()
        for attempt in in_flight:
            logger.warning(
                "%s %s still runs; its lease lapses", attempt.task.func, attempt.task.id,
                extra=event("left running", func=attempt.task.func, task=attempt.task.id),
            )  # fmt: skip
        if processes is not None:
            await processes.close()

    def _only_stuck_ones(self) -> bool:
        """True if only stuck handlers are left: all other outcomes are recorded."""
        return all(attempt.is_stuck and not attempt.is_over for attempt in self.in_flight)

    async def _settle_overdue(self) -> None:
        """Record handlers that overran as timed out: the listener's process is about to end."""
        overdue = [attempt for attempt in self._running if attempt.is_overdue]
        for attempt in overdue:
            self._settle(attempt, after_overrun(attempt))
        await self.in_flight.wait_until(
            lambda: not any(attempt in self.in_flight for attempt in overdue), CANCEL_LIMIT
        )

    def kill_processes(self) -> None:
        """Kill all processes for handlers, from another thread, while the event loop is blocked."""
        if self._processes is not None:
            self._processes.kill()

    def hurry(self) -> None:
        """Let `drain` wait no longer for running attempts."""
        self._hurried = True
        self.in_flight.look_again()

    def cancel_running(self) -> None:
        """Stop the handlers that can be stopped; their tasks are released for another listener."""
        self._running.stop(self._running, STOPS)

    def cancel(self, claims: Collection[tuple[str, str]]) -> None:
        """Stop the handlers of these claims, by id and token, whose tasks were cancelled.

        The token is needed: another task may have the same id by now.
        """
        cancelled = [a for a in self._running if (a.claimed.id, a.claimed.token) in claims]
        self._running.stop(cancelled, "it was cancelled")

    def drop_lost_leases(self, consumer: Consumer) -> None:
        """Report and drop the leases of a partition that no attempt here will settle.

        Only a fault of our own loses an attempt. Its lease would be renewed for ever, and no other
        listener could run the task; now it lapses.

        Call it on the event loop. A step there changes a lease and its attempt together, and other
        threads only drop leases, so a change that is under way is never taken for a fault.
        """
        owned = set[tuple[str, str]]()
        for attempt in list(self.in_flight):
            if attempt.consumer is consumer:
                claim = (attempt.claimed.id, attempt.claimed.token)
                if attempt.settlement is not None or self._running.owns(attempt):
                    owned.add(claim)
                else:
                    _drop_lost(consumer, *claim)
                    self._disown(attempt)
        for claim in consumer.leases.held():
            if claim not in owned:
                _drop_lost(consumer, *claim)

    def _disown(self, attempt: Attempt) -> None:
        """Remove an attempt that nothing here will settle, and release its place."""
        if attempt in self._running:
            self._end(attempt)
        self.in_flight.discard(attempt)
        self.capacity.wake_next()

    def close(self) -> None:
        """End the idle threads; those that still run a handler end with the process."""
        self.pulse.stop()
        self._threads.close()

    # For the heartbeat's thread, while the event loop is blocked

    def attempt_in(self, task: asyncio.Task[object] | None) -> Attempt | None:
        """The attempt that runs in this asyncio task; None if none does."""
        return self._running.attempt_in(task)

    def withdraw(self) -> list[Attempt]:
        """Withdraw attempts that have not begun, and drop their leases; record nothing."""
        return self._pending.withdraw()


def _drop_lost(consumer: Consumer, id: str, token: str) -> None:
    consumer.leases.drop(id, token)
    logger.error(
        "nothing in this listener runs task %s any more, but its lease was renewed: it lapses "
        "now; please report this fault of expirebridge",
        id,
        extra=event("lost attempt", task=id),
    )  # fmt: skip
