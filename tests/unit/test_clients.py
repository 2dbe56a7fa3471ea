"""What the clients must not leave to the redis-py that happens to be installed."""

from expirebridge.store import clients


def test_the_name_in_a_certificate_is_checked_unless_certificates_are_not() -> None:
    """redis-py before 6 would not."""
    url = "rediss://localhost:6379/1"
    for given, checked in (("", True), ("?ssl_cert_reqs=none", False)):
        options = clients.producer_client(url + given).get_connection_kwargs()
        assert options["ssl_check_hostname"] is checked
