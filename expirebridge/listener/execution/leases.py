"""Leases: the claims that a station holds, each until its outcome is recorded."""

import dataclasses
import logging
import threading
import time
from typing import NamedTuple

from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.listener.session import SessionOwner
from expirebridge.store.commands import claiming, fleet

# The code of a listener, as a station tells it to the fleet.

STRANDED = "?"


class CodeVersion:
    """What this listener knows, and whether it passes over much that nobody knows.

    The event loop changes it; the heartbeat's thread reads it.
    """

    def __init__(self, fingerprint: Fingerprint) -> None:
        self.fingerprint = fingerprint
        self.stranded = False
        """Whether it passes over many tasks that no listener knows."""
        self.withholds = False
        """Whether it passes over tasks of a ledger, which it has not, or which is behind."""

    @property
    def text(self) -> str:
        """As scripts take it: the fingerprint, and a word that says so if tasks are stranded."""
        digest = self.fingerprint.digest
        return f"{digest} {STRANDED}" if self.stranded or self.withholds else digest

    def knows(self, func: str) -> bool:
        """Whether a handler here has this name."""
        return func in self.fingerprint.shapes


logger = logging.getLogger("expirebridge")

ROUNDED = 0.001
"""Seconds by which a lease may end early: the server drops what is less than a millisecond from the
time at which it begins."""


class Hold(NamedTuple):
    """A claim that this listener holds."""

    token: str
    asked: float
    """When its lease was last asked for, by a claim or a heartbeat that was answered; the server
    counts it from a moment later."""


class Leases:
    """Renews every claim that this station still holds, at each beat.

    The event loop holds and drops; the heartbeat's thread beats; handlers' threads look.
    """

    def __init__(
        self, consumer: SessionOwner, listener: str, *, lease: float, code: CodeVersion
    ) -> None:
        self._consumer = consumer
        self._listener = listener
        self._code = code
        self._lease = lease
        self._held: dict[str, Hold] = {}
        self._lock = threading.Lock()
        self._answered = False
        """Whether the latest beat was."""

    @property
    def fingerprint(self) -> str:
        """Of the code that this listener runs."""
        return self._code.fingerprint.digest

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> list[tuple[str, str]]:
        """The claims that it keeps, by id and token."""
        with self._lock:
            return [(id, hold.token) for id, hold in self._held.items()]

    def hold(self, id: str, token: str, *, asked: float) -> None:
        """Keep this claim, which was asked for at that time (monotonic), alive from now on."""
        with self._lock:
            self._held[id] = Hold(token, asked)

    def drop(self, id: str, token: str) -> None:
        """Stop keeping it: it is settled, or lost."""
        with self._lock:
            hold = self._held.get(id)
            if hold is not None and hold.token == token:
                del self._held[id]

    def is_fresh(self, id: str, token: str) -> bool:
        """Whether this claim cannot have lapsed yet, whatever was missed meanwhile.

        It may have if this process stood still, or its event loop was blocked, for a lease.
        """
        return time.monotonic() < self.fresh_until(id, token)

    def fresh_until(self, id: str, token: str) -> float:
        """When this claim can have lapsed (monotonic), unless it is renewed; 0.0 if it is lost."""
        hold = self._held.get(id)
        if hold is None or hold.token != token:
            return 0.0
        return hold.asked + self._lease - ROUNDED

    def beat(self) -> claiming.HeartbeatReply:
        """Beat once. Raises a ServerError.

        An answer that got lost may have reported a gap: then, and at first, the next one does.
        """
        session = self._consumer.session
        with self._lock:
            held = {id: hold.token for id, hold in self._held.items()}
        sent = time.monotonic()
        answered, self._answered = self._answered, False
        call = claiming.heartbeat(
            self._listener, self._lease, held.items(),
            code=self._code.text, functions=len(self._code.fingerprint.shapes),
        )  # fmt: skip
        beat = session.heart_store.run(call)
        if session is not self._consumer.session:
            return self.beat()  # a superseded primary renewed nothing that counts
        if beat.undeclared:
            self.declare()
        self._answered = True
        if not answered:
            beat = dataclasses.replace(beat, gap=True)
        session.server_clock.learn(beat.now_us, sent=sent, received=time.monotonic())
        for id in beat.lost:
            self.drop(id, held[id])
        self._renew(held, sent)
        return beat

    def declare(self) -> None:
        """Declare what this listener knows. Raises a ServerError."""
        fingerprint = self._code.fingerprint
        store = self._consumer.session.heart_store
        store.run(fleet.declare(fingerprint.digest, fingerprint.shapes))

    def leave(self) -> bool:
        """Say goodbye; whether the server answered."""
        try:
            self._consumer.session.heart_store.run(claiming.leave(self._listener))
        except ServerError as error:
            logger.debug("no goodbye: %s", error)
            return not isinstance(error, ServerUnreachable)
        return True

    def _renew(self, held: dict[str, str], sent: float) -> None:
        """Take note that a beat that was sent then was answered: what it named has a new lease."""
        with self._lock:
            for id, token in held.items():
                hold = self._held.get(id)
                if hold is not None and hold.token == token:
                    self._held[id] = Hold(token, sent)
