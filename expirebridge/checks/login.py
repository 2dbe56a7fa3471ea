"""The check of what the login may do."""

from expirebridge.checks.finding import Finding, Steps, error, ok
from expirebridge.errors import NotPermitted
from expirebridge.store import calls
from expirebridge.store.rights import Role, grants
from expirebridge.store.store import Database


def check_rights(database: Database, role: Role) -> Steps[Finding]:
    """Whether the user that is logged in has every right of the role.

    A missing one may show late and badly: a script then takes what it may not read for nothing.
    """
    login = database.login
    wanted = grants(role, prefix=database.prefix, database=database.number)
    try:
        refused = yield from calls.find_refused(grant.proof for grant in wanted)
    except NotPermitted as refusal:
        return error(
            "rights",
            f"the user {login!r} may not even run scripts: {refusal}",
            f"give it the rights that this prints: expirebridge acl {role}",
        )
    if refused is None:
        return ok("rights", f"Redis before 7 does not tell what the user {login!r} may do")
    missing = yield from _told_apart([wanted[place].rule for place in refused], database)
    if missing:
        rules = " ".join(missing)
        return error(
            "rights",
            f"the user {login!r} lacks rights of a {role}: {rules}",
            f"ACL SETUSER {login} {rules}",
        )
    return ok("rights", f"the user {login!r} has the rights of a {role}")


def _told_apart(missing: list[str], database: Database) -> Steps[list[str]]:
    """What is missing, without what was refused only because of something else.

    A user who may use all keys, or all channels, cannot be granted one. So what cannot be told
    before something else is granted is left to the next look.
    """
    if "+hmget" in missing:
        missing = [rule for rule in missing if not rule.startswith("~")]
    if "+publish" in missing:
        if (yield from _is_refused_itself("PUBLISH", database.doorbell, "0")):
            missing = [rule for rule in missing if not rule.startswith("&")]
        else:
            missing.remove("+publish")
    return missing


def _is_refused_itself(*command: str) -> Steps[bool]:
    """Whether it is the command that is refused, not what it is to be done to."""
    try:
        yield from calls.command(*command)
    except NotPermitted as refusal:
        return "permissions to run" in str(refusal)
    return False
