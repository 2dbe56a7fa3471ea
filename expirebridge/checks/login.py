"""The check of the login's rights."""

from expirebridge.checks.finding import Finding, error, ok
from expirebridge.errors import NotPermitted
from expirebridge.store import commands
from expirebridge.store.acl import Role, grants, key_rules
from expirebridge.store.client import Database
from expirebridge.store.commands import Steps
from expirebridge.store.errors import is_about_keys


def check_rights(database: Database, role: Role) -> Steps[Finding]:
    """Whether the logged-in user has every right that the role needs.

    A missing right may show only later, and do harm: a script treats a key that it may not read as
    a key that does not exist.
    """
    login = database.login
    wanted = grants(
        role, prefix=database.layout.prefix, database=database.number,
        partitions=database.partitions, followed=database.followed, clustered=database.clustered,
    )  # fmt: skip
    try:
        refused = yield from commands.find_refused(grant.proof for grant in wanted)
    except NotPermitted as refusal:
        if is_about_keys(refusal):
            rule, *_ = key_rules(database.layout)
            return error(
                "rights",
                f"the user {login!r} lacks a right of a {role}, without which it can run no "
                f"script: {rule}",
                f"ACL SETUSER {login} {rule}",
            )
        return error(
            "rights",
            f"the user {login!r} may not even run scripts: {refusal}",
            f"give it the rights that this command prints: expirebridge acl {role}",
        )
    if refused is None:
        return ok("rights", f"Redis before 7 does not report what the user {login!r} may do")
    missing = yield from _without_consequences([wanted[place].rule for place in refused], database)
    if missing:
        rules = " ".join(missing)
        return error(
            "rights",
            f"the user {login!r} lacks rights of a {role}: {rules}",
            f"ACL SETUSER {login} {rules}",
        )
    return ok("rights", f"the user {login!r} has the rights of a {role}")


def _without_consequences(missing: list[str], database: Database) -> Steps[list[str]]:
    """The missing rights, without those that were refused only because another one is missing.

    A user who may use all keys, or all channels, cannot be granted a single one. So a right that
    cannot be judged until another one is granted is left to the next run.
    """
    if "+hmget" in missing:
        missing = [rule for rule in missing if not rule.startswith("~")]
    if "+publish" in missing:
        if (yield from _is_refused_itself("PUBLISH", database.doorbell_channel, "0")):
            missing = [rule for rule in missing if not rule.startswith("&")]
        else:
            missing.remove("+publish")
    return missing


def _is_refused_itself(*command: str) -> Steps[bool]:
    """Whether the command itself is refused, not the keys or channels that it uses."""
    try:
        yield from commands.command(*command)
    except NotPermitted as refusal:
        return "permissions to run" in str(refusal)
    return False
