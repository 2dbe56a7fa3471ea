"""The operation that signals a task."""

from typing import Any

from expirebridge import signals
from expirebridge.task import keys
from expirebridge.task.calls.call import Command
from expirebridge.task.methods import AsyncMethods, Methods, awaits, waits
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.task import Change


class SignalOperations(OperationGroup):
    """Signal tasks."""

    def signal(self, id: str, payload: Any = None, *, by: str = "") -> Command[Change]:
        """Say that what a task waits for has come: it runs its `on_signal`, now.

        The task was made with `on_signal`, and of both functions exactly one runs. The first claim
        of the task decides against the signal: one that is due, but waits for a slot or on hold,
        can still be signalled. A paused one stays paused, and will run `on_signal`. If it was
        replaced while it runs, the signal is for its successor.

        `payload` is what JSON can hold, at most 64 KiB; the handler finds it as
        `current_task().signal.payload`. With keys it is sealed. `by` says who sends it, in at most
        200 characters. The same signal again, by the same sender and with the same payload, has
        the first answer as long as the task is kept, also after its end: so a webhook that is
        delivered twice is no error. While a successor waits, only a signal with `by` is the same.

        Returns signalled; signalled before (another signal has decided); running; finished; begun
        (an attempt was made, and the task waits for the next one: its deadline has decided); not
        awaited (it has no `on_signal`); of a ledger (call `ledger.signal`); or not found. Raises
        InvalidTask for an illegal id, payload or `by`.
        """
        return signals.calls.signal(keys.check_id(id), payload, by, self._key_ring)


class SignalMethods(Methods):
    """Signal tasks, and wait for the server."""

    signal = waits(SignalOperations.signal)


class AsyncSignalMethods(AsyncMethods):
    """The same, awaited."""

    signal = awaits(SignalOperations.signal)
