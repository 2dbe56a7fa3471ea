"""URLs that cannot be used are refused, and no URL is shown with its password."""

from typing import Any
from urllib.parse import quote

import pytest

from expirebridge import AsyncBridge, Bridge, InvalidSetting
from expirebridge.connection import clients
from expirebridge.connection.urls import read_cluster_url, read_sentinel_url, safe_url
from expirebridge.settings import Settings
from tests.kit.cases import each

SECRET = "s3cr"
REST = "etpw"

UNESCAPED = [
    f"redis://ann:{SECRET}/{REST}@h/1",
    f"redis://ann:{SECRET}?{REST}@h/1",
    f"redis://ann:{SECRET}?a={REST}@h/1",
    f"redis://ann:{SECRET}#{REST}@h/1",
    f"redis+sentinel://ann:{SECRET}/{REST}@h/m/1",
    f"redis+sentinel://ann:{SECRET}?{REST}@h/m/1",
    f"redis+sentinel://ann:{SECRET}?a={REST}@h/m/1",
    f"redis+sentinel://ann:{SECRET}#{REST}@h/m/1",
    f"redis+sentinel://:1234/m/{SECRET}?a={REST}@h/m/1",
    f"redis+cluster://ann:{SECRET}/{REST}@h/0",
    f"redis+cluster://ann:{SECRET}?{REST}@h/0",
    f"redis+cluster://ann:{SECRET}?a={REST}@h/0",
    f"redis+cluster://ann:{SECRET}#{REST}@h/0",
    f"redis+cluster://:1234/{SECRET}?a={REST}@h/0",
    f"redis+cluster://h:1234/{SECRET}?a={REST}@h/0",
    f"redis+sentinel://:1234/{SECRET}{REST}@h/m/1",
    f"redis://ann:{SECRET}[{REST}@h/1",
    f"redis://ann:{SECRET}]{REST}@h/1",
    f"redis://ann:[{SECRET}]{REST}@h/1",
    f"redis://ann:{SECRET}\u2100{REST}@h/1",
    f"rediss://:{SECRET}/{REST}@h:6379/1",
    f"redis://:1234/{SECRET}{REST}@h/1",
    f"redis://:1234?{SECRET}={REST}@h/1",
    f"redis://:1234#{SECRET}{REST}@h/1",
    f"redis://ann:1234/{SECRET}/{REST}@h/1",
    f"unix://ann:{SECRET}[{REST}@/run/redis.sock",
    f"unix://ann:{SECRET}#{REST}@/run/redis.sock",
]

UNUSABLE = [
    *UNESCAPED,
    f"redis://h/1?password={SECRET}&{REST}",
    f"redis://h/1?password={SECRET}#{REST}",
    f"redis://ann:{SECRET}{REST}@h:port/1",
    f"redis://ann:{SECRET}{REST}@h:99999/1",
    f"redis://ann:{SECRET}{REST}@h/one",
    f"redis://ann:{SECRET}{REST}@h/1/2",
    f"redis://ann:{SECRET}{REST}@h/1?db=one",
    f"redis://ann:{SECRET}{REST}@h/1?ssl_ca=/ca.pem",
    f"redis://ann:{SECRET}{REST}@h/1?retry=3",
    f"redis://ann:{SECRET}{REST}@h/1?protocol=4",
    f"redis://ann:{SECRET}{REST}@h/1?ssl_certfile=/ca.pem",
    f"redis://ann:{SECRET}{REST}@h/1?decode_responses=True",
    f"rediss://ann:{SECRET}{REST}@h/1?ssl_cert_reqs=perhaps",
    f"redis+sentinel://ann:{SECRET}{REST}@h,,/m",
    f"redis+sentinel://h/m?sentinel_password={SECRET}&{REST}",
    f"redis+sentinel://h/m?sentinel_password={SECRET}&ssl_ca={REST}",
    f"redis+cluster://ann:{SECRET}{REST}@h,,",
    f"redis+cluster://ann:{SECRET}{REST}@h?ssl_ca=/ca.pem",
    f"http://ann:{SECRET}{REST}@h/1",
    f"ann:{SECRET}{REST}@h/1",
    f"redis:/ann:{SECRET}{REST}@h/1",
]


@each("url", UNUSABLE)
@each("colour", [Bridge, AsyncBridge])
def test_a_url_that_cannot_be_used_is_refused_without_its_password(
    url: str, colour: type[Bridge | AsyncBridge]
) -> None:
    with pytest.raises(InvalidSetting, match=r"^url='") as caught:
        colour(url)
    shown = str(caught.value)
    assert SECRET not in shown
    assert REST not in shown
    # Whoever logs the error logs what it came from, too.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@each("url", UNESCAPED)
def test_a_login_that_is_not_escaped_is_refused_with_the_escapes(url: str) -> None:
    with pytest.raises(InvalidSetting, match="write %2F for /, %3F for \\?, %23 for #"):
        Bridge(url)


@each(
    ("url", "reason"),
    [
        ("http://h/1", "begin it with one of redis://, rediss://, unix://, valkey://, "),
        ("redsi://h/1", "did you mean 'redis'?"),
        ("redis+sentinal://h/m", "did you mean 'redis+sentinel'?"),
        ("redis+clutser://h", "did you mean 'redis+cluster'?"),
        ("redis+cluster://h1,/0", "each node is HOST or HOST:PORT"),
        ("redis+cluster://h1:port", "each node is HOST or HOST:PORT"),
        ("redis+cluster://", "each node is HOST or HOST:PORT"),
        ("redis+cluster://h1/one", "'one' is not a database's number"),
        ("redis+cluster://h1/0/1", "write redis+cluster://HOST:6379,HOST:6379"),
        ("redis+cluster://h1?sentinel_password=x", "is not an option of a redis+cluster:// URL"),
        ("rediss+cluster://h1?ssl_ca_crts=x", "did you mean 'ssl_ca_certs'?"),
        ("redis://h1:1,h2:2/1", "several sentinels are redis+sentinel://"),
        ("redis://h1:1,h2:2/1", "several nodes of a cluster redis+cluster://"),
        ("redis+sentinel://h1,h2", "write redis+sentinel://HOST:26379,HOST:26379/NAME/1"),
        ("redis+sentinel://ann:p%2Fw@h1:1,h2?sentinel_password=x", "write redis+sentinel://HOST:"),
        ("redis+sentinel://h1,h2/", "write redis+sentinel://HOST:26379,HOST:26379/NAME/1"),
        ("redis+sentinel://h1,/m/1", "each sentinel is HOST or HOST:PORT"),
        ("redis+sentinel://h1:port/m/1", "each sentinel is HOST or HOST:PORT"),
        ("redis+sentinel://h1:99999/m/1", "each sentinel is HOST or HOST:PORT"),
        ("redis+sentinel://h/m/one", "'one' is not a database's number"),
        ("redis+sentinel://h/m/1/2", "write redis+sentinel://HOST:26379,HOST:26379/NAME/1"),
        ("redis+sentinel://h/m?sentinel_pasword=x", "did you mean 'sentinel_password'?"),
        ("redis+sentinel://h/m?sentinel_pasword=x", "among the options are client_name, db, "),
        ("redis://h/1?sentinel_password=x", "'sentinel_password' is not an option of a redis://"),
        ("rediss+sentinel://h/m?ssl_ca_certs=/nowhere", "there is no file /nowhere"),
        ("redis://h:port/1", "its port must be a number up to 65535"),
        ("redis://h/one", "'one' is not a database's number"),
        ("redis://h/1?db=one", "Invalid value for 'db'"),
        ("redis://h/1?ssl", "each option is name=value"),
        ("redis://h/1?ssl_ca_crts=x", "'ssl_ca_crts' is not an option of a redis:// URL"),
        ("rediss://h/1?ssl_ca_crts=x", "'ssl_ca_crts' is not an option of a rediss:// URL"),
        ("redis://h/1?decode_responses=no", "decode_responses: leave it out"),
        (f"rediss://h/1?ssl_keyfile={__file__}", "ssl_keyfile: it needs ssl_certfile="),
        (f"rediss+sentinel://h/m?ssl_keyfile={__file__}", "ssl_keyfile: it needs ssl_certfile="),
        (f"rediss+cluster://h?ssl_keyfile={__file__}", "ssl_keyfile: it needs ssl_certfile="),
        (f"redis://h/1?ssl_keyfile={__file__}", "'ssl_keyfile' is not an option of a redis:// URL"),
    ],
)
def test_it_is_said_what_is_wrong_with_a_url(url: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Bridge(url)
    assert reason in str(caught.value)


def test_what_is_no_text_is_no_url() -> None:
    client = clients.producer_client("redis://h/1")
    with pytest.raises(InvalidSetting, match=r"^url: give text, .* client= is for a Redis"):
        Bridge(client)  # type: ignore[arg-type]


@each(
    "url",
    [
        "redis://h",
        "redis://h:6380/2",
        "redis://[::1]:6379/1",
        "redis://ann:p@ss@h/1",
        f"redis://ann:{quote('a/b?c#d[e]f@g:h%i', safe='')}@h/1",
        "redis://h/1?client_name=me@home",
        "redis://h/1?username=ann&password=a@b",
        "redis://h/1?socket_timeout=2&socket_connect_timeout=0.5&max_connections=7",
        "rediss://h/1?ssl_cert_reqs=none&ssl_check_hostname=no",
        "valkey://h/1",
        "valkeys://ann:pw@h:6380/1?ssl_cert_reqs=none",
        "redis+sentinel://h/mymaster",
        "redis+sentinel://h1,h2:5000,[::1]:26379/mymaster/1",
        "rediss+sentinel://ann:p@ss@h1,h2/mymaster/1?sentinel_username=s&sentinel_password=a@b/c",
        "valkey+sentinel://h/my%2Fmaster/1",
        "unix:///run/a@b.sock?db=1",
        "unix://ann:pw@/run/redis.sock?db=1",
    ],
)
@each("colour", [Bridge, AsyncBridge])
def test_other_urls_are_taken(url: str, colour: type[Bridge | AsyncBridge]) -> None:
    colour(url)


@each(
    "url",
    [
        "redis://h/1?protocol=3", "redis://h?protocol=3&socket_timeout=2", "redis+cluster://h?protocol=3",
        "rediss://h/1?socket_timeout=2&protocol=3", "redis+sentinel://h/mymaster/1?protocol=3",
    ],
)  # fmt: skip
def test_a_url_that_asks_for_another_protocol_gets_the_one_that_is_read(url: str) -> None:
    made: list[Any] = [clients.listener_client(url, socket_timeout=1), clients.probe_client(url)]
    made += [clients.heartbeat_client(url, socket_timeout=1)]
    if "cluster" not in url:
        made += [clients.producer_client(url), clients.async_producer_client(url)]
    assert {client.get_connection_kwargs()["protocol"] for client in made} == {2}


def test_an_escaped_password_reaches_the_server_as_it_is() -> None:
    password = "a/b?c#d[e]f@g:h%i"
    client = clients.producer_client(f"redis://ann:{quote(password, safe='')}@h/1")
    assert client.get_connection_kwargs()["password"] == password


def test_a_url_of_sentinels_is_read_in_its_parts() -> None:
    found = read_sentinel_url(
        "rediss+sentinel://ann:p%2Fw@h1,h2:5000,[::1]/my%2Fmaster/3"
        "?sentinel_username=bob&sentinel_password=s%26t&ssl_cert_reqs=none&socket_timeout=2"
    )
    assert found is not None
    assert found.name == "my/master"
    assert found.sentinels == (("h1", 26379), ("h2", 5000), ("::1", 26379))
    assert found.sentinel_urls[2] == "rediss://[::1]:26379/0?ssl_cert_reqs=none"
    assert found.sentinel_login == {"username": "bob", "password": "s&t"}
    assert found.primary_url == (
        "rediss://ann:p%2Fw@h1:26379/3?ssl_cert_reqs=none&socket_timeout=2"
    )


@each("url", ["redis://h/1", "valkey://h/1", "unix:///run/redis.sock"])
def test_a_url_of_a_server_names_no_sentinels(url: str) -> None:
    assert read_sentinel_url(url) is None


@each(
    ("url", "shown"),
    [
        ("redis://h/1", "redis://h/1"),
        ("redis://ann:pw@h/1", "redis://ann:***@h/1"),
        ("redis://:pw@h/1", "redis://:***@h/1"),
        ("redis://pw@h/1", "redis://***@h/1"),
        ("redis://ann:p@w@h/1", "redis://ann:***@h/1"),
        ("redis://h/1?password=pw", "redis://h/1?password=***"),
        ("redis://h/1?password=p&w#x@y", "redis://h/1?password=***"),
        ("redis://h/1?db=2&ssl_password=pw", "redis://h/1?db=2&ssl_password=***"),
        (
            "redis+sentinel://ann:pw@s1,s2:1/m/1?sentinel_username=bob&sentinel_password=pw",
            "redis+sentinel://ann:***@s1,s2:1/m/1?sentinel_username=bob&sentinel_password=***",
        ),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_settings_do_not_show_their_url() -> None:
    assert SECRET not in repr(Settings(url=f"redis://:{SECRET}@h/1"))


@each(
    ("url", "node_url"),
    [
        ("redis+cluster://h", "redis://h:6379/0"),
        ("valkey+cluster://h1:7000,[::1]:7001", "redis://h1:7000/0"),
        ("rediss+cluster://a:p%40@h1,h2/1?ssl_cert_reqs=none", "rediss://a:p%40@h1:6379/1?ssl_cert_reqs=none"),
        ("valkeys+cluster://h1,h2", "rediss://h1:6379/0"),
    ],
)  # fmt: skip
@each("colour", [Bridge, AsyncBridge])
def test_urls_of_clusters_are_taken(
    url: str, node_url: str, colour: type[Bridge | AsyncBridge]
) -> None:
    named = read_cluster_url(url)
    assert named is not None
    assert named.node_url == node_url
    colour(url, prefix="{eb}expirebridge")
