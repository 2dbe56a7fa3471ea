"""Leases: the claims that a partition's consumer holds, each until its outcome is recorded."""

import dataclasses
import logging
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.listener.execution.condition import Condition
from expirebridge.listener.session import SessionOwner
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.call import Command

# What a listener runs, as its heartbeats report it.

STRANDED = "?"


class HandlersDeclaration(NamedTuple):
    """What is declared of the limits of a listener's handlers."""

    fingerprint: str = ""
    """Identifies it; empty if no handler has a limit."""
    call: Command[None] | None = None
    """Declares it in a database; None: there is nothing to declare."""


class CodeVersion:
    """The fingerprint of a listener's handlers, its concurrency, and what it says of itself.

    The event loop changes it; the heartbeat's thread reads it.
    """

    def __init__(
        self, fingerprint: Fingerprint, limits: HandlersDeclaration, condition: Condition, *,
        concurrency: int, keys: Sequence[str], more: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.fingerprint = fingerprint
        self.limits = limits
        """What it declares of the limits of its handlers."""
        self._condition = condition
        words = [f"{fleet.CONCURRENCY}{concurrency}", *(fleet.KEY + key for key in keys)]
        self._constant = " ".join([*words, *more])
        self.stranded = False
        """True if it skips many tasks whose functions no listener has."""
        self.withholds = False
        """True if it skips tasks of a ledger that it does not have, or that lags."""

    @property
    def text(self) -> str:
        """The argument for claims: the fingerprint, with a mark if tasks are stranded."""
        digest = self.fingerprint.digest
        return f"{digest} {STRANDED}" if self.stranded or self.withholds else digest

    @property
    def beat(self) -> str:
        """The argument for heartbeats: the same, concurrency, keys, the words of capabilities, and
        its condition."""
        return " ".join([self.text, self._constant, *self._condition.words])

    def knows(self, func: str) -> bool:
        """True if this listener has a handler of this name."""
        return func in self.fingerprint.shapes


logger = logging.getLogger("expirebridge")

ROUNDED = 0.001
"""Seconds by which a lease may end early: its start is rounded down to a millisecond."""


class HeldLease(NamedTuple):
    """A claim that this listener holds, and when its lease was last requested."""

    token: str
    asked: float
    """Time at which the last answered claim or heartbeat was sent (monotonic); the server counts
    the lease from a moment later."""


class Leases:
    """The leases of a partition's tasks, all renewed at each heartbeat.

    The event loop adds and drops them, the heartbeat's thread renews them, and handlers' threads
    read them.
    """

    def __init__(
        self, consumer: SessionOwner, listener: str, *, lease: float, code: CodeVersion,
        marks: Sequence[Command[None]] = (),
    ) -> None:  # fmt: skip
        self._consumer = consumer
        self.tokens = claiming.ClaimTokens(listener)
        """Those of its next claims."""
        self._listener = listener
        self._code = code
        self._marks = marks
        self._limits_declared = False
        self._lease = lease
        self._held: dict[str, HeldLease] = {}
        self._lock = threading.Lock()
        self._answered = False
        """True if the latest heartbeat was answered."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the code that this listener runs."""
        return self._code.fingerprint.digest

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> list[tuple[str, str]]:
        """The claims whose leases are renewed, by id and token."""
        with self._lock:
            return [(id, hold.token) for id, hold in self._held.items()]

    def hold(self, id: str, token: str, *, asked: float) -> None:
        """Renew this claim from now on; `asked` is when it was sent (monotonic)."""
        with self._lock:
            self._held[id] = HeldLease(token, asked)

    def drop(self, id: str, token: str) -> None:
        """Renew it no longer: it is settled, or lost."""
        with self._lock:
            hold = self._held.get(id)
            if hold is not None and hold.token == token:
                del self._held[id]

    def is_fresh(self, id: str, token: str) -> bool:
        """True if this claim cannot have lapsed yet, whatever its server did meanwhile.

        It may have lapsed if, for a lease, this process stood still, its event loop was blocked, or
        no heartbeat was answered.
        """
        return time.monotonic() < self.fresh_until(id, token)

    def fresh_until(self, id: str, token: str) -> float:
        """Earliest time at which this claim can lapse (monotonic); 0.0 if it is lost."""
        hold = self._held.get(id)
        if hold is None or hold.token != token:
            return 0.0
        return hold.asked + self._lease - ROUNDED

    def send_heartbeat(self) -> claiming.HeartbeatReply:
        """Send one heartbeat. Raises a ServerError.

        The first answer, and the one after an answer that was lost, report a gap, since the lost
        one may have reported it.
        """
        session = self._consumer.session
        with self._lock:
            held = {id: hold.token for id, hold in self._held.items()}
        sent = time.monotonic()
        answered, self._answered = self._answered, False
        call = claiming.heartbeat(
            self._listener, self._lease, held.items(),
            code=self._code.beat, functions=len(self._code.fingerprint.shapes),
            limits=self._code.limits.fingerprint if self._limits_declared else "",
        )  # fmt: skip
        reply = session.heart_store.run(call)
        if session is not self._consumer.session:
            return self.send_heartbeat()  # what a superseded primary renewed is lost
        if reply.undeclared:
            self.declare()
        if reply.undeclared or not self._limits_declared:
            for mark in self._marks:
                session.heart_store.run(mark)
        if reply.limits_lost or not self._limits_declared:
            self.declare_limits()
        self._answered = True
        if not answered:
            reply = dataclasses.replace(reply, gap=True)
        session.server_clock.learn(reply.now_us, sent=sent, received=time.monotonic())
        for id in reply.lost:
            self.drop(id, held[id])
        self._renew(held, sent)
        return reply

    def declare(self) -> None:
        """Register the handlers of this listener. Raises a ServerError."""
        fingerprint = self._code.fingerprint
        store = self._consumer.session.heart_store
        store.run(fleet.declare(fingerprint.digest, fingerprint.shapes))

    def declare_limits(self) -> None:
        """Declare the limits of its handlers: it does so when it starts. Raises a ServerError."""
        if self.limits_declaration is not None:
            self._consumer.session.heart_store.run(self.limits_declaration)
        self._limits_declared = True

    @property
    def limits_declaration(self) -> Command[None] | None:
        """The call that declares the limits of its handlers."""
        return self._code.limits.call

    def leave(self) -> bool:
        """Tell the server that this listener stops; False if it does not answer."""
        try:
            self._consumer.session.heart_store.run(claiming.leave(self._listener))
        except ServerError as error:
            logger.debug("no goodbye: %s", error)
            return not isinstance(error, ServerUnreachable)
        return True

    def _renew(self, held: dict[str, str], sent: float) -> None:
        """Give a new lease to the claims of a heartbeat that was sent then and answered."""
        with self._lock:
            for id, token in held.items():
                hold = self._held.get(id)
                if hold is not None and hold.token == token:
                    self._held[id] = HeldLease(token, sent)
