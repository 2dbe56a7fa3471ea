"""The steps of an attempt, in the order of time: from its claim to its outcome.

Each may end the attempt with an outcome; if it returns None, the next step is taken.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.handlers import Handler, Registry, Then, check_binding
from expirebridge.hooks import End, Hooks, Making, Misfired, Started
from expirebridge.listener.execution.attempt import Attempt, Consumer, RowLookup, StartGate
from expirebridge.listener.execution.exceptions import (
    DecodingFailed,
    HandlerDiffers,
    HandlerMissing,
    ProcessFailure,
    StartRefused,
    TimedOut,
)
from expirebridge.listener.execution.invoke import Invoker
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.settings import Settings
from expirebridge.store.record_values import split_call
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.codec import load_codec
from expirebridge.task.durations import human
from expirebridge.task.keys import decode_args
from expirebridge.task.lateness import LATE, LateCause
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
from expirebridge.task.spending import Spending

logger = logging.getLogger("expirebridge")

BROKEN_OFF = 1.0
"""Retry delay in seconds after an error of the listener's own."""


class AttemptSteps:
    """Takes the steps of attempts, in a listener or in the testing kit.

    `invoker` calls handlers. Its threads call codecs, too.
    """

    def __init__(
        self, registry: Registry, settings: Settings, *, invoker: Invoker, hooks: Hooks
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._key_ring = settings.key_ring
        self._codec = None if settings.codec is None else load_codec(settings.codec)
        """Decodes large arguments, in a thread."""
        self._invoker = invoker
        self._hooks = hooks

    def attempt_of(
        self,
        claimed: ClaimedTask,
        *,
        consumer: Consumer | None = None,
        gate: StartGate | None = None,
        row_check: RowLookup | None = None,
    ) -> Attempt:
        """The attempt of a task that was claimed, with the handler that its task names."""
        handler = self._registry.find(claimed.func)
        hint = "" if handler else self._registry.suggest(claimed.func)
        return Attempt(
            claimed, handler, hint=hint, timeout=self._settings.timeout, consumer=consumer,
            gate=gate, row_check=row_check, key_ring=self._key_ring,
        )  # fmt: skip

    async def take(self, attempt: Attempt) -> AttemptOutcome:
        """Take all steps of an attempt whose lateness is known.

        Raises StartRefused, and no error of a handler or a codec.
        """
        row_check = attempt.row_check
        if row_check is not None:
            outcome = await self._look_up(attempt, row_check)
            if outcome is not None:
                return outcome
        outcome = self.misfire(attempt) or self.refuse(attempt)
        if outcome is None and attempt.encoded is not None:
            outcome = await self._decode(attempt, attempt.encoded)
        if outcome is None:
            outcome = await self.call(attempt)
        if row_check is not None and outcome.is_failure:
            outcome = await self._look_after(attempt, row_check, outcome)
        return outcome

    async def _look_up(self, attempt: Attempt, row_check: RowLookup) -> AttemptOutcome | None:
        """The outcome if its row says that it is not to run now."""
        try:
            outcome = await row_check.look_up(attempt)
        except StartRefused:
            attempt.begin()  # it ends here, and so it may not be withdrawn any more
            raise
        finally:
            attempt.awaits_row = False
        if attempt.stopped:
            raise asyncio.CancelledError  # the row check swallowed the cancellation
        if outcome is not None:
            attempt.begin()
        else:
            attempt.task = replace(attempt.task, completer=row_check.completer_for(attempt))
        return outcome

    def misfire(self, attempt: Attempt) -> AttemptOutcome | None:
        """The outcome if it is too late to run now."""
        outcome = _misfire_of(attempt)
        if outcome is not None:
            attempt.begin()
            done = "skipped" if outcome.end is End.FAILED else "spread"
            late, cause = attempt.lateness, _cause_of(attempt)
            self._hooks.emit(Misfired(task=attempt.task, lateness=late, done=done, cause=cause))
        return outcome

    def refuse(self, attempt: Attempt) -> AttemptOutcome | None:
        """The outcome if no handler can be called."""
        if attempt.handler is not None:
            cause = _cause_of(attempt)
            self._hooks.emit(Started(task=attempt.task, lateness=attempt.lateness, cause=cause))
        outcome = _refusal_of(attempt)
        if outcome is not None:
            attempt.begin()
        return outcome

    async def _decode(self, attempt: Attempt, encoded: bytes) -> AttemptOutcome | None:
        """Have the codec decode its arguments; the outcome if it cannot.

        It has the attempt's timeout, before that of the handler.
        """
        if self._codec is None:
            outcome: AttemptOutcome | None = attempt.outcomes.not_decoded()
        else:
            outcome = await self._decoded(attempt, partial(self._codec.decode, encoded))
        if outcome is not None:
            attempt.begin()
        return outcome

    async def _decoded(
        self, attempt: Attempt, decode: Callable[[str], bytes]
    ) -> AttemptOutcome | None:
        call = self._invoker.threads.call(partial(_result_of, partial(decode, attempt.claimed.id)))
        try:
            decoded, error = await asyncio.wait_for(call, attempt.limit)
        except TimeoutError:
            reason = f"its codec did not decode its arguments in {attempt.limit:g} s"
            return after_error(attempt, DecodingFailed(reason))
        if attempt.stopped:
            raise asyncio.CancelledError  # Python 3.11 forgets it if both come at once
        if error is None:
            return _take_arguments(attempt, decoded)
        if isinstance(error, Retry | Snooze | Busy | Discard):
            return after_error(attempt, error)
        failed = DecodingFailed("its codec did not decode its arguments")
        failed.__cause__ = error
        return after_error(attempt, failed)

    async def call(self, attempt: Attempt) -> AttemptOutcome:
        """Call the handler, and turn its result or error into an outcome.

        Raises StartRefused, and no error of a handler.
        """
        spending = _spending_of(attempt)
        if spending is None:
            return await self._called(attempt)
        attempt.task = replace(attempt.task, spending=spending)
        outcome = await self._called(attempt)
        return outcome.telling(*spending.words())

    async def _called(self, attempt: Attempt) -> AttemptOutcome:
        try:
            result = await self._invoker.call(attempt)
            if isinstance(result, Then | NewTask):
                return attempt.outcomes.succeeded_then(await self._follow_up(attempt, result))
            return attempt.outcomes.succeeded(result)
        except StartRefused:
            raise
        except BaseException as error:
            return after_error(attempt, error)

    async def _follow_up(self, attempt: Attempt, given: Then | NewTask) -> NewTask:
        """The task that a handler returned, as it is made; a process has checked it already.

        Raises InvalidTask, what a codec raises, and ServerError: they fail the attempt.
        """
        from expirebridge.listener.execution import follow_up  # noqa: PLC0415 - if one is returned

        if attempt.claimed.ledger is not None:
            raise InvalidTask(
                "the Then that its handler returned: its task is of a ledger; make the follow-up "
                "with ledger.make_task in the handler's transaction, before complete_in"
            )
        if isinstance(given, Then):
            given = follow_up.checked(given, self._settings)
        new = await self._write(given, attempt)
        making = Making(id=new.id, func=split_call(new.call)[0])
        self._hooks.emit(making)
        trace = making.trace or attempt.task.trace
        if trace is not None:
            new.fields["trace"] = trace
        return new

    async def _write(self, new: NewTask, attempt: Attempt) -> NewTask:
        from expirebridge.listener.execution.follow_up import written  # noqa: PLC0415 - as above

        store = attempt.consumer.session.store
        return await store.run(written(new, attempt.claimed, self._settings, store.database.layout))

    async def _look_after(
        self, attempt: Attempt, row_check: RowLookup, failed: AttemptOutcome
    ) -> AttemptOutcome:
        """The outcome to record of an attempt that failed, by its row."""
        try:
            return await row_check.look_after(attempt, failed)
        except asyncio.CancelledError:  # its listener stops, and its handler has run
            return failed


# What each step finds out.


def _misfire_of(attempt: Attempt) -> AttemptOutcome | None:
    """The outcome if it is too late to call its handler.

    One that is skipped when it is late is so, too, if it waited for a slot.
    """
    lateness, claimed, handler = attempt.lateness, attempt.claimed, attempt.handler
    policy = handler.misfire if handler is not None else None
    if handler is not None and (objective := handler.late) is not None:
        attempt.outcomes.objective = Objective(objective, is_kept=lateness <= objective)
    if claimed.misfire is not None:
        try:
            policy = decode_misfire(claimed.misfire)
        except ValueError as error:
            reason = f"its misfire policy cannot be read: {error}"
            return attempt.outcomes.failed(reason, open=True)
    whole = lateness + claimed.waited
    if policy is None or policy.late_after is None:
        if whole > LATE:
            attempt.note_late(whole)
        return None
    if policy.window is None:
        lateness = whole
    if lateness <= policy.late_after:
        return None
    attempt.note_late(whole)
    found = f"found {human(lateness)} late, more than {human(policy.late_after)}"
    delay = policy.delay()
    if delay is None:
        return attempt.outcomes.failed(f"skipped: {found}", open=True)
    return attempt.outcomes.spread(delay, f"spread: {found}")


def _cause_of(attempt: Attempt) -> LateCause | None:
    """Why it is late, if it is."""
    late = attempt.outcomes.late
    return None if late is None else late.cause


def _refusal_of(attempt: Attempt) -> AttemptOutcome | None:
    """The outcome if there is no handler, or its record cannot be read."""
    outcomes = attempt.outcomes
    if attempt.handler is None:
        return outcomes.unknown(f"in the listener that claimed it{attempt.hint}")
    if attempt.not_opened:
        return outcomes.not_opened(attempt.not_opened)
    if attempt.unreadable:
        return outcomes.failed(f"{attempt.unreadable} cannot be read", open=True)
    try:
        attempt.retry_policy = _retry_policy_of(attempt.claimed, attempt.handler)
    except ValueError as error:
        return outcomes.failed(f"its retry policy cannot be read: {error}", open=True)
    return None


def _retry_policy_of(claimed: ClaimedTask, handler: Handler) -> RetryPolicy:
    if claimed.retry is not None:
        return decode_policy(claimed.retry)
    return handler.retry or DEFAULT_POLICY


def _result_of(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result of a function, or its error: threads carry them as values."""
    try:
        return function(), None
    except BaseException as error:
        return None, error


def _take_arguments(attempt: Attempt, decoded: bytes) -> AttemptOutcome | None:
    """Read the arguments that a codec has decoded; the outcome if these are none."""
    try:
        args, kwargs = decode_args(decoded)
    except (TypeError, ValueError) as error:
        return attempt.outcomes.failed(f"its codec decoded no arguments: {error}")
    attempt.task = replace(attempt.task, args=args, kwargs=kwargs)
    attempt.encoded = None
    return None


# How an attempt ends without a result.


def after_error(attempt: Attempt, error: BaseException) -> AttemptOutcome:
    """The outcome of an error that a step raised. Raises nothing, whatever the error is."""
    try:
        if isinstance(error, DecodingFailed):
            return attempt.outcomes.not_decodable(attempt.retry_policy, error)
        return _after(attempt, error)
    except BaseException as another:  # to format its error may raise, too
        # Without the traceback, which may be what cannot be formatted.
        logger.error("%s %s raised an unprintable error", attempt.task.func, attempt.task.id)  # noqa: TRY400
        return attempt.outcomes.failed(
            f"its error cannot be printed: to format it raised {type(another).__name__}"
        )


def _after(attempt: Attempt, error: BaseException) -> AttemptOutcome:
    """One branch for each way to fail."""
    outcomes, policy = attempt.outcomes, attempt.retry_policy
    match error:
        case asyncio.CancelledError() if attempt.stopped:
            return outcomes.given_back(attempt.stopped)
        case asyncio.CancelledError():
            reason = "the handler was cancelled from within"
            return outcomes.retry_or_fail(policy, reason, open=True)
        case Retry():
            return outcomes.obeys(error)
        case Snooze():
            snoozes, now = attempt.task.snoozes, attempt.now()
            return outcomes.snoozed(error, policy, snoozes=snoozes, now=now)
        case Busy():
            return outcomes.busy(error, policy, _rates_of(attempt, error))
        case Discard():
            return outcomes.failed(str(error))
        case HandlerMissing():
            return outcomes.unknown(str(error))
        case HandlerDiffers():
            return _wrong_arguments(attempt) or outcomes.misfit(str(error))
        case ProcessFailure():
            return outcomes.retry_or_fail(policy, str(error), open=True)
        case TimedOut():
            reason = f"timed out after {attempt.limit:g} s"
            return outcomes.retry_or_fail(policy, reason, open=True)
        case TypeError():
            return _wrong_arguments(attempt) or outcomes.raised(policy, error)
        case _:  # a handler's sys.exit() ends its task, not the listener
            return outcomes.raised(policy, error)


def _rates_of(attempt: Attempt, busy: Busy) -> list[str]:
    """The names of the handler's rates that are meant."""
    limits = attempt.handler.limits if attempt.handler is not None else ()
    return [one.name for one in limits if one.is_rate(busy.per, busy.name)]


def _spending_of(attempt: Attempt) -> Spending | None:
    """What notes what the handler spends, if it has a budget."""
    limits = attempt.handler.limits if attempt.handler is not None else ()
    budgets: dict[str, list[str]] = {}
    for one in limits:
        if one.of is not None:
            budgets.setdefault(one.of, []).append(one.name)
    return Spending(budgets) if budgets else None


def _wrong_arguments(attempt: Attempt) -> AttemptOutcome | None:
    """The outcome if the arguments do not fit the handler of this listener."""
    if attempt.handler is None:
        return None
    try:
        check_binding(attempt.handler.function, attempt.task.args, attempt.task.kwargs)
    except InvalidTask as error:
        return attempt.outcomes.unfit(f"its arguments do not fit: {error}")
    return None


def after_overrun(attempt: Attempt) -> AttemptOutcome:
    """The outcome if its handler overran its timeout and still runs when its listener ends."""
    attempt.took = attempt.limit - attempt.left()
    reason = f"timed out after {attempt.limit:g} s and could not be stopped"
    return attempt.outcomes.retry_or_fail(attempt.retry_policy, reason, open=True)


def broken_off(attempt: Attempt, error: BaseException) -> AttemptOutcome:
    """The outcome of an error, or a cancellation, outside of its handler's call.

    The attempt is not counted. An unexpected error may repeat, so the next one is delayed.
    """
    reason = attempt.stopped or f"its listener raised {type(error).__name__}"
    delay = BROKEN_OFF if isinstance(error, Exception) else 0.0
    if attempt.began is None:
        return attempt.outcomes.not_begun(delay, reason)
    return attempt.outcomes.spread(delay, reason)
