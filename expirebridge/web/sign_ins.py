"""Slows down who tries passwords, and nobody else."""

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
"""Attempts of one address that wait at the same time; more are refused without a look."""
REMEMBERED_FOR = 600.0
"""Seconds after its last failure for which an address is slowed."""

_MOST_SOURCES = 10_000
_MOST_KNOWN = 1_000


class TooManyAttempts(ExpirebridgeError):
    """An address has as many attempts waiting as it may."""


@dataclass(slots=True)
class _Source:
    """What is known of an address."""

    failures: int = 0
    failed_at: float = 0.0
    waiting: int = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Wait here; raises TooManyAttempts if there is no room."""
        if self.waiting >= MOST_WAITING:
            raise TooManyAttempts
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class SignIns:
    """Looks at credentials, after a pause that grows with the failures of the sender's address.

    The look comes after the pause, so an attempt that is not waited for learns nothing. Only new
    attempts wait: credentials that were right before pass at once, so nobody who is signed in
    notices an attack, even one from the same address. What an address can hold up is bounded.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._known: set[bytes] = set()
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    async def name_of(self, authorization: str, address: str) -> str | None:
        """Who sends this header, or None if nobody who may. Raises TooManyAttempts."""
        if not authorization:
            return None  # a browser asks so before it asks for a password
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
    """Seconds for which an address waits that has failed so often: at least once."""
    return min(0.5 * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)


def network_of(address: str) -> str:
    """Whose address it is: one person has all of the lower half of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # a socket in the file system has none
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
