"""The command `reseal`: seals with a new key what was sealed with an old one."""

from contextlib import closing

import typer

from expirebridge.checks.finding import first_of
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import print_json, print_line
from expirebridge.cli.stats import store_of
from expirebridge.cli.tasks import not_possible
from expirebridge.errors import InvalidSetting
from expirebridge.sealing.resealing import Resealed
from expirebridge.sealing.resealing import reseal as reseal_once
from expirebridge.settings import Settings
from expirebridge.task.calls.fleet import Fleet, read_fleet
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.texts import plural

MOST_WALKS = 10
"""Walks of one call: after that, programs go on sealing with an old key."""


def reseal(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Seal with the first key of EXPIREBRIDGE_KEYS what is sealed with another of them.

    Walks over all tasks and series until nothing is left to do. Each is changed only if it is still
    what was read, so tasks may be made and run meanwhile, and you can interrupt and repeat it.
    Seals nothing, and exits with 3, while a running listener has other keys, but not this one: it
    could not open what is sealed with it. Exits with 3, too, if something is sealed with a key that
    EXPIREBRIDGE_KEYS lacks, or if programs go on sealing with an old one.

    Example: expirebridge reseal
    """
    settings = Settings.read(url=url, prefix=prefix)
    walks: list[Resealed] = []
    with closing(store_of(settings)) as store:
        key_ring = settings.key_ring
        if key_ring is None:
            raise InvalidSetting("EXPIREBRIDGE_KEYS: give the new key first, then the old ones")
        if without := _without_key(store.run(read_fleet(settings.lease)), key_ring):
            not_possible(
                f"{plural(len(without), 'running listener lacks', 'running listeners lack')} key "
                f"{key_ring.first} as it is here: {first_of(without)}; give it to "
                "them first (EXPIREBRIDGE_KEYS), and restart them"
            )
        while not walks or (walks[-1].is_to_repeat and len(walks) < MOST_WALKS):
            walks.append(store.run(reseal_once(key_ring)))
    done, total = walks[-1], sum(walk.resealed for walk in walks)
    if as_json:
        print_json(
            {
                "key": key_ring.first,
                "examined": done.examined,
                "resealed": total,
                "not_opened": done.not_opened,
                "complete": not done.is_to_repeat,
            }
        )
    else:
        _print(done, total, key_ring.first)
    if done.not_opened or done.is_to_repeat:
        raise typer.Exit(NOT_POSSIBLE)


def _without_key(fleet: Fleet, key_ring: KeyRing) -> list[str]:
    """The listeners that open what is sealed, but not with the first key."""
    return [one.name for one in fleet.listeners if one.keys and key_ring.checks[0] not in one.keys]


def _print(done: Resealed, total: int, key: str) -> None:
    print_line(f"examined {done.examined:,}   sealed with key {key} {total:,}")
    if done.is_to_repeat:
        print_line("- old keys sealed more meanwhile: once no producer does, run this again")
    for name, count in sorted(done.not_opened.items()):
        print_line(f"- {count:,} sealed with key {name}, which EXPIREBRIDGE_KEYS lacks or differs")
