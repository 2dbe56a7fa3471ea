"""The keyspace events of a partition, less those that its own claims cause."""

import time

from expirebridge.hooks import Hooks, Rung, Source
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.reconciler import KeyReconciler
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.task.calls.reconciling import EventKind

# Filter for the key events that a listener's own claims cause.
#
# The timer of a claimed task has expired, or is deleted by the claim, and the server notifies
# every subscriber. To the listener that claimed the task this is no news; each look that it did
# not make is a script less for the server, for every task.

MOST = 10_000
"""Echoes that are waited for at a time, at most; one that was given up is looked at in vain."""
LONGEST = 5.0
"""Seconds after which none comes any more: a task that was due at once had no timer to end."""


class OwnExpiryFilter:
    """Filter for the expiries and deletions that this listener's own claims cause.

    A timer that is set is heard of before it ends, for the same subscription hears both, in order.
    So an end is an echo if nothing was heard of its key since the claim.
    """

    def __init__(self) -> None:
        self._awaited: dict[bytes, float] = {}
        """Names of the keys and when they were claimed, the oldest claim's first."""

    def expect(self, key: bytes) -> None:
        """Expect the end of this key: its task was claimed here."""
        self._awaited[key] = time.monotonic()
        if len(self._awaited) > MOST:
            del self._awaited[next(iter(self._awaited))]

    def take(self, key: bytes) -> bool:
        """Return True if a claim here caused this key's end; each is expected once."""
        claimed = self._awaited.pop(key, None)
        return claimed is not None and time.monotonic() - claimed < LONGEST

    def forget(self, key: bytes) -> None:
        """Expect it no longer: another event named the key, so its next end is news."""
        self._awaited.pop(key, None)

    def forget_all(self) -> None:
        """Expect none: events may have been missed."""
        self._awaited.clear()


EXPIRED = "expired"
HEARD = {
    EXPIRED: EventKind.EXPIRED,
    "del": EventKind.DELETED,
    "expire": EventKind.LIVE,
    "persist": EventKind.LIVE,
}
"""The key events that are heard, and what each says of its key."""
BY_EVENT, BY_PRODUCER = Rung(source=Source.EVENT), Rung(source=Source.PRODUCER)


class KeyEventHandler:
    """Handles announcements and key events of a partition, less those of its own claims."""

    def __init__(
        self,
        consumer: SessionOwner,
        *,
        wakeup: Wakeup,
        due_timer: DueTimer,
        scan: BacklogScan,
        reconciler: KeyReconciler,
        membership: Membership,
        hooks: Hooks,
    ) -> None:
        self._consumer = consumer
        self._wakeup = wakeup
        self._due_timer = due_timer
        self._scan = scan
        self._reconciler = reconciler
        self._membership = membership
        self._hooks = hooks
        self._echoes = OwnExpiryFilter()

    def hear_doorbell(self, due: int) -> None:
        """A producer announced a task that is due at that ms."""
        self._hooks.emit(BY_PRODUCER)
        self._scan.hear_of(due)
        self._due_timer.hear_of(due)

    def hear_event(self, event: str, name: bytes, *, fresh: bool) -> None:
        """A key event named a key. One of a subscription that is not fresh says nothing to be
        relied on: it will be made again, and a scan follows.
        """
        if HEARD[event] is EventKind.LIVE:
            self._echoes.forget(name)
        elif self._echoes.take(name):
            return
        elif event == EXPIRED:
            self._hooks.emit(BY_EVENT)
        if fresh and not self._reconciler.hear(name, HEARD[event]):
            self._consumer.session.resyncs.request(
                "more keys were heard of than could be looked at"
            )

    def hear_after_gap(self, *, events: bool) -> None:
        """Handle a new subscription; `events`: key events may have been missed."""
        self._scan.start_over()
        self._wakeup.set()
        if events:
            self._echoes.forget_all()

    def expect_end_of(self, key: bytes) -> None:
        """Expect the end of this key's timer: its task was claimed here."""
        # The event may have come before the claim's reply, or be on its way.
        if self._membership.hears and not self._reconciler.explain(key):
            self._echoes.expect(key)
