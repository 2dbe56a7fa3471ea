"""What is said if there is no TLS connection: for each cause what mends it, in both colours."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from expirebridge import AsyncBridge, Bridge, ServerUnreachable
from expirebridge.embedded.server import HOST
from tests.kit.sentinels import Sentinels
from tests.kit.tls import needed, tls_server, write_authority, write_leaf

RENEW = "renew the server's certificate"
OWN = "ssl_certfile=/path/client.pem&ssl_keyfile=/path/client.key"
CA = "rediss://host:6379/1?ssl_ca_certs=/path/ca.pem"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates that are well, out of date, not yet valid, and of others."""
    folder = tmp_path_factory.mktemp("keys")
    authority, now = write_authority(folder), datetime.now(UTC).replace(tzinfo=None)
    week = timedelta(days=7)
    write_leaf(authority, folder, "localhost")
    write_leaf(
        authority, folder, "localhost", name="old", not_before=now - 2 * week, not_after=now - week
    )
    write_leaf(authority, folder, "localhost", name="young", not_before=now + week)
    write_leaf(authority, folder, "me@example.org", name="client")
    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(folder / "other.pem")
    write_leaf(stranger, folder, "me@example.org", name="stranger")
    return folder


async def refusals(url: str) -> list[str]:
    """What both colours say."""
    with pytest.raises(ServerUnreachable) as waits, Bridge(url) as bridge:
        bridge.count()
    with pytest.raises(ServerUnreachable) as awaits:
        async with AsyncBridge(url) as bridge_too:
            await bridge_too.count()
    return [str(waits.value), str(awaits.value)]


@pytest.fixture(scope="module")
def tls_url(keys: Path) -> Iterator[str]:
    with tls_server(keys) as url:
        yield url


@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ("ssl_ca_certs={keys}/other.pem", CA),
        pytest.param("", CA, marks=pytest.mark.rest),
        pytest.param(
            "ssl_ca_certs={keys}/server.key",
            "the file that ssl_ca_certs= names holds no certificate",
            marks=pytest.mark.rest,
        ),
        (
            "ssl_ca_certs={keys}/ca.pem&ssl_certfile={keys}/client.pem&ssl_keyfile={keys}/server.key",
            "ssl_keyfile= names the key of another certificate",
        ),
        pytest.param(
            "ssl_ca_certs={keys}/ca.pem&ssl_certfile={keys}/client.pem",
            "ssl_keyfile= names the file with its key",
            marks=pytest.mark.rest,
        ),
    ],
)
async def test_files_that_do_not_do(tls_url: str, keys: Path, query: str, remedy: str) -> None:
    for refusal in await refusals(f"{tls_url}?{query.format(keys=keys)}"):
        assert refusal.startswith("no TLS connection to the server: ")
        assert remedy in refusal
        assert (CA in refusal) is (remedy == CA)


async def test_another_host(tls_url: str, keys: Path) -> None:
    url = f"{tls_url}?ssl_ca_certs={keys}/ca.pem"
    for refusal in await refusals(url.replace("localhost", HOST)):
        assert f"is not valid for '{HOST}'" in refusal
        assert "write a name that the server's certificate is for" in refusal
        assert "ssl_ca_certs" not in refusal


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("old", RENEW),
        pytest.param("young", "this machine's clock", marks=pytest.mark.rest),
    ],
)
async def test_a_certificate_out_of_its_time(keys: Path, name: str, remedy: str) -> None:
    with tls_server(keys, name=name) as url:
        for refusal in await refusals(f"{url}?ssl_ca_certs={keys}/ca.pem"):
            assert remedy in refusal
            assert "this machine's clock" in refusal
            assert "ssl_ca_certs" not in refusal


@pytest.mark.parametrize(
    ("version", "own"),
    [
        ("TLSv1.3", "stranger"),
        *(
            pytest.param(version, own, marks=pytest.mark.rest)
            for version, own in (("TLSv1.2", ""), ("TLSv1.2", "stranger"), ("TLSv1.3", ""))
        ),
    ],
)
async def test_a_server_that_asks_clients_for_a_certificate(
    keys: Path, own: str, version: str
) -> None:
    files = f"&ssl_certfile={keys}/{own}.pem&ssl_keyfile={keys}/{own}.key" if own else ""
    with tls_server(keys, clients_too=True, tls_protocols=version) as url:
        for refusal in await refusals(f"{url}?ssl_ca_certs={keys}/ca.pem{files}"):
            # The server may only hang up.
            assert OWN in refusal or "reset by peer" in refusal or "tls-ca-cert-file" in refusal
            assert CA not in refusal


async def test_a_url_without_tls(tls_url: str) -> None:
    for number in (0, 1):
        url = f"{tls_url.replace('rediss', 'redis').removesuffix('1')}{number}"
        for refusal in await refusals(url):
            assert "if the server speaks TLS there, begin the URL with rediss" in refusal


@pytest.mark.rest
async def test_urls_of_sentinels(tmp_path: Path) -> None:
    write_leaf(write_authority(tmp_path), tmp_path, "localhost")
    with Sentinels(needed(), tls=tmp_path) as sentinels:
        for refusal in await refusals(sentinels.url):
            assert "write a name that the server's certificate is for" in refusal
        for refusal in await refusals(
            sentinels.url.replace("rediss", "redis").partition("&ssl")[0]
        ):
            assert "if the server speaks TLS there, begin the URL with rediss" in refusal


@pytest.mark.rest
async def test_a_url_with_tls_of_a_cluster_without(url: str) -> None:
    for refusal in await refusals(url.replace("redis", "rediss+cluster", 1).removesuffix("/1")):
        assert "begin the URL with redis in place of rediss" in refusal
