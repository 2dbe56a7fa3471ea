"""Finds the current primary, by asking its sentinels and the server itself."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import redis
from redis import exceptions

from expirebridge.connection.cluster import SlotPrimary
from expirebridge.connection.urls import Address, SentinelUrl
from expirebridge.store.errors import NoPrimary, WrongPlace
from expirebridge.task.forks import renew_after_fork
from expirebridge.task.texts import event

# The sentinels of a primary: what each of them answers, and what they agree on.

NO_SENTINEL = "is not a sentinel"
"""The fault of an address at which something else answers."""


class SentinelAnswer(NamedTuple):
    """One sentinel's answer to the question for the primary."""

    sentinel: Address
    primary: Address | None
    """The address of the primary; None if it did not say."""
    fault: str = ""
    """Why it did not say."""
    is_final: bool = False
    """True if asking again cannot help: it is no sentinel, or does not know the name."""

    def __str__(self) -> str:
        return f"{self.sentinel} {f'names {self.primary}' if self.primary else self.fault}"


class Sentinels:
    """Asks the sentinels of a URL, one after the other. Not safe for threads.

    One that did not answer is asked last from then on: while the others agree, it costs nothing.
    """

    def __init__(self, url: SentinelUrl, clients: Sequence[redis.Redis]) -> None:
        self.name = url.name
        self._sentinels = list(zip(url.sentinels, clients, strict=True))

    def __len__(self) -> int:
        return len(self._sentinels)

    def answers(self) -> Iterator[SentinelAnswer]:
        """Ask each of them for the primary, when its turn comes."""
        for sentinel in list(self._sentinels):
            answer = self._ask(*sentinel)
            if answer.primary is None:
                self._sentinels.remove(sentinel)
                self._sentinels.append(sentinel)
            yield answer

    def _ask(self, sentinel: Address, client: redis.Redis) -> SentinelAnswer:
        try:
            found = _master_of(client, self.name)
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            refused = isinstance(error, exceptions.AuthenticationError)
            return SentinelAnswer(sentinel, None, _silence(error), is_final=refused)
        except exceptions.RedisError as error:
            return SentinelAnswer(sentinel, None, _refusal(error), is_final=True)
        if found is None:
            known = _names_known_to(client)
            return SentinelAnswer(
                sentinel, None, f"does not know {self.name!r}{known}", is_final=True
            )
        return SentinelAnswer(sentinel, Address(*found))


def leader_of(answers: Iterable[SentinelAnswer]) -> tuple[Address | None, int]:
    """The address that most of them name, and how many do; None if two are named equally often."""
    votes = Counter(answer.primary for answer in answers if answer.primary)
    ranked: list[tuple[Address | None, int]] = [*votes.most_common(2), (None, 0), (None, 0)]
    (leader, most), (_, next_most) = ranked[:2]
    return (leader, most) if most > next_most else (None, most)


def _master_of(client: redis.Redis, name: str) -> tuple[str, int] | None:
    command = "SENTINEL GET-MASTER-ADDR-BY-NAME"
    found: tuple[str, int] | None = client.execute_command(command, name)  # type: ignore[no-untyped-call]
    return found


def _names_known_to(client: redis.Redis) -> str:
    """The names that a sentinel does know, as far as it may say them."""
    try:
        found: Any = client.execute_command("SENTINEL MASTERS")  # type: ignore[no-untyped-call]
    except exceptions.RedisError:
        return ""
    return f", but {', '.join(map(repr, sorted(found)))}" if found else ", nor any other name"


def _silence(error: Exception) -> str:
    if isinstance(error, exceptions.AuthenticationError):
        return _refusal(error)
    return f"does not answer: {error}"


def _refusal(error: Exception) -> str:
    if "unknown command" in str(error):
        return NO_SENTINEL
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return f"refuses the login: {error} (it is in ?sentinel_username= and &sentinel_password=)"
    return f"answers: {error}"


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
    """True for a node of a cluster."""

    def __init__(self, sentinels: Sentinels, doubt: Callable[[Address], str]) -> None:
        self._sentinels = sentinels
        self._doubt = doubt
        """Asks a server what it is: why it cannot be the primary, or nothing."""
        self.renew()
        renew_after_fork(self)
        self._asked = self._next = float("-inf")
        self._disagreed = False
        self.known: Address | None = None
        """The last known address; None before it was found."""

    def renew(self) -> None:
        """Forget who asks: another thread may have asked when this was forked."""
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The sentinels' name for it."""
        return self._sentinels.name

    @property
    def is_due(self) -> bool:
        """True if the sentinels have to be asked again before a connection is used."""
        return time.monotonic() >= self._next

    def is_at(self, address: Address) -> bool:
        """True if this is the address of the primary, as far as is known."""
        return self.known == address

    def locate(self) -> Address:
        """Return the address for a new connection. Raises as `find`."""
        return self._ask_if(lambda: time.monotonic() >= self._asked + JUST_NOW)

    def refresh(self) -> None:
        """Ask the sentinels if it is time; without an answer, the known address stays."""
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
        answers = list[SentinelAnswer]()
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

    def _take(self, leader: Address | None, answers: list[SentinelAnswer]) -> Address:
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

    def _report(self, answers: list[SentinelAnswer], *, agreed: bool) -> None:
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


class PinnedPrimary:
    """The fixed address of one generation of connections: the primary as first found."""

    def __init__(self, primary: Primary | SlotPrimary, address: Address | None = None) -> None:
        self.primary = primary
        self.clustered = primary.clustered
        self._address = address

    @property
    def known(self) -> Address | None:
        """Its address; None before it was found."""
        return self._address

    @property
    def name(self) -> str:
        """The sentinels' name for it."""
        return self.primary.name

    @property
    def is_due(self) -> bool:
        """It is never time to ask again: another generation follows if the primary moves."""
        return False

    def locate(self) -> Address:
        """Return the address for a new connection. Raises NoPrimary or WrongPlace."""
        if self._address is None:
            self._address = self.primary.locate()
        return self._address

    def is_at(self, address: Address) -> bool:
        """True if a connection to this address is one of this generation."""
        return self._address == address

    def refresh(self) -> None:
        """Ask nothing."""


Endpoint = Primary | PinnedPrimary
"""The target of connections: the current primary, or that of one generation."""
