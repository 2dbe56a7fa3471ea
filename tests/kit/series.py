"""Series at the level of the store: their definitions, and ticks at chosen times."""

from expirebridge.store.client import Store
from expirebridge.store.commands import series as series_commands
from expirebridge.store.commands.call import Argument
from expirebridge.store.commands.series import NewSeries, NextTick, Put, Putting, Retimed, Times

LEASE = 10.0
ANY = "every 1h"


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
    [done] = store.run(series_commands.put_series([Putting(new, before, 0, times)]))
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
