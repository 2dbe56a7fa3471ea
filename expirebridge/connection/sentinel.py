"""The primary: which server it is now, by the word of its sentinels and its own."""

import logging
import os
import threading
import time
from collections.abc import Callable

from expirebridge.connection.cluster import SlotPrimary
from expirebridge.connection.sentinels import NO_SENTINEL, Answer, Sentinels, leader_of
from expirebridge.connection.urls import Address
from expirebridge.model.log_fields import event
from expirebridge.store.unfound import NoPrimary, WrongPlace

logger = logging.getLogger("expirebridge")

ASK_EVERY = 1.0
"""Seconds for which an answer of the sentinels counts."""
SHARE = 20
"""How many times as long as asking took is not asked again: sentinels that hang cost 5 %."""
JUST_NOW = 0.1
"""Seconds for which connections that are opened together share an answer."""


class Primary:
    """Follows the primary: the server that the sentinels agree on, and that says that it is one.

    More than half of the URL's sentinels decide. If no more than half agree, the server that is
    known stays the primary while its own ROLE says so; if it does not, or none is known, the one
    that most of them name is taken if its ROLE says that it is a primary.

    Safe for threads, and for a process that forks.
    """

    clustered = False
    """Whether it is a node of a cluster."""

    def __init__(self, sentinels: Sentinels, doubt: Callable[[Address], str]) -> None:
        self._sentinels = sentinels
        self._doubt = doubt
        """Asks a server what it is: why it cannot be the primary, or nothing."""
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._asked = self._next = float("-inf")
        self._disagreed = False
        self.known: Address | None = None
        """Where it was when it was last looked for; None: it has not been found yet."""

    @property
    def name(self) -> str:
        """What the sentinels call it."""
        return self._sentinels.name

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask the sentinels again, before a connection is used."""
        return time.monotonic() >= self._next

    def is_at(self, address: Address) -> bool:
        """Whether a connection to this address still leads to the primary, as far as is known."""
        return self.known == address

    def locate(self) -> Address:
        """Where a new connection is to go. Raises as `find`."""
        return self._ask_if(lambda: time.monotonic() >= self._asked + JUST_NOW)

    def refresh(self) -> None:
        """Ask the sentinels if it is time; if they cannot say, what was known goes on."""
        try:
            self._ask_if(lambda: self.is_due)
        except (NoPrimary, WrongPlace) as error:
            logger.debug("the primary was looked for in vain: %s", error)

    def find(self) -> Address:
        """Ask the sentinels, and the server. Raises NoPrimary or WrongPlace if none can be found.

        If none is found now, but one was known, it is taken to be that one still.
        """
        return self._ask_if(lambda: True)

    def _ask_if(self, wanted: Callable[[], bool]) -> Address:
        """Ask, unless another thread has just done so while this one waited for its turn."""
        if os.getpid() != self._pid:  # another thread may have held the lock when this was forked
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            if self.known is not None and not wanted():
                return self.known
            began = time.monotonic()
            try:
                self.known = self._choose()
            finally:
                self._asked = time.monotonic()
                self._next = self._asked + max(ASK_EVERY, SHARE * (self._asked - began))
            return self.known

    def _choose(self) -> Address:
        answers = list[Answer]()
        leader, votes = None, 0
        for answer in self._sentinels.answers():
            answers.append(answer)
            leader, votes = leader_of(answers)
            if leader is not None and 2 * votes > len(self._sentinels):
                self._report(answers, agreed=True)
                return self._take(leader, answers)
        if self.known or leader:  # else there is an error to tell it
            self._report(answers, agreed=False)
        if self.known is not None and (leader in {None, self.known} or not self._doubt(self.known)):
            return self.known
        return self._take(leader, answers)

    def _take(self, leader: Address | None, answers: list[Answer]) -> Address:
        """The leader, if it says that it is a primary; else what was known."""
        if leader is not None and leader == self.known:
            return leader
        doubt = self._doubt(leader) if leader is not None else ""
        if leader is not None and not doubt:
            return leader
        if self.known is not None:
            return self.known
        said = "; ".join(map(str, answers))
        if leader is not None:
            raise NoPrimary(
                f"the sentinels name {leader}, but it {doubt}; if it cannot be reached at that "
                "address from here, they need another: `sentinel announce-ip`, and "
                f"`replica-announce-ip` of the servers ({said})"
            )
        kind = WrongPlace if all(answer.is_final for answer in answers) else NoPrimary
        if all(answer.fault == NO_SENTINEL for answer in answers):
            said += "; begin the URL of a server with redis://, of a cluster with redis+cluster://"
        raise kind(f"the sentinels name no primary {self._sentinels.name!r}: {said}")

    def _report(self, answers: list[Answer], *, agreed: bool) -> None:
        """Log, once, that no majority of the sentinels agrees, and that one does again."""
        if agreed is not self._disagreed:
            return
        self._disagreed = not agreed
        said = "; ".join(map(str, answers))
        if agreed:
            logger.warning(
                "a majority of the sentinels agrees again: %s", said,
                extra=event("sentinels agree", told=said),
            )  # fmt: skip
        else:
            logger.warning(
                "no majority of the sentinels agrees on the primary of %r: %s; %s while it says "
                "that it is a primary",
                self._sentinels.name, said, "the known one stays" if self.known else "one is taken",
                extra=event("sentinels disagree", told=said),
            )  # fmt: skip


class Berth:
    """The place of one generation of connections: the primary as it was first found, for good."""

    def __init__(self, primary: Primary | SlotPrimary, address: Address | None = None) -> None:
        self.primary = primary
        self.clustered = primary.clustered
        self._address = address

    @property
    def known(self) -> Address | None:
        """Where it is; None: it has not been found yet."""
        return self._address

    @property
    def name(self) -> str:
        """What the sentinels call it."""
        return self.primary.name

    @property
    def is_due(self) -> bool:
        """It is never time to ask again: another generation follows if the primary moves."""
        return False

    def locate(self) -> Address:
        """Where a new connection is to go. Raises NoPrimary or WrongPlace."""
        if self._address is None:
            self._address = self.primary.locate()
        return self._address

    def is_at(self, address: Address) -> bool:
        """Whether a connection to this address is one of this generation."""
        return self._address == address

    def refresh(self) -> None:
        """Ask nothing."""


Place = Primary | Berth
"""Where connections lead: to the primary of now, or to that of one generation."""
