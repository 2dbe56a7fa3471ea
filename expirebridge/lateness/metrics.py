"""Answers `GET /scale` on the port of the metrics, for autoscalers."""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qsl

import orjson

from expirebridge.bridge import Operations
from expirebridge.connection import clients
from expirebridge.errors import InvalidTask, ServerError
from expirebridge.hooks import Hooks
from expirebridge.lateness.scaling import AHEAD, MOST_PLACES, WITHIN, read_scale
from expirebridge.observe.capability_metrics import CapabilityMetrics, WsgiApp
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.durations import seconds_of

PATH = "/scale"
_DEFAULTS = {"ahead": f"{AHEAD:g}", "within": f"{WITHIN:g}", "concurrency": ""}


def with_scale(metrics: WsgiApp, settings: Settings) -> WsgiApp:
    """The application that answers `/scale` itself, and leaves all else to that of the metrics."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            return metrics(environ, start_response)
        try:
            found = _ask(settings, environ.get("QUERY_STRING", ""))
        except InvalidTask as error:
            return _reply(start_response, "400 Bad Request", {"error": str(error)})
        except ServerError as error:
            return _reply(start_response, "503 Service Unavailable", {"error": str(error)})
        return _reply(start_response, "200 OK", found)

    return answer


def _ask(settings: Settings, query: str) -> dict[str, Any]:
    values = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := values.keys() - _DEFAULTS.keys():
        raise InvalidTask(f"{min(unknown)}: ask for {', '.join(_DEFAULTS)}")
    values = _DEFAULTS | values
    concurrency = values["concurrency"] or str(settings.concurrency)
    if not concurrency.isdecimal() or len(concurrency) > len(str(MOST_PLACES)):
        raise InvalidTask(f"concurrency: it must be a whole number, 1 to {MOST_PLACES:,}")
    asked = read_scale(
        Operations(settings, Hooks()),
        concurrency=int(concurrency),
        ahead=_seconds(values, "ahead"),
        within=_seconds(values, "within"),
    )
    with closing(
        Partitions(clients.probe_client(settings.url, settings.prefix), prefix=settings.prefix)
    ) as store:
        found = store.run(asked)
        left_out = [asdict(one) for one in store.left_out]
    return asdict(found) | ({"left_out": left_out} if left_out else {})


def _seconds(values: dict[str, str], name: str) -> float:
    """A duration as text, or a number of seconds, which a query has as text, too."""
    given = values[name]
    is_number = given.replace(".", "", 1).isdecimal()
    return seconds_of(float(given) if is_number else given, name=name)


def _reply(
    start_response: Callable[..., Any], status: str, body: dict[str, Any]
) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
    return [orjson.dumps(body) + b"\n"]


METRICS = CapabilityMetrics(serve=with_scale)
