"""Slows down attempts to guess passwords, and nothing else."""

import asyncio
import contextlib
import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from expirebridge.errors import ExpirebridgeError
from expirebridge.web.security import Credentials

LONGEST_PAUSE = 8.0
"""Seconds."""
MOST_WAITING = 5
"""How many attempts of one address may wait at once; more are refused without a check."""
REMEMBERED_FOR = 600.0
"""For how many seconds after its last failure an address is slowed down."""

_MOST_SOURCES = 10_000
_MOST_KNOWN = 1_000


class TooManyAttempts(ExpirebridgeError):
    """Too many attempts of an address are waiting."""


@dataclass(slots=True)
class _Source:
    """What is known of an address."""

    failures: int = 0
    failed_at: float = 0.0
    waiting: int = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while waiting. Raises TooManyAttempts if none is free."""
        if self.waiting >= MOST_WAITING:
            raise TooManyAttempts
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class SignIns:
    """Checks credentials, after a pause that grows with the failures of the sender's address.

    The check follows the pause, so an attempt that does not wait learns nothing. Only new attempts
    wait: credentials that were right before pass at once, so signed-in users do not notice an
    attack, even one from their own address. The number of waiting attempts per address is limited.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._known: set[bytes] = set()
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    async def name_of(self, authorization: str, address: str) -> str | None:
        """Who sends this header; None if the credentials are wrong. Raises TooManyAttempts."""
        if not authorization:
            return None  # a browser's first request, before it asks for a password
        digest = hashlib.sha256(authorization.encode()).digest()
        if digest not in self._known:
            await self._wait(network_of(address))
        who = self._credentials.name_of(authorization)
        if who is None:
            self._note_failure(network_of(address))
        elif len(self._known) < _MOST_KNOWN:
            self._known.add(digest)
        return who

    async def _wait(self, network: str) -> None:
        source = self._sources.get(network)
        if source is None or time.monotonic() - source.failed_at > REMEMBERED_FOR:
            return
        with source.place():
            await asyncio.sleep(pause_after(source.failures))

    def _note_failure(self, network: str) -> None:
        source = self._sources.setdefault(network, _Source())
        self._sources.move_to_end(network)
        now = time.monotonic()
        if now - source.failed_at > REMEMBERED_FOR:
            source.failures = 0
        source.failures += 1
        source.failed_at = now
        if len(self._sources) > _MOST_SOURCES:
            self._sources.popitem(last=False)


def pause_after(failures: int) -> float:
    """How many seconds an address waits after so many failures, at least one."""
    return min(0.5 * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


def network_of(address: str) -> str:
    """The network of an address: one person has the whole lower half of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # the peer of a Unix socket has no address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
