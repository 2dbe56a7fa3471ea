"""What stands between the network and the pages: who may come in, from where, and what runs.

Plain ASGI, for a stream of events must not be buffered.
"""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expirebridge.web.security import Credentials, is_loopback
from expirebridge.web.sign_ins import LONGEST_PAUSE, SignIns, TooManyAttempts

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


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]/?#@\\:]*)(:[0-9]*)?")
"""A name or address with a port, as a browser says it; a user's name has no place there."""


class Guard:
    """Lets in who may come in, takes actions only from its own pages, and adds the headers.

    With `loopback_only` the name by which it is asked must be this machine's: another site could
    have its name point here, and its pages would then count as ours.
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
            return PlainTextResponse("Host: write a name, or an address, and a port.", 400)
        if self._loopback_only and not is_loopback(host[1].lower()):
            return PlainTextResponse("This dashboard answers by localhost only.", 421)
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
            return PlainTextResponse("Actions are taken from this dashboard's own pages only.", 403)
        scope.setdefault("state", {})["who"] = who
        return None


def _from_own_page(headers: Headers) -> bool:
    """Whether a browser says that the page which sent this is ours. Who says nothing is refused.

    A proxy may have taken TLS off: both schemes of the web are ours.
    """
    host = headers.get("host", "")
    return bool(host) and headers.get("origin") in {f"http://{host}", f"https://{host}"}
