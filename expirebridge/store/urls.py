"""URLs of servers: whether they can be used, and how they are shown.

What the standard library and redis-py say of a URL that they cannot read may quote a part of its
password. Their words are not passed on here.
"""

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from expirebridge.errors import InvalidSetting

_SCHEMES = ("redis", "rediss", "unix")
_TLS_FILES = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"}
_NOT_FOR_URLS = {
    "decode_responses": "expirebridge reads bytes",
    "retry": "text cannot be one",
}
# An unescaped & or # may be a part of the password: all that follows is hidden.
_SECRET = re.compile(r"(?<=[?&])((?:ssl_)?password)=.*", re.DOTALL)

ESCAPES = (
    "in a login, write %2F for /, %3F for ?, %23 for #, %5B for [, %5D for ] and %40 for @ "
    "(urllib.parse.quote(password, safe='') does it)"
)


def check_url(url: object) -> None:
    """Raise InvalidSetting for a URL that would be misread, or only refused when it is used."""
    if not isinstance(url, str):
        raise InvalidSetting(
            f"url: give text, such as redis://localhost:6379/1, not a {type(url).__name__}; "
            "client= is for a Redis client of your own"
        )
    if reason := _fault(url):
        raise refused(url, reason)


def refused(url: str, reason: str) -> InvalidSetting:
    """The error that says what is wrong with a URL."""
    return InvalidSetting(f"url={safe_url(url)!r}: {reason}")


def safe_url(url: str) -> str:
    """The URL without its passwords, for people to read."""
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    # A password may hold anything: the login ends at the last @.
    login, at, place = _SECRET.sub(r"\1=***", rest).rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{user}:***" if colon and slashes else "***"
    return f"{scheme}{slashes}{shown if at else ''}{at}{place}"


def unknown_option(url: str, name: str) -> str:
    """What is wrong with a URL that redis-py finds this option in, which it does not know."""
    parts = urlsplit(url)
    if "@" in parts.query:
        return ESCAPES  # the name may be a part of the password
    return f"{name!r} is not an option of a {parts.scheme}:// URL"


def _fault(url: str) -> str:
    """What is wrong with a URL, or nothing."""
    parts = _split(url)
    if parts is None:
        return ESCAPES
    if parts.scheme not in _SCHEMES or not url.startswith(f"{parts.scheme}://"):
        return "begin it with redis://, rediss:// or unix://"
    if "#" in url or (parts.scheme != "unix" and "@" in parts.path):
        return ESCAPES
    if not _has_a_port(parts):
        return ESCAPES if "@" in parts.query else "its port must be a number up to 65535"
    if not all("=" in option for option in parts.query.split("&") if option):
        return ESCAPES if "@" in parts.query else "after the ? each option is name=value"
    number = parts.path[1:]
    if parts.scheme != "unix" and number and not number.isdigit():
        return f"{number!r} is not a database's number"
    return _fault_of_options(parts.query)


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _has_a_port(parts: SplitResult) -> bool:
    """Whether the port is one, or left out."""
    try:
        return parts.port is None or parts.port >= 0
    except ValueError:
        return False


def _fault_of_options(query: str) -> str:
    for name, value in parse_qsl(query):
        if name in _NOT_FOR_URLS:
            return f"{name}: leave it out, for {_NOT_FOR_URLS[name]}"
        if name in _TLS_FILES and not Path(value).exists():
            return f"{name}: there is no file {value}"
    return ""
