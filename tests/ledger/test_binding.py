"""What may change of a ledger's two sides, and how their addresses are read."""

import pytest

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.binding import (
    MOST,
    Addresses,
    Met,
    Seen,
    check_sides,
    news_of,
    place_of,
)
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.engine import read_url
from expirebridge.settings import Settings

PLACE = Addresses(("r:1/1 e",), "1 e", "s:5/shop")
SEEN = Seen(PLACE, "cluster 1", "run")
MET = Met.first(SEEN)
BOUND, EMPTY = RedisCheckpoint("nonce", 7), RedisCheckpoint("", 0)
REDIS = PLACE._replace(redis=("other:1/1 e",))
SQL = PLACE._replace(sql="other:5/shop")
BOTH = SQL._replace(redis=("other:1/1 e",))


@pytest.mark.parametrize(
    ("seen", "known"),
    [
        pytest.param(SEEN, BOUND, id="nothing changed"),
        pytest.param(SEEN, EMPTY, id="Redis lost everything"),
        pytest.param(Seen(PLACE, "cluster 1", "new"), EMPTY, id="it lost everything and restarted"),
        pytest.param(Seen(PLACE, "cluster 1", None), BOUND, id="Redis does not say who it is"),
        pytest.param(Seen(REDIS, "cluster 1", "new"), BOUND, id="Redis is elsewhere"),
        pytest.param(Seen(REDIS, "cluster 1", "run"), EMPTY, id="elsewhere, emptied, the same"),
        pytest.param(Seen(SQL, "cluster 1", "new"), BOUND, id="SQL is elsewhere"),
        pytest.param(Seen(SQL, "cluster 2", "run"), BOUND, id="SQL was moved"),
        pytest.param(Seen(PLACE, "cluster 2", "run"), BOUND, id="SQL was restored in place"),
        pytest.param(Seen(BOTH, "cluster 1", "run"), BOUND, id="both are spelt otherwise"),
    ],
)
def test_one_side_may_change(seen: Seen, known: RedisCheckpoint) -> None:
    check_sides(MET, seen, known)
    check_sides(MET.with_(seen), seen, known)


def test_a_login_that_may_not_ask_makes_nobody_forget_the_process() -> None:
    assert MET.with_(Seen(PLACE, "cluster 1", None)) == MET


@pytest.mark.parametrize(
    ("seen", "known", "faults"),
    [
        pytest.param(
            Seen(REDIS, "cluster 1", "new"), EMPTY,
            "Redis knows no ledger; Redis is at other:1/1 e, and was met at r:1/1 e",
            id="an empty Redis elsewhere",
        ),
        pytest.param(
            Seen(PLACE, "cluster 2", "run"), EMPTY,
            "Redis knows no ledger; the SQL database at s:5/shop says that it is 'cluster 2', and "
            "was met as 'cluster 1'",
            id="a dump of SQL beside an empty Redis",
        ),
        pytest.param(
            Seen(SQL, "cluster 1", "run"), EMPTY,
            "Redis knows no ledger; the SQL database is at other:5/shop, and was met at s:5/shop",
            id="SQL elsewhere beside an empty Redis",
        ),
        pytest.param(
            Seen(BOTH, "cluster 1", "new"), BOUND,
            "Redis is at other:1/1 e, and was met at r:1/1 e; the SQL database is at "
            "other:5/shop, and was met at s:5/shop",
            id="both elsewhere",
        ),
        pytest.param(
            Seen(PLACE, "cluster 2", "new"), BOUND,
            "Redis at r:1/1 e is another process than the one met last; the SQL database at "
            "s:5/shop says that it is 'cluster 2', and was met as 'cluster 1'",
            id="both copied to the same addresses",
        ),
        pytest.param(
            Seen(PLACE, "cluster 2", None), BOUND,
            "Redis at r:1/1 e does not say which process it is; the SQL database at "
            "s:5/shop says that it is 'cluster 2', and was met as 'cluster 1'",
            id="SQL was moved and Redis does not say who it is",
        ),
        pytest.param(
            Seen(BOTH._replace(database="2 e"), "cluster 1", "run"), BOUND,
            "Redis is at other:1/1 e, and was met at r:1/1 e; the SQL database is at "
            "other:5/shop, and was met at s:5/shop",
            id="both elsewhere, and another database of that server",
        ),
    ],
)  # fmt: skip
def test_both_sides_may_not(seen: Seen, known: RedisCheckpoint, faults: str) -> None:
    with pytest.raises(LedgerUnsuitable) as refused:
        check_sides(MET, seen, known)
    assert f"may be copies: {faults}. Nothing is sent. `expirebridge ledger" in str(refused.value)


def test_the_servers_of_a_cluster_take_turns() -> None:
    """As behind a balancer: both are known when Redis restarts, and nothing is written any more."""
    met = MET.with_(Seen(PLACE, "cluster 2", "run"))
    for identity in ("cluster 1", "cluster 2"):
        assert met.with_(Seen(PLACE, identity, "run")) == met
        check_sides(met, Seen(PLACE, identity, "new"), BOUND)


def test_what_is_remembered_is_text() -> None:
    assert Met.read(MET.text) == MET
    assert Met.read(None) == Met()


def test_addresses_stay_known_and_the_oldest_is_forgotten() -> None:
    met = MET
    for number in range(MOST - 1):
        met = met.with_(Seen(PLACE._replace(redis=(f"{number}",)), "cluster 1", "run"))
    assert met.redis[0] == "r:1/1 e"
    met = met.with_(Seen(REDIS, "cluster 1", "run"))
    assert len(met.redis) == MOST
    assert "r:1/1 e" not in met.redis


def test_what_is_news() -> None:
    assert news_of(MET, MET.with_(Seen(PLACE, "cluster 1", "restarted"))) == []
    assert news_of(MET, MET.with_(Seen(BOTH, "cluster 2", "run"))) == [
        "Redis is at other:1/1 e",
        "the SQL database is at other:5/shop",
        "the SQL database says that it is 'cluster 2'",
    ]


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("redis://Cache.Example/3", ["cache.example:6379/3 e"]),
        ("rediss://user:secret@cache:7000?db=3", ["cache:7000/3 e"]),
        ("valkey://[::1]", ["[::1]:6379/0 e"]),
        ("unix:///run/Redis.sock?db=2", ["/run/Redis.sock/2 e"]),
        ("redis+sentinel://u:p@A,b:5/main/1", ["a:26379/main/1 e", "b:5/main/1 e"]),
        ("redis+cluster://u:p@A,b:5", ["a:6379/0 e", "b:5/0 e"]),
    ],
)
def test_addresses_of_redis_hold_no_login(url: str, addresses: list[str]) -> None:
    place = place_of(Settings(url=url, prefix="e"), read_url("sqlite://"))
    assert list(place.redis) == addresses
    assert {one.endswith(f"/{place.database}") for one in place.redis} == {True}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql+psycopg://user:secret@DB.example/shop", "db.example:5432/shop"),
        ("postgresql://user@/shop?host=/run/pg&port=5433", "/run/pg:5433/shop"),
        ("postgresql://u@/shop?host=a:1&host=b:2", "a:1,b:2/shop"),
        ("mysql+pymysql://user:secret@db/Shop", "db:3306/Shop"),
        ("mariadb://db:3307/shop", "db:3307/shop"),
        ("sqlite:////data/../data/shop.db", "/data/shop.db"),
        ("sqlite://", ":memory:"),
    ],
)
def test_the_address_of_the_sql_database_holds_no_login(url: str, address: str) -> None:
    assert place_of(Settings(), read_url(url)).sql == address
