"""URLs of servers: whether they can be used, and how they are shown.

What the standard library and redis-py say of a URL that they cannot read may quote a part of its
password. Their words are not passed on here.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from expirebridge.errors import InvalidSetting

SENTINEL_PORT = 26379
PORT = 6379
_SERVER = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""The schemes of one server, and what redis-py calls them."""
_SENTINEL = {f"{scheme}+sentinel": plain for scheme, plain in _SERVER.items() if scheme != "unix"}
"""The schemes of a primary that sentinels name, and that of the primary itself."""
_CLUSTER = {f"{scheme}+cluster": plain for scheme, plain in _SERVER.items() if scheme != "unix"}
"""The schemes of a cluster, and that of each of its nodes."""
_TLS_FILES = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"}
_LOGIN_AT_SENTINELS = {"sentinel_username": "username", "sentinel_password": "password"}
_TLS_OPTIONS = {
    *_TLS_FILES, "ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_password",
}  # fmt: skip
_OPTIONS = {
    "client_name", "db", "health_check_interval", "max_connections", "password",
    "socket_connect_timeout", "socket_keepalive", "socket_timeout", "username",
}  # fmt: skip
"""The options that are worth a suggestion; redis-py knows more."""
_NOT_FOR_URLS = {
    "decode_responses": "expirebridge reads bytes",
    "retry": "text cannot be one",
}
# An unescaped & or # may be a part of the password: all that follows is hidden.
_SECRET_OPTION = r"(?s)(?<=[?&])((?:ssl_|sentinel_)?password)=.*"  # noqa: S105 - it is a pattern
_SENTINEL_FORM = (
    r"(?P<login>[^/?#]*@)?(?P<hosts>[^/?#@]*)/(?P<name>[^/?#@]+)(?:/(?P<db>[^/?#@]*))?"
    r"(?:\?(?P<query>[^#]*))?"
)
_CLUSTER_FORM = (
    r"(?P<login>[^/?#]*@)?(?P<hosts>[^/?#@]*)(?:/(?P<db>[^/?#@]*))?(?:\?(?P<query>[^#]*))?"
)

ESCAPES = (
    "in a login, write %2F for /, %3F for ?, %23 for #, %5B for [, %5D for ] and %40 for @ "
    "(urllib.parse.quote(password, safe='') does it)"
)


class Address(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SentinelUrl(NamedTuple):
    """The parts of a Sentinel URL."""

    name: str
    """The name of the primary: what `sentinel monitor` calls it."""
    sentinels: tuple[Address, ...]
    sentinel_urls: tuple[str, ...]
    """A URL for each, without a login."""
    sentinel_login: dict[str, str]
    """The login at the sentinels: `username`, `password`, or neither."""
    primary_url: str
    """A URL of the primary, with the first sentinel's address in place of its own."""


class ClusterUrl(NamedTuple):
    """The parts of a cluster URL."""

    nodes: tuple[Address, ...]
    node_url: str
    """A URL of a node, with the first one's address."""


def check_url(url: object) -> None:
    """Raise InvalidSetting for a URL that would be misread, or only refused when it is used."""
    if not isinstance(url, str):
        raise InvalidSetting(
            f"url: give text, such as redis://localhost:6379/1, not a {type(url).__name__}; "
            "client= is for a Redis client of your own"
        )
    if reason := _fault(url) or _fault_of_tls(url):
        raise refused(url, reason)


def plain_url(url: str) -> str:
    """A URL of one server as redis-py writes it: valkey:// is another name of redis://."""
    scheme, slashes, rest = url.partition("://")
    return f"{_SERVER.get(scheme, scheme)}{slashes}{rest}"


def read_sentinel_url(url: str) -> SentinelUrl | None:
    """Read the Sentinel parts of a checked URL; None if it names a server."""
    scheme, _, rest = url.partition("://")
    if scheme not in _SENTINEL or (found := re.fullmatch(_SENTINEL_FORM, rest)) is None:
        return None
    plain = _SENTINEL[scheme]
    sentinels = tuple(_address(host, SENTINEL_PORT) for host in found["hosts"].split(","))
    options = parse_qsl(found["query"] or "", keep_blank_values=True)
    tls = urlencode([option for option in options if option[0] in _TLS_OPTIONS])
    rest_of_query = urlencode([each for each in options if each[0] not in _LOGIN_AT_SENTINELS])
    return SentinelUrl(
        name=unquote(found["name"]),
        sentinels=sentinels,
        sentinel_urls=tuple(f"{plain}://{each}/0?{tls}" for each in sentinels),
        sentinel_login={
            _LOGIN_AT_SENTINELS[name]: value
            for name, value in options
            if name in _LOGIN_AT_SENTINELS
        },
        primary_url=f"{plain}://{found['login'] or ''}{sentinels[0]}/{found['db'] or 0}"
        f"?{rest_of_query}",
    )


def read_cluster_url(url: str) -> ClusterUrl | None:
    """Read the cluster parts of a checked URL; None if it names no cluster."""
    scheme, _, rest = url.partition("://")
    if scheme not in _CLUSTER or (found := re.fullmatch(_CLUSTER_FORM, rest)) is None:
        return None
    nodes = tuple(_address(host, PORT) for host in found["hosts"].split(","))
    query = f"?{found['query']}" if found["query"] else ""
    place = f"{found['login'] or ''}{nodes[0]}/{found['db'] or 0}"
    return ClusterUrl(nodes, f"{_CLUSTER[scheme]}://{place}{query}")


def refused(url: str, reason: str) -> InvalidSetting:
    """The error that says what is wrong with a URL, and names the variable that holds it."""
    name = "EXPIREBRIDGE_URL" if url == os.environ.get("EXPIREBRIDGE_URL") else "url"
    return InvalidSetting(f"{name}={safe_url(url)!r}: {reason}")


def safe_url(url: str) -> str:
    """The URL without its passwords, for people to read."""
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    # A password may hold anything: the login ends at the last @.
    login, at, place = re.sub(_SECRET_OPTION, r"\1=***", rest).rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{user}:***" if colon and slashes else "***"
    return f"{scheme}{slashes}{shown if at else ''}{at}{place}"


def unknown_option(url: str, name: str) -> str:
    """The error text for an option that redis-py does not know."""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("?")[2]:
        return ESCAPES  # the name may be a part of the password
    known = set(_OPTIONS)
    if _asks_for_tls(scheme):
        known |= _TLS_OPTIONS
    if scheme in _SENTINEL:
        known |= set(_LOGIN_AT_SENTINELS)
    return (
        f"{name!r} is not an option of a {scheme}:// URL{_nearest(name, known)}; "
        f"among the options are {', '.join(sorted(known))}"
    )


def _nearest(word: str, words: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - only for a mistake

    near = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fault(url: str) -> str:
    """The error text for a URL; empty if it is valid."""
    scheme = url.partition("://")[0]
    if scheme in _SENTINEL and url.startswith(f"{scheme}://"):
        return _fault_of_sentinels(scheme, url.partition("://")[2])
    if scheme in _CLUSTER and url.startswith(f"{scheme}://"):
        return _fault_of_cluster(scheme, url.partition("://")[2])
    parts = _split(url)
    if parts is None:
        return ESCAPES
    if parts.scheme not in _SERVER or not url.startswith(f"{parts.scheme}://"):
        return _fault_of_scheme(url)
    if "#" in url or (parts.scheme != "unix" and "@" in parts.path):
        return ESCAPES
    if not _has_a_port(parts):
        return ESCAPES if "@" in parts.query else _fault_of_port(parts)
    number = "" if parts.scheme == "unix" else parts.path[1:]
    return _fault_of_query(parts.query) or _fault_of_number(number)


def _asks_for_tls(scheme: str) -> bool:
    return (_SERVER | _SENTINEL | _CLUSTER).get(scheme) == "rediss"


def _fault_of_tls(url: str) -> str:
    """The error text for TLS options that contradict each other; empty if they do not."""
    if not _asks_for_tls(url.partition("://")[0]):
        return ""
    named = {name for name, _ in parse_qsl(url.partition("?")[2])}
    if "ssl_keyfile" in named and "ssl_certfile" not in named:
        return "ssl_keyfile: it needs ssl_certfile=, which names the file with its certificate"
    return ""


def _fault_of_scheme(url: str) -> str:
    scheme, slashes, _ = url.partition("://")
    begin = ", ".join(f"{each}://" for each in (*_SERVER, *_SENTINEL, *_CLUSTER))
    near = (
        _nearest(scheme, [*_SERVER, *_SENTINEL, *_CLUSTER]) if slashes and "@" not in scheme else ""
    )
    return f"begin it with one of {begin}{near}"


def _fault_of_sentinels(scheme: str, rest: str) -> str:
    """The error text for the rest of a Sentinel URL; empty if it is valid."""
    found = re.fullmatch(_SENTINEL_FORM, rest)
    if found is None:
        nameless = re.fullmatch(_CLUSTER_FORM, rest)
        unescaped = "@" in rest and (nameless is None or "@" in (nameless["query"] or ""))
        if unescaped or "#" in rest:
            return ESCAPES
        return (
            f"write {scheme}://HOST:{SENTINEL_PORT},HOST:{SENTINEL_PORT}/NAME/1, with the "
            "sentinels, and the name that they have for the primary"
        )
    return _fault_of_hosts(found, "sentinel", SENTINEL_PORT)


def _fault_of_cluster(scheme: str, rest: str) -> str:
    """The error text for the rest of a cluster URL; empty if it is valid."""
    found = re.fullmatch(_CLUSTER_FORM, rest)
    if found is None:
        if "@" in rest or "#" in rest:
            return ESCAPES
        return f"write {scheme}://HOST:{PORT},HOST:{PORT}, with some nodes of the cluster"
    return _fault_of_hosts(found, "node", PORT)


def _fault_of_hosts(found: re.Match[str], what: str, port: int) -> str:
    """The error text for addresses, database number and options; empty if they are valid."""
    try:
        for host in found["hosts"].split(","):
            _address(host, port)
    except ValueError:
        return ESCAPES if "@" in found.string.partition("?")[2] else (
            f"each {what} is HOST or HOST:PORT, with a port up to 65535, and commas between them"
        )  # fmt: skip
    number, query = found["db"] or "", found["query"] or ""
    if "@" in query and _fault_of_number(number):
        return ESCAPES  # both may be parts of a password
    return _fault_of_query(query) or _fault_of_number(number)


def _address(host: str, port: int) -> Address:
    """The address of one of several; `port` if it has none. Raises ValueError."""
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(host)
    return Address(parts.hostname, port if parts.port is None else parts.port)


def _fault_of_number(number: str) -> str:
    return f"{number!r} is not a database's number" if number and not number.isdigit() else ""


def _fault_of_port(parts: SplitResult) -> str:
    if "," in parts.netloc.rpartition("@")[2]:
        return (
            f"it names one server; several sentinels are {parts.scheme}+sentinel://, and several "
            f"nodes of a cluster {parts.scheme}+cluster://"
        )
    return "its port must be a number up to 65535"


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _has_a_port(parts: SplitResult) -> bool:
    """True if the port is valid or missing."""
    try:
        return parts.port is None or parts.port >= 0
    except ValueError:
        return False


def _fault_of_query(query: str) -> str:
    if not all("=" in option for option in query.split("&") if option):
        return ESCAPES if "@" in query else "after the ? each option is name=value"
    for name, value in parse_qsl(query):
        if name in _NOT_FOR_URLS:
            return f"{name}: leave it out, for {_NOT_FOR_URLS[name]}"
        if name == "protocol" and value not in {"2", "3"}:
            return "protocol: 2 or 3; expirebridge speaks RESP2 in either case"
        if name in _TLS_FILES and not Path(value).exists():
            return f"{name}: there is no file {value}"
    return ""
