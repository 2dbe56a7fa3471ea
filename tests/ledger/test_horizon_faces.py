"""What commands, doctor, metrics and dashboard say of rows that are kept back."""

import pytest
import redis

from expirebridge.checks.finding import Level
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.checks import check_horizons
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness
from tests.kit.witness import Witness, listening

HOUR = 3_600_000
HORIZON = 3600.0


@pytest.fixture
def harness(harness: LedgerHarness) -> LedgerHarness:
    return with_horizon(harness, HORIZON)


def with_horizon(harness: LedgerHarness, horizon: float | None) -> LedgerHarness:
    return LedgerHarness(
        harness.engine, harness.made, harness.store, place=harness.place, horizon=horizon
    )


# Where the horizon is known


def test_redis_knows_the_horizon(harness: LedgerHarness, store: Store, client: redis.Redis) -> None:
    def known() -> int | None:
        return store.run(ledger_calls.read_ledger()).horizon

    assert known() is None
    harness.settle_down()
    assert known() == HOUR
    client.flushall()
    harness.settle_down()
    assert known() == HOUR
    with_horizon(harness, 7200.0).settle_down()
    assert known() == 2 * HOUR
    with_horizon(harness, None).settle_down()
    assert known() is None


def test_a_look_sends_the_horizon_only_if_redis_has_another(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    def calls() -> int:
        found = client.info("commandstats")
        return int(found["cmdstat_evalsha"]["calls"])

    relay = harness.relay()
    relay.bind()
    before = calls()
    relay.bind()
    assert calls() == before + 1
    client.hset("expirebridge:ledger", "horizon", "soon")
    relay.bind()
    assert client.hget("expirebridge:ledger", "horizon") == b"3600000"
    assert calls() == before + 3


async def test_listeners_with_different_horizons_are_found(
    with_ledger: Settings, store: Store
) -> None:
    def settings(horizon: float | None) -> Settings:
        return Settings(url=with_ledger.url, ledger=with_ledger.ledger, ledger_horizon=horizon)

    def found() -> str:
        finding = store.run(check_horizons(30))
        return "" if finding is None else f"{finding.level} {finding.message}"

    assert found() == ""
    async with listening(settings(None), Witness()):
        assert found() == ""
        async with listening(settings(HORIZON), Witness()):
            assert found().startswith(f"{Level.WARNING} the listeners of the ledger have different")
            assert "none (" in found()
            assert "1h (" in found()
    async with listening(settings(HORIZON), Witness()):
        assert found() == "ok rows due in more than 1h stay in SQL until then"
