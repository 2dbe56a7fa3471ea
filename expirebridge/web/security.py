"""What stands between the network and the pages: who may come in, from where, and what runs.

Plain ASGI, for a stream of events must not be buffered.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expirebridge.errors import InvalidSetting

_SAFE_METHODS = {"GET", "HEAD"}

_HEADERS = {
    # No inline script or style anywhere: what is injected into a page cannot run.
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


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Who may come in: whoever has the token, or one of the users with their password.

    A token is sent as `Authorization: Bearer`, or as the password of any user name, which is how a
    browser asks for it. Raises InvalidSetting for an empty secret.
    """

    token: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        secrets = [*self.users.values(), *([] if self.token is None else [self.token])]
        if not secrets or not all(secrets) or any(":" in name for name in self.users):
            raise InvalidSetting(
                "credentials: give a token, or users with passwords; none is empty"
            )

    def name_of(self, authorization: str) -> str | None:
        """Who sends this header: the user's name, "token", or None if nobody who may."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.token is not None:
            return "token" if _equal(value.strip(), self.token) else None
        if scheme.lower() != "basic":
            return None
        try:
            decoded = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        user, _, password = decoded.partition(":")
        # As much is done for a user who is not known as for one who is.
        known = self.users.get(user)
        if _equal(password, known if known is not None else "") and known is not None:
            return user
        if self.token is not None and _equal(password, self.token):
            return "token"
        return None


def _equal(given: str, secret: str) -> bool:
    """Compare without telling by the time how much of it was right, nor how long the secret is."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (given, secret)]
    return hmac.compare_digest(*digests)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets in who may come in, takes actions only from its own pages, and adds the headers.

    With `loopback_only` the name by which it is asked must be this machine's: another site could
    have its name point here, and its pages would then count as ours.
    """

    def __init__(
        self, app: ASGIApp, credentials: Credentials | None, *, loopback_only: bool
    ) -> None:
        self._app = app
        self._credentials = credentials
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

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: MutableMapping[str, Any]) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if self._loopback_only and not is_loopback(host):
            return PlainTextResponse("This dashboard answers by localhost only.", 421)
        who: str | None = "anybody"
        if self._credentials is not None:
            who = self._credentials.name_of(headers.get("authorization", ""))
            if who is None:
                challenge = {"www-authenticate": 'Basic realm="expirebridge", charset="UTF-8"'}
                return PlainTextResponse("Sign in.", 401, challenge)
        if scope["method"] not in _SAFE_METHODS and not _from_own_page(headers):
            return PlainTextResponse("Actions are taken from this dashboard's own pages only.", 403)
        scope.setdefault("state", {})["who"] = who
        return None


def _from_own_page(headers: Headers) -> bool:
    """Whether a browser says that the page which sent this is ours. Who says nothing is refused.

    The scheme is not compared: a proxy may have taken TLS off.
    """
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == headers.get("host", "")
