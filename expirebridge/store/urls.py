"""URLs of servers: whether they can be used, and how they are shown."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from expirebridge.errors import InvalidSetting

_TLS_FILES = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"}
_SECRET = re.compile(r"(?<=[?&])((?:ssl_)?password)=[^&]*")


def check_url(url: str) -> None:
    """Raise InvalidSetting for what redis-py would take without a word, or explain badly."""
    path, query = urlsplit(url)[2:4]
    if url.startswith(("redis://", "rediss://")) and path.strip("/") and not path[1:].isdigit():
        raise InvalidSetting(f"url={safe_url(url)!r}: {path[1:]!r} is not a database's number")
    for name, value in parse_qsl(query):
        if name in _TLS_FILES and not Path(value).exists():
            raise InvalidSetting(f"url={safe_url(url)!r}: {name}: there is no file {value}")


def safe_url(url: str) -> str:
    """The URL without its passwords, for people to read."""
    url = _SECRET.sub(r"\1=***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, _, login = head.partition("://")
    user = login.partition(":")[0]
    return f"{scheme}://{user}:***@{tail}"
