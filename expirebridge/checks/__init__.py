"""Checks a server and the work on it: what is wrong, what it means, how to fix it.

Each check is written once. A listener runs those of `check_server` before it starts, a probe runs
those of `check_health`, and the doctor runs all of them.
"""

from collections.abc import Iterable

from expirebridge.checks.cluster import check_cluster
from expirebridge.checks.finding import Finding, Level, error, warning
from expirebridge.checks.ledger import check_dirty
from expirebridge.checks.login import check_rights
from expirebridge.checks.partitions import check_misplaced, check_partitions, named
from expirebridge.checks.round_trip import check_round_trip
from expirebridge.checks.sentinels import check_failover, check_sentinels
from expirebridge.checks.server import (
    EVENT_FLAGS,
    check_buffers,
    check_clock,
    check_data,
    check_events,
    check_eviction,
    check_memory,
    check_persistence,
    check_role,
    check_version,
)
from expirebridge.checks.work import (
    check_format,
    check_functions,
    check_listeners,
    check_overdue,
    check_series,
    check_subscriptions,
)
from expirebridge.errors import (
    FormatTooNew,
    NotPermitted,
    ScriptFailed,
    ServerError,
    ServerReadOnly,
    ServerUnreachable,
    ServerUnsuitable,
)
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Steps
from expirebridge.store.partitions import Partitions
from expirebridge.store.rights import Role
from expirebridge.store.store import Database, Store
from expirebridge.topology import clients
from expirebridge.topology.cluster_clients import ClusterClient

__all__ = [
    "EVENT_FLAGS", "OVERDUE_LIMIT", "Finding", "Level", "check_health", "check_server",
    "events_are_on", "examine", "refuse_unsuitable",
]  # fmt: skip

OVERDUE_LIMIT = 30.0
"""Seconds that a due task may wait before it is reported."""


def check_server(database: Database, *, data: bool = True) -> Steps[list[Finding]]:
    """The checks that a listener makes before it starts, and while it runs.

    Without `data` the database's keys are not examined: this check is the most expensive for the
    server, at about a thousand commands. Raises ServerUnreachable if the server does not answer.
    """
    info = yield from calls.command("INFO")
    events = yield from check_events()
    findings = [check_version(info), check_role(info), events, check_eviction(info)]
    if _well(findings):
        findings.append((yield from check_rights(database, Role.LISTENER)))
    if data and _well(findings):
        findings.append((yield from check_data()))
    return findings


def refuse_unsuitable(findings: Iterable[Finding]) -> None:
    """Raise an error for the first finding that keeps a listener from working."""
    for finding in findings:
        if finding.level is Level.ERROR:
            kind = ServerReadOnly if finding.check == "role" else ServerUnsuitable
            raise kind(str(finding))


def events_are_on(findings: Iterable[Finding]) -> bool:
    """Whether the server sends the events that a listener needs, as far as the findings show."""
    return not any(
        finding.check == "events" and finding.level is Level.WARNING for finding in findings
    )


def check_health(
    database: Database, settings: Settings, *, limit: float = OVERDUE_LIMIT, here: bool = False
) -> Steps[list[Finding]]:
    """The checks of a probe: whether listeners are alive and subscribed, and start due tasks.

    `limit` is how many seconds a due task may wait. `here` requires a listener on this machine.
    `settings` are those with which the listeners were started.
    """
    health = yield from calls.read_health(settings.lease)
    findings = [check_listeners(health, here=here), check_overdue(health, limit)]
    if health.listeners:
        subscriptions = check_subscriptions(database, settings.doorbell, health, here=here)
        findings.append((yield from subscriptions))
    findings += yield from check_dirty(limit)
    return findings


def examine(store: Partitions | Store, settings: Settings, role: Role) -> list[Finding]:
    """Run all checks, for the doctor; `role` is what the login is for.

    A check that the login may not make, or that the server refuses, is a finding, too. Raises
    ServerUnreachable if the server does not answer, and ServerError if it refuses the login.
    """
    database = store.database
    # If this fails, all other checks would fail, too, unless the login just lacks a right.
    try:
        findings = store.run(_look_at_server())
    except NotPermitted:
        findings = [_not_looked_at("server")]
    if sentinels := clients.sentinels_of(settings.url):
        findings.append(check_sentinels(sentinels))
    if cluster := clients.cluster_of(settings.url):
        findings.append(check_cluster(cluster, settings.prefix))
    parts = [
        ("events", _listed(check_events())),
        ("buffers", _listed(check_buffers())),
        ("clock", _listed(check_clock())),
        ("rights", _listed(check_rights(database, role))),
        ("format", _listed(check_format(settings.lease))),
        ("work", check_health(database, settings)),
        ("functions", _listed(check_functions(settings.lease))),
        ("series", _if_any(check_series(settings.lease))),
        ("partitions", check_partitions(settings.lease)),
    ]
    if sentinels:
        parts.insert(0, ("failover", _listed(check_failover())))
    # Only a listener writes, and receives events, in the ways that these checks try.
    takes_writes = all(one.check != "role" or one.level is Level.OK for one in findings)
    listens = role is Role.LISTENER and takes_writes
    if listens:
        parts.append(("data", _listed(check_data())))
    for name, steps in parts:
        try:
            findings += _examine(store, name, steps)
        except FormatTooNew as failure:
            return [*findings, error("format", str(failure), "pip install --upgrade expirebridge")]
    if listens:
        findings.append(check_round_trip(store.client, database))
    if isinstance(store.client, ClusterClient) and store.database.layout.count > 1:
        findings += _at_all_nodes(store.client, database)
    return findings


def _at_all_nodes(client: ClusterClient, database: Database) -> list[Finding]:
    """What is wrong at the nodes that were not looked at yet; keys that are at the wrong one."""
    findings = list[Finding]()
    home = client.node_of(database.prefix)
    nodes = client.primaries()
    for node, one in nodes.items():
        if node != home:
            store = Store(one, prefix=database.prefix, partitions=database.partitions)
            for name, steps in (
                ("server", _look_at_server()),
                ("events", _listed(check_events())),
                ("buffers", _listed(check_buffers())),
                ("clock", _listed(check_clock())),
            ):
                try:
                    findings += named(_examine(store, name, steps), node)
                except ServerUnreachable as failure:
                    findings.append(error("nodes", str(failure), ""))
                    break
    return [*findings, check_misplaced(nodes, database.layout)]


def _examine(store: Partitions | Store, name: str, steps: Steps[list[Finding]]) -> list[Finding]:
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


def _look_at_server() -> Steps[list[Finding]]:
    info = yield from calls.command("INFO")
    return [
        check_version(info),
        check_role(info),
        check_eviction(info),
        check_memory(info),
        (yield from check_persistence(info)),
    ]


def _listed(steps: Steps[Finding]) -> Steps[list[Finding]]:
    return [(yield from steps)]


def _if_any(steps: Steps[Finding | None]) -> Steps[list[Finding]]:
    finding = yield from steps
    return [] if finding is None else [finding]


def _well(findings: Iterable[Finding]) -> bool:
    return all(finding.level is not Level.ERROR for finding in findings)
