"""Guards the pages: who may use them, under which name, and which scripts may run.

Plain ASGI, since a stream of events must not be buffered.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expirebridge.errors import ExpirebridgeError, InvalidSetting

# Access to the dashboard: by credentials, or from this machine only.


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Secrets for signing in: a token, and users with passwords.

    A token is sent as `Authorization: Bearer`, or as the password of any user name, since that is
    what a browser can ask for. Raises InvalidSetting for an empty secret.
    """

    token: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        secrets = [*self.users.values(), *([] if self.token is None else [self.token])]
        if not secrets or not all(secrets) or any(":" in name for name in self.users):
            raise InvalidSetting(
                "credentials: give a token, or users with passwords; none may be empty"
            )
        if self.token is not None and (
            self.token != self.token.strip() or not self.token.isprintable()
        ):
            raise InvalidSetting(
                "credentials: the token begins or ends with a space or a line's end, as what is "
                "read from a file does, or has a control character; no header can hold it"
            )

    def name_of(self, authorization: str) -> str | None:
        """Return the user of this header, or "token"; None if the credentials are wrong."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.token is not None:
            return "token" if _equal(value.strip(), self.token) else None
        if scheme.lower() != "basic":
            return None
        try:
            decoded = base64.b64decode(value.strip(), validate=True).decode()
        except ValueError:  # neither base64, nor UTF-8
            return None
        user, _, password = decoded.partition(":")
        # An unknown user takes the same steps as a known one.
        known = self.users.get(user)
        if _equal(password, known if known is not None else "") and known is not None:
            return user
        if self.token is not None and _equal(password, self.token):
            return "token"
        return None


def _equal(given: str, secret: str) -> bool:
    """Compare in a time that reveals neither how much was right nor how long the secret is."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (given, secret)]
    return hmac.compare_digest(*digests)


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# Throttles attempts to guess passwords.

LONGEST_PAUSE = 8.0
"""Seconds."""
MOST_WAITING = 5
"""Most attempts of one address that wait at once; others are refused without a check."""
REMEMBERED_FOR = 600.0
"""Seconds after its last failure for which an address is slowed down."""

_MOST_SOURCES = 10_000
_MOST_KNOWN = 1_000


class TooManyAttempts(ExpirebridgeError):
    """Too many attempts of an address are waiting."""


@dataclass(slots=True)
class _Source:
    """The recent failures of an address, and its attempts that wait."""

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
        """Return the user of this header; None if it is wrong. Raises TooManyAttempts."""
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
    """The seconds that an address waits after so many failures, at least one."""
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


_SAFE_METHODS = {"GET", "HEAD"}

_HEADERS = {
    # No inline script or style anywhere, so code injected into a page cannot run.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # "no-referrer" would turn the Origin of forms into "null", and our own would be refused.
    "referrer-policy": "same-origin",
}


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]/?#@\\:]*)(:[0-9]*)?")
"""A name or address with a port, as a browser sends it; a user name is not allowed there."""


class Guard:
    """Checks sign-ins, accepts actions only from its own pages, and adds the headers.

    With `loopback_only`, requests must name this machine's loopback: another site could point its
    own name here, and its pages would then seem to be ours.
    """

    def __init__(
        self, app: ASGIApp, credentials: Credentials | None, *, loopback_only: bool
    ) -> None:
        self._app = app
        self._sign_ins = SignIns(credentials) if credentials else None
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = await self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = _HOST.fullmatch(headers.get("host", ""))
        if host is None:
            return PlainTextResponse("Host: give a name or an address, and a port.", 400)
        if self._loopback_only and not is_loopback(host[1].lower()):
            return PlainTextResponse("This dashboard answers only to localhost.", 421)
        who: str | None = "anybody"
        if self._sign_ins is not None:
            address, _ = scope.get("client") or ("", 0)
            try:
                who = await self._sign_ins.name_of(headers.get("authorization", ""), address)
            except TooManyAttempts:
                return PlainTextResponse(
                    "Too many failed sign-ins from this address: try again later.",
                    429, {"retry-after": f"{LONGEST_PAUSE:.0f}"},
                )  # fmt: skip
            if who is None:
                challenge = {"www-authenticate": 'Basic realm="expirebridge", charset="UTF-8"'}
                return PlainTextResponse("Sign in.", 401, challenge)
        if scope["method"] not in _SAFE_METHODS and not _from_own_page(headers):
            return PlainTextResponse(
                "Actions are accepted only from this dashboard's own pages.", 403
            )
        scope.setdefault("state", {})["who"] = who
        return None


def _from_own_page(headers: Headers) -> bool:
    """True if the Origin header names our own page. A request without it is refused.

    A proxy may have removed TLS, so both http and https count as ours.
    """
    host = headers.get("host", "")
    return bool(host) and headers.get("origin") in {f"http://{host}", f"https://{host}"}
