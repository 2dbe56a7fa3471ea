"""What `handlers --fleet` prints: which code each listener runs, and what that code knows."""

from contextlib import closing
from typing import Any

from expirebridge.cli.output import print_json, print_line, printable
from expirebridge.cli.stats import store_of
from expirebridge.handlers.fleet import believed
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import Fleet


def print_fleet(settings: Settings, *, as_json: bool) -> None:
    """Print what the listeners that beat know, by their code. Raises a ServerError."""
    with closing(store_of(settings)) as store:
        fleet = store.run(commands.read_fleet(settings.lease))
    codes = _codes(fleet)
    if as_json:
        return print_json(codes)
    if not codes:
        return print_line("no listener beats")
    for code in codes:
        _print_code(code)
    return None


def _codes(fleet: Fleet) -> list[dict[str, Any]]:
    """Each code, and last, without functions, the listeners that do not say which they know."""
    known = believed(fleet)
    listeners: dict[str | None, list[str]] = {code: [] for code in sorted(known)}
    for listener in fleet.listeners:
        code = listener.fingerprint if listener.fingerprint in known else None
        listeners.setdefault(code, []).append(listener.name)
    return [
        {
            "fingerprint": code,
            "listeners": sorted(names),
            "functions": known[code] if code is not None else None,
        }
        for code, names in listeners.items()
    ]


def _print_code(code: dict[str, Any]) -> None:
    name = code["fingerprint"] or "not told (overwritten by another client)"
    print_line(f"{name}: {printable(', '.join(code['listeners']))}")
    for func, shape in (code["functions"] or {}).items():
        print_line(f"    {printable(func + shape)}")
