"""Loads the functions into the server of a URL, or each primary of its cluster."""

import logging
from contextlib import closing
from dataclasses import dataclass

from expirebridge.connection import clients, several_servers
from expirebridge.errors import ServerError
from expirebridge.foreign import function_library
from expirebridge.foreign.function_library import Loading, LoadResult
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of the request at one server."""

    node: str
    """The address of a node; "" if the URL names no cluster."""
    result: Loading | ServerError

    @property
    def summary(self) -> str:
        """The result or the failure, as a sentence."""
        told = str(self.result) if isinstance(self.result, ServerError) else summary(self.result)
        return f"{self.node}: {told}" if self.node else told


def load_into(url: str | None, *, replace: bool = False) -> list[Loaded]:
    """Load the functions into the server of the URL, or each primary of its cluster.

    Raises a ServerError if the server failed or refused it; of a cluster, if all primaries did.
    """
    settings = Settings.read(url=url)
    with closing(clients.probe_client(settings.url, settings.prefix)) as client:
        loaded = [
            Loaded(node, _load_at(Store(one, prefix=settings.prefix), replace=replace))
            for node, one in several_servers.primaries_of(client).items()
        ]
    faults = [each.result for each in loaded if isinstance(each.result, ServerError)]
    if len(faults) == len(loaded):
        raise faults[0]
    return loaded


def _load_at(store: Store, *, replace: bool) -> Loading | ServerError:
    try:
        return store.run(function_library.load(replace=replace))
    except ServerError as error:
        return error


def summary(loading: Loading) -> str:
    """The result as a sentence."""
    mine = function_library.version()
    match loading.result:
        case LoadResult.LOADED | LoadResult.SAME:
            return f"the functions of expirebridge {mine}: {loading.result}"
        case LoadResult.REPLACED:
            return (
                f"the functions of expirebridge {mine}: loaded in place of version {loading.before}"
            )
        case LoadResult.SCRIPTS:
            return (
                "this server has no functions (Redis 7 and later do): scripts are loaded instead, "
                "until it restarts; expirebridge functions scripts lists them"
            )
        case LoadResult.NEWER:
            return (
                f"the server has the functions of expirebridge {loading.before}, this is {mine}: "
                f"{loading.result}"
            )


def is_newer(result: Loading | ServerError) -> bool:
    """True if the functions of a newer version were left in place."""
    return isinstance(result, Loading) and result.result is LoadResult.NEWER


def load_at_start(settings: Settings) -> None:
    """Load them into the servers of a listener that starts, and log the result for each.

    Raises a ServerError as `load_into`.
    """
    for each in load_into(settings.url):
        result, node = each.result, {"node": each.node} if each.node else {}
        if isinstance(result, ServerError):
            fields = event("functions", outcome="failed", error=str(result), **node)
        else:
            fields = event("functions", outcome=result.result, before=result.before, **node)
        failed = isinstance(result, ServerError) or is_newer(result)
        logger.log(logging.WARNING if failed else logging.INFO, "%s", each.summary, extra=fields)
