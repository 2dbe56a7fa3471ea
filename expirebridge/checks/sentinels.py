"""The checks of a database whose server sentinels name."""

from typing import Any

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.connection.sentinels import Sentinels, leader_of
from expirebridge.store import commands
from expirebridge.store.commands import Steps


def check_sentinels(sentinels: Sentinels) -> Finding:
    """Which sentinels answer what. It asks each of them, and raises nothing."""
    answers = list(sentinels.answers())
    leader, votes = leader_of(answers)
    agreed = f"{votes} of {len(answers)} sentinels name {leader}"
    others = "; ".join(str(answer) for answer in answers if answer.primary != leader)
    if leader is None or 2 * votes <= len(answers):
        return error(
            "sentinels",
            f"no majority of the sentinels agrees on the primary: {'; '.join(map(str, answers))}",
            "start the sentinels that are down; the known primary stays until most agree",
        )
    if votes < len(answers):
        return warning(
            "sentinels",
            f"{agreed}, but {others}",
            "look at those: with fewer, no failover is possible",
        )
    return ok("sentinels", agreed)


def check_failover() -> Steps[Finding]:
    """Whether a replica could take over, and whether the primary that it replaces takes writes."""
    info: dict[str, Any] = yield from commands.command("INFO", "replication")
    replicas = int(info.get("connected_slaves", 0))
    if not replicas:
        return warning(
            "failover",
            "the primary has no replica: if it dies, nothing takes over",
            "start a replica: REPLICAOF HOST PORT",
        )
    if "min_slaves_good_slaves" not in info:
        return warning(
            "failover",
            "min-replicas-to-write is 0: a primary that is replaced takes writes until it "
            "learns of that, and they are lost",
            "CONFIG SET min-replicas-to-write 1  (on each server; needs two replicas, or the loss "
            "of one stops all writes)",
        )
    return ok("failover", "a primary without replicas takes no writes: min-replicas-to-write")
