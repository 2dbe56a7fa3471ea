"""Series at the level of the store: their definitions, and ticks at chosen times."""

import redis

from expirebridge.series import calls as series_commands
from expirebridge.series.calls import NewSeries, NextTick, Put, Putting, Retimed, Times
from expirebridge.store.client import Store
from expirebridge.task.calls.call import Argument
from tests.kit.steps import server_ms

LEASE = 10.0
ANY = "every 1h"
HOUR = 3_600_000


def series(
    id: str = "s",
    *,
    call: str = "mail.send?[1]",
    spec: str = ANY,
    overlap: str = "skip",
    fingerprint: str = "f1",
    declared: bool = False,
    **policies: str,
) -> NewSeries:
    fields: dict[str, Argument] = {"call": call, "spec": spec, "overlap": overlap}
    return NewSeries(id=id, fingerprint=fingerprint, declared=declared, fields=fields | policies)


def put(
    store: Store,
    new: NewSeries,
    tick: int | None,
    *,
    before: str = "",
    successor: int | None = None,
    jitter: int = 0,
    tzdata: str = "",
) -> Put:
    """Put one series, whose next tick stands for that ms."""
    times = Times(tick, tick + jitter, successor, tzdata) if tick is not None else None
    [done] = store.run(series_commands.put_series([Putting(new, before.encode(), 0, times)]))
    return done


def follow(
    store: Store, id: str, latest: int, tick: int | None, *, successor: int | None = None
) -> bool:
    """Make the tick after the latest one."""
    times = Times(tick, tick, successor) if tick is not None else None
    [made] = store.run(series_commands.make_ticks([NextTick(id, latest, times)]))
    return made


def retime(store: Store, id: str, latest: int, tick: int, *, tzdata: str = "2026b 0") -> Retimed:
    """Move the waiting tick to where later data of its zone put it."""
    items = [NextTick(id, latest, Times(tick, tick, None, tzdata))]
    [done] = store.run(series_commands.retime_ticks(items))
    return done


def due_series(
    store: Store, client: redis.Redis, *, successor_in: int = HOUR, overlap: str = "skip"
) -> int:
    """A series whose waiting tick is due now; the one after it is due in so many ms."""
    while True:
        soon = server_ms(client) + 30
        made = put(store, series(overlap=overlap), soon, successor=soon + successor_in)
        if made is not Put.LATE:  # on a busy machine that moment may pass before
            break
    assert made is Put.CREATED
    wait_until(client, soon)
    return soon


def wait_until(client: redis.Redis, ms: int) -> None:
    """Let the server's clock come to that ms: it alone decides what is due."""
    while server_ms(client) <= ms:
        pass


# The tick is an ordinary task
