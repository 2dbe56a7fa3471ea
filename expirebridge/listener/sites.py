"""Which site a listener's URL and prefix ask for."""

from expirebridge.connection import clients
from expirebridge.hooks import Hooks
from expirebridge.listener.execution.executor import Runner
from expirebridge.listener.server.cluster_servers import ClusterNodes
from expirebridge.listener.server.servers import Site
from expirebridge.listener.server.single_server import OneServer
from expirebridge.listener.watchdog import Watchdog
from expirebridge.model.keys import slot_of
from expirebridge.settings import Settings


def site_of(
    settings: Settings, *, name: str, runner: Runner, watchdog: Watchdog, hooks: Hooks
) -> Site:
    """Several nodes for a cluster, unless the prefix has a tag, and so one slot; else one server.

    Raises InvalidSetting for a URL that cannot be used.
    """
    cluster = clients.cluster_of(settings.url)
    if cluster is None or slot_of(settings.prefix):
        return OneServer(
            settings, [settings.prefix], name=name, runner=runner, watchdog=watchdog, hooks=hooks
        )
    return ClusterNodes(cluster, settings, name=name, runner=runner, watchdog=watchdog, hooks=hooks)
