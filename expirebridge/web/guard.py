"""Guards the pages: who may use them, under which name, and which scripts may run.

Plain ASGI, since a stream of events must not be buffered.
"""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from expirebridge.web.security import Credentials, is_loopback
from expirebridge.web.sign_ins import LONGEST_PAUSE, SignIns, TooManyAttempts

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
    """Whether the Origin header names our own page. A request without it is refused.

    A proxy may have removed TLS, so both http and https count as ours.
    """
    host = headers.get("host", "")
    return bool(host) and headers.get("origin") in {f"http://{host}", f"https://{host}"}
