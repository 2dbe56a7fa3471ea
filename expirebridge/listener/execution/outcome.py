"""The outcome of an attempt: its end, and the settlement that records it."""

import functools
import inspect
import os
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any, NamedTuple

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.hooks import End, Ended
from expirebridge.listener.execution.exceptions import DecodingFailed, RemoteTraceback, TimedOut
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.durations import seconds_of
from expirebridge.task.key_ring import Content, KeyRing
from expirebridge.task.lateness import Lateness
from expirebridge.task.missing_ability import NOT_DECODED
from expirebridge.task.objective import Objective
from expirebridge.task.policies import UNKNOWN_DELAY, Busy, Retry, RetryPolicy, Snooze
from expirebridge.task.task import Task

# The result of a call, before its attempt has an outcome.


class CallResult(NamedTuple):
    """The result or error of a call, as a value: futures do not carry every exception."""

    value: Any
    """The handler's result; None if it raised."""
    error: BaseException | None
    took: float
    """Seconds that the handler took."""

    def result(self, limit: float) -> Any:
        """The handler's result. Raises its error, and TimedOut if it took longer than `limit`."""
        if self.took > limit:
            raise TimedOut
        if self.error is not None:
            raise self.error
        return self.value


# Results and errors, as they are recorded for people to read.

MAX_RESULT = 4096
_OURS = (
    str(Path(__file__).parent) + os.sep,
    str(Path(__file__).parent / "process_pool") + os.sep,
    str(Path(__file__).parents[2] / "contrib") + os.sep,
    "<frozen _collections_abc>",
)
"""Files whose frames are left out of tracebacks: those between the event loop and a handler."""


def shown_error(error: BaseException) -> str:
    """The error with its traceback, from the handler on."""
    if isinstance(error.__cause__, RemoteTraceback):
        return str(error.__cause__)
    shown = traceback.TracebackException.from_exception(error)
    inner = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
    shown.stack = traceback.StackSummary.from_list(inner)
    text = "".join(shown.format()).rstrip()
    # Lists show the last line; an exception group ends with a rule below its last error.
    return text.rstrip("+- \n") if isinstance(error, BaseExceptionGroup) else text


def shown_result(value: Any) -> bytes:
    """A handler's result as JSON, or a note if it cannot be recorded; that fails no attempt.

    Raises RuntimeError if it is work that nobody has done.
    """
    if value is None:
        return b""
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError):
        refuse_undone(value)
        return orjson.dumps(f"(a {type(value).__name__}, which JSON cannot hold)")
    if len(encoded) > MAX_RESULT:
        return orjson.dumps(f"({len(encoded):,} bytes of JSON, more than the {MAX_RESULT:,} kept)")
    return encoded


_LAZY = (GeneratorType, AsyncGeneratorType, map, filter, zip, enumerate)
_UNCALLED = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


def refuse_undone(value: Any) -> None:
    """Raise RuntimeError if a result, or an item of one, is work that nobody has done.

    A listener cannot do it: it would not know when it begins and ends.
    """
    items: Iterable[Any] = ()
    if isinstance(value, list | tuple | set | frozenset):
        items = value
    elif isinstance(value, dict):
        items = value.values()
    faults = [fault for one in (value, *items) if (fault := _undone(one))]
    if faults:
        raise RuntimeError(f"it returned {faults[0]}")


def _undone(value: Any) -> str:
    """What of this is still to be done, and how; empty if nothing is."""
    kind, name = type(value).__name__, getattr(value, "__name__", "")
    shown = f"a {kind} ({name})" if name else f"a {kind}"
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # Python would warn that nobody awaited it
        return f"{shown} that nobody awaited: await it"
    if isinstance(value, _LAZY) or type(value).__module__ == "itertools":
        return f"{shown}, which does nothing until somebody loops over it: loop over it"
    if isinstance(value, _UNCALLED):
        return f"{shown} that nobody called: call it"
    return ""


MAX_ERROR = 8192


class AttemptOutcome(NamedTuple):
    """The end of an attempt, and the settlement to record."""

    end: End
    settlement: Settlement
    reason: str = ""
    brief: str = ""
    """The reason, without an error's message."""
    error: BaseException | None = None
    """The handler's error, if that is the reason."""

    def telling(self, *words: str) -> "AttemptOutcome":
        """The same, which tells more of its limits: see `Settlement.told`."""
        told = ",".join(filter(None, (self.settlement.told, *words)))
        return self._replace(settlement=self.settlement._replace(told=told))

    @property
    def is_failure(self) -> bool:
        """True if the attempt failed, for good or to be retried."""
        return self.end in {End.FAILED, End.RETRY}

    def ended(self, task: Task, duration: float, settled: Settled = Settled.DONE) -> Ended:
        """The event for hooks, once it is settled; the handler took `duration` seconds."""
        end, reason, brief = self.end, self.reason, self.brief
        if settled is Settled.LEFT:
            end = End.RELEASED
        elif settled is Settled.OVER:
            end = End.FAILED
        elif settled is Settled.REFUSED:
            end = End.REFUSED
            reason = brief = "its lease had lapsed, or its record is gone"
        return Ended(
            task=task, end=end, duration=duration, reason=reason, brief=brief, error=self.error
        )


class OutcomeBuilder:
    """Builds the outcome of one attempt of a claimed task, sealed if there are keys."""

    __slots__ = ("_claimed", "key_ring", "late", "objective")

    def __init__(self, claimed: ClaimedTask, key_ring: KeyRing | None = None) -> None:
        self._claimed = claimed
        self.key_ring = key_ring
        """Seals results, and the reasons in which there may be arguments."""
        self.late: Lateness | None = None
        """How late the attempt began, and why, if by more than its `late_after`, or a second; it is
        recorded with the outcome."""
        self.objective: Objective | None = None
        """How it kept to the objective of its function, if that has one; the same."""

    def succeeded(self, result: Any) -> AttemptOutcome:
        """The handler returned this result."""
        return self._outcome(End.SUCCEEDED, "succeeded", text=shown_result(result))

    def succeeded_then(self, then: NewTask) -> AttemptOutcome:
        """The handler returned a follow-up, which is made when this is recorded."""
        outcome = self._outcome(End.SUCCEEDED, "succeeded")
        return outcome._replace(settlement=outcome.settlement._replace(then=then))

    def failed(self, reason: str, *, open: bool = False) -> AttemptOutcome:
        """The attempt failed for good."""
        return self._outcome(End.FAILED, "failed", text=reason, reason=reason, open=open)

    def retry_or_fail(
        self, policy: RetryPolicy, reason: str, *, open: bool = False
    ) -> AttemptOutcome:
        """The attempt failed; the policy decides whether it is retried."""
        delay = policy.delay(self._claimed.attempt)
        if delay is None:
            return self.failed(reason, open=open)
        return self._retry(delay, reason, open=open)

    def obeys(self, retry: Retry) -> AttemptOutcome:
        """The handler raised Retry."""
        try:
            delay = seconds_of(retry.after, name="after")
        except InvalidTask as error:  # a subclass need not have called Retry's own __init__
            return self.failed(f"its Retry says no delay: {error}")
        return self._retry(delay, str(retry))

    def snoozed(
        self, snooze: Snooze, policy: RetryPolicy, *, snoozes: int, now: float
    ) -> AttemptOutcome:
        """The handler raised Snooze; the task was snoozed `snoozes` times before.

        Beyond the limit, the attempt counts as failed. `now` is in seconds since 1970.
        """
        refusal = snooze.refusal(snoozes, now)
        if refusal is not None:
            return self.retry_or_fail(policy, refusal)
        try:
            delay = seconds_of(snooze.delay(now), name="after")
        except InvalidTask as error:  # as in `obeys`
            return self.failed(f"its Snooze says no delay: {error}")
        reason = str(snooze)
        outcome = self._outcome(End.SNOOZED, "snoozed", delay, reason, reason)
        return outcome if snooze.charge else outcome.telling("!")

    def busy(self, busy: Busy, policy: RetryPolicy, rates: Sequence[str]) -> AttemptOutcome:
        """The handler raised Busy; `rates` are the names of the rates that it means.

        If the handler has no such rate, the attempt counts as failed.
        """
        if not rates:
            which = "without per" if busy.per is None else f"with per={busy.per!r}"
            if busy.name is not None:
                which = f"named {busy.name!r}"
            return self.retry_or_fail(
                policy,
                f"it raised Busy, but its handler has no rate {which}: add one, "
                "@handler(rate=Rate(...)), or raise Snooze, after which this task alone waits",
            )
        try:
            delay = seconds_of(busy.after, name="after")
        except InvalidTask as error:  # as in `obeys`
            return self.failed(f"its Busy says no delay: {error}")
        reason = str(busy)
        return self._outcome(End.SNOOZED, "busy", delay, reason, reason).telling(*rates)

    def raised(self, policy: RetryPolicy, error: BaseException) -> AttemptOutcome:
        """The handler raised this error."""
        if isinstance(error, MemoryError):
            # The error goes to hooks, too; its frames hold the memory that recording it needs.
            traceback.clear_frames(error.__traceback__)
        outcome = self.retry_or_fail(policy, shown_error(error))
        return outcome._replace(brief=type(error).__name__, error=error)

    def not_decodable(self, policy: RetryPolicy, failed: DecodingFailed) -> AttemptOutcome:
        """The codec raised an error, the cause of this one, or took too long."""
        error = failed.__cause__
        if error is None:
            return self.retry_or_fail(policy, str(failed), open=True)
        reason = f"{shown_error(error)}\n{failed}: {type(error).__name__}: {error}"
        outcome = self.retry_or_fail(policy, reason)
        return outcome._replace(brief=f"{failed}: {type(error).__name__}", error=error)

    def given_back(self, reason: str) -> AttemptOutcome:
        """The attempt is not counted; the task is due now, for any listener."""
        return self._outcome(End.RELEASED, "released", text=reason, reason=reason, open=True)

    def spread(self, delay: float, reason: str) -> AttemptOutcome:
        """The attempt is not counted; the task is due after this delay, in seconds."""
        return self._outcome(End.RELEASED, "released", delay, reason, reason, open=True)

    def not_begun(self, delay: float, reason: str) -> AttemptOutcome:
        """The handler was not called; the task is due after this delay, in seconds."""
        return self._outcome(End.RELEASED, "unbegun", delay, reason, reason, open=True)

    def dropped(self, delay: float, reason: str, *, began: bool) -> AttemptOutcome:
        """The task's row was changed: it is due after this delay, or when the row says."""
        word = "released" if began else "unbegun"
        outcome = self._outcome(End.DROPPED, word, delay, open=True)
        return outcome._replace(reason=reason, brief=reason)

    def unknown(self, where: str) -> AttemptOutcome:
        """There is no such function at `where`; another listener may have it."""
        return self._wait_for_another(f"no handler {self._claimed.func!r} {where}", open=True)

    def misfit(self, reason: str) -> AttemptOutcome:
        """The arguments fit the listener's handler, but not that of its process."""
        return self._wait_for_another(f"its arguments do not fit: {reason}")

    def not_decoded(self) -> AttemptOutcome:
        """A codec made its arguments, and the listener has none; another listener may."""
        return self._wait_for_another(
            f"{NOT_DECODED}and its listener has no codec (EXPIREBRIDGE_CODEC)", open=True
        )

    def not_opened(self, reason: str) -> AttemptOutcome:
        """A part of it is sealed, and not opened; another listener may have the key."""
        return self._wait_for_another(f"{reason} (EXPIREBRIDGE_KEYS)", open=True)

    def _wait_for_another(self, reason: str, *, open: bool = False) -> AttemptOutcome:
        reason = f"{reason}; tried again every {UNKNOWN_DELAY:g} s, for a day"
        return self._outcome(End.RELEASED, "unknown", UNKNOWN_DELAY, reason, reason, open=open)

    def unfit(self, reason: str) -> AttemptOutcome:
        """The arguments do not fit: it fails, unless another listener has another version."""
        return self._outcome(End.FAILED, "unfit", text=reason, reason=reason)

    def _retry(self, delay: float, reason: str, *, open: bool = False) -> AttemptOutcome:
        return self._outcome(End.RETRY, "retry", delay, reason, reason, open=open)

    def _outcome(
        self,
        end: End,
        word: str,
        delay: float = 0.0,
        text: str | bytes = "",
        reason: str = "",
        *,
        open: bool = False,
    ) -> AttemptOutcome:
        """The outcome with a text to record: a result, or a reason.

        An `open` reason is the listener's own, without anything from arguments or handlers: it is
        neither sealed nor kept out of the log.
        """
        brief = reason
        if isinstance(text, str):
            # Errors may hold what UTF-8 cannot, such as names of files; their end matters most.
            text = text.encode(errors="backslashreplace")[-MAX_ERROR:]
            if self.key_ring is not None and not open:
                text, brief = self.key_ring.seal_error(text, self._claimed.id), "(sealed)"
        elif self.key_ring is not None:
            text = self.key_ring.seal(text, self._claimed.id, Content.RESULT)
        claimed = self._claimed
        settlement = Settlement(
            claimed.id, claimed.token, word, delay, text,
            late=self.late, objective=self.objective,
        )  # fmt: skip
        return AttemptOutcome(end, settlement, reason, brief=brief)
