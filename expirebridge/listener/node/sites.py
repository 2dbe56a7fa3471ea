"""Which site a listener's URL and prefix ask for."""

from expirebridge.hooks import Hooks
from expirebridge.listener.node.cluster_nodes import ClusterNodes
from expirebridge.listener.node.one_server import OneServer
from expirebridge.listener.node.site import Site
from expirebridge.listener.runner.runner import Runner
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.topology import clients
from expirebridge.wire import slot_of


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
