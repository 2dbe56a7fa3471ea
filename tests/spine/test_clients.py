"""What the clients must not leave to the redis-py that happens to be installed."""

from expirebridge.connection import clients, several_servers
from expirebridge.handlers import Registry
from expirebridge.settings import Settings
from tests.kit.cases import each
from tests.kit.nodes import Process


def test_the_name_in_a_certificate_is_checked_unless_certificates_are_not() -> None:
    """redis-py before 6 would not."""
    url = "rediss://localhost:6379/1"
    for given, checked in (("", True), ("?ssl_cert_reqs=none", False)):
        options = clients.producer_client(url + given).get_connection_kwargs()
        assert options["ssl_check_hostname"] is checked


@each("url", ["redis://h/1", "valkey://h/1", "unix:///run/redis.sock"])
def test_a_plain_url_has_plain_connections(url: str) -> None:
    """No sentinel is asked, and no role: there is nothing that could."""
    client = clients.producer_client(url)
    assert client.connection_pool.connection_class.__module__ == "redis.connection"
    assert "place" not in client.connection_pool.connection_kwargs
    assert several_servers.primary_of(url) is None
    assert several_servers.sentinels_of(url) is None
    assert clients.primary_known_to(client) is None
    [server] = Process(Settings(url=url), Registry({})).node("expirebridge").nodes.values()
    assert server._failover_monitor is None
