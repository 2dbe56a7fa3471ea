"""The doctor: all checks, of every server of a database."""

from collections.abc import Callable
from typing import Any

from expirebridge.checks.capability_checks import checks_on, servers_checks
from expirebridge.checks.finding import (
    Check,
    Finding,
    Level,
    Occasion,
    ServersCheck,
    error,
    listed,
    warning,
)
from expirebridge.checks.foreign_data import check_data, check_others_data, check_overwritten
from expirebridge.checks.health import MAX_OVERDUE, check_health
from expirebridge.checks.nodes import CheckedServer, CheckedServers
from expirebridge.checks.server import (
    check_buffers,
    check_clock,
    check_events,
    check_eviction,
    check_memory,
    check_persistence,
    check_rights,
    check_role,
    check_round_trip,
    check_version,
)
from expirebridge.checks.topology import (
    check_cluster,
    check_coverage,
    check_failover,
    check_isolation,
    check_misplaced,
    check_partitions,
    check_sentinels,
)
from expirebridge.connection import several_servers
from expirebridge.errors import (
    FormatTooNew,
    NotPermitted,
    ScriptFailed,
    ServerError,
    ServerUnreachable,
)
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Database, Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import partitions
from expirebridge.task.calls.call import Steps, command


def examine(store: Partitions | Store, settings: Settings, role: LoginRole) -> list[Finding]:
    """Run all checks, for the doctor; `role` is what the login is for.

    A check that the login may not make, or that the server refuses, is a finding, too, and so is a
    node of a cluster that does not answer, if another one does. Raises ServerUnreachable if the
    server does not answer, and ServerError if it refuses the login.
    """
    return _Doctor(store, settings, role).examine()


def check_rights_everywhere(store: Partitions | Store, role: LoginRole) -> list[Finding]:
    """Check whether the login has the rights of a role, on every server that has a partition.

    Raises ServerUnreachable if none answers, and NotPermitted if it may not even be asked.
    """
    store.run(partitions.read_partitions())
    return CheckedServers(store).look(lambda node: _rights_at(node, store.database, role))


class _Doctor:
    """Examines a database."""

    def __init__(self, store: Partitions | Store, settings: Settings, role: LoginRole) -> None:
        self._store = store
        self._settings = settings
        self._role = role
        self._nodes = CheckedServers(store)
        self._database = store.database

    def examine(self) -> list[Finding]:
        """Run all checks."""
        # If this fails, all other checks would fail, too, unless the login just lacks a right.
        findings = self._nodes.look(_look_at_server)
        findings += self._of_topology()
        # Only a listener writes, and receives events, in the ways that some checks try.
        takes_writes = all(one.check != "role" or one.level is Level.OK for one in findings)
        listens = self._role is LoginRole.LISTENER and takes_writes
        findings += self._of_servers()
        try:
            findings += self._of_work()
            if listens:
                findings += self._of_data()
        except FormatTooNew as failure:
            return [*findings, error("format", str(failure), "pip install --upgrade expirebridge")]
        if listens:
            findings += self._nodes.look(_look_at_round_trip)
        for one in servers_checks(self._settings, MAX_OVERDUE):
            findings += self._compared(one)
        if self._nodes.are_several:
            asked = {node.name: node.client for node in self._nodes.answering}
            findings.append(check_misplaced(asked, self._database.layout))
        return findings + self._nodes.missing()

    def _of_topology(self) -> list[Finding]:
        url, layout = self._settings.url, self._database.layout
        if sentinels := several_servers.sentinels_of(url):
            return [check_sentinels(sentinels), *self._everywhere("failover", check_failover)]
        if cluster := several_servers.cluster_of(url):
            return [
                check_cluster(cluster, layout),
                *self._everywhere("coverage", check_coverage),
                *self._everywhere("failover", check_isolation),
            ]
        return []

    def _of_servers(self) -> list[Finding]:
        return [
            *self._everywhere("events", check_events),
            *self._everywhere("buffers", check_buffers),
            *self._everywhere("clock", check_clock),
            *self._nodes.look(lambda node: _rights_at(node, self._database, self._role)),
        ]

    def _of_work(self) -> list[Finding]:
        lease = self._settings.lease
        parts = [
            Check(order=10, name="work", look=check_health(self._database, self._settings)),
            Check(order=80, name="partitions", look=check_partitions(lease)),
            *checks_on(Occasion.DOCTOR, self._settings, MAX_OVERDUE),
        ]
        found = list[Finding]()
        for one in sorted(parts, key=lambda part: part.order):
            try:
                found += _examined(self._store, one.name, one.look)
            except ServerUnreachable as failure:
                if not self._nodes.are_several:
                    raise
                found.append(error(one.name, str(failure), ""))
        return found

    def _of_data(self) -> list[Finding]:
        layout = self._store.database.layout
        if found := _examined(self._store, "data", check_overwritten(layout)):
            return found
        if layout.count == 1:
            return self._everywhere("data", check_data)
        return self._everywhere("data", lambda: check_others_data(layout))

    def _compared(self, check: ServersCheck) -> list[Finding]:
        """Ask each server, and compare the answers, unless the login may not ask."""
        found = dict[str, Any]()
        for name, client in several_servers.primaries_of(self._store.client).items():
            if name in self._nodes.silent:
                continue
            try:
                store = Store(client, prefix=self._database.prefix)
                found[name] = store.run(check.ask())
            except NotPermitted:
                return []
            except ServerUnreachable as failure:
                self._nodes.silent[name] = failure
        return check.compare(found)

    def _everywhere(self, name: str, check: Callable[[], Steps[Finding]]) -> list[Finding]:
        """The findings of a check that is made at each server."""
        return self._nodes.look(lambda node: _examined(node.store, name, listed(check())))


def _look_at_server(node: CheckedServer) -> list[Finding]:
    return _examined(node.store, "server", _server())


def _rights_at(node: CheckedServer, database: Database, role: LoginRole) -> list[Finding]:
    if not node.prefixes:
        return []
    return _examined(node.store, "rights", listed(check_rights(database, role)))


def _look_at_round_trip(node: CheckedServer) -> list[Finding]:
    return [check_round_trip(node.client, node.store.database)] if node.prefixes else []


def _server() -> Steps[list[Finding]]:
    info = yield from command("INFO")
    return [
        check_version(info),
        check_role(info),
        check_eviction(info),
        check_memory(info),
        (yield from check_persistence(info)),
    ]


def _examined(store: Partitions | Store, name: str, steps: Steps[list[Finding]]) -> list[Finding]:
    """The findings of one part, or a finding that says why there are none."""
    try:
        return store.run(steps)
    except (FormatTooNew, ServerUnreachable):
        raise
    except NotPermitted:
        return [_not_looked_at(name)]
    except ScriptFailed as failure:
        return [error(name, str(failure), "look at what other clients wrote there")]
    except ServerError as failure:
        return [error(name, str(failure), "")]


def _not_looked_at(name: str) -> Finding:
    return warning(
        name,
        "not looked at: the login may not",
        "expirebridge doctor --url redis://ADMIN:PASSWORD@HOST:PORT/DB",
    )
