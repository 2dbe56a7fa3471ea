"""The rights that each role needs on the server: no more than it works with.

All that the scripts send counts, too: the server checks each command inside of a script as if the
login had sent it. If you change a script, change this table; a test drops every right in turn.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from expirebridge.errors import InvalidSetting
from expirebridge.task.partitions import PartitionLayout


class LoginRole(StrEnum):
    """The purpose of a login."""

    PRODUCER = "producer"  # makes, finds and steers tasks: with a Bridge, FCALL, EXPIRE, PTTL
    LISTENER = "listener"  # runs tasks, whose handlers may make others
    DASHBOARD = "dashboard"  # steers tasks and series, notes who did, and looks after listeners
    MOVER = "mover"  # moves tasks from one database to another, on either side


_SCRIPTS = "eval evalsha time hget hmget"
_LOOK = "get hgetall pexpiretime scard sscan zcard zcount zrange zrank zrevrange zscore"
_CHANGE = "del hdel hset publish set zadd zrem"
_MAKE = "sadd srem"
_GROUPS = "bitfield get hincrby"
_LANES = "exists hexists scard"
_EDIT = "rename"
_TIMERS = "exec expire expireat multi persist pexpire pexpireat pttl ttl"
_FUNCTIONS = "fcall fcall_ro"
_TALLY = "expire hincrby"
_STEER = "lpush lrange ltrim"
_PROBE = "pubsub|numsub zcount zrange zrangebyscore"
_SWEEP = "spop srandmember zrandmember zscan"
_LISTEN = (
    "hgetall info pexpiretime ping rename scan subscribe type unsubscribe zcard "
    "zremrangebyscore zrevrange zscore"
)
_MOVE = (
    "exists hexists hgetall pexpiretime rename scan scard type zcard zcount zrange zrangebyscore "
    "zremrangebyscore zrevrange zscore"
)
_COMMANDS = {
    LoginRole.PRODUCER: (
        f"{_SCRIPTS} {_LOOK} {_CHANGE} {_MAKE} {_LANES} {_GROUPS} {_EDIT} {_TIMERS} {_FUNCTIONS}"
    ),
    LoginRole.LISTENER: (
        f"{_SCRIPTS} {_LISTEN} {_CHANGE} {_MAKE} {_LANES} {_GROUPS} {_SWEEP} hlen {_PROBE} {_TALLY}"
    ),
    # It makes no tasks, but has series make and drop theirs, which may have tags.
    LoginRole.DASHBOARD: (
        f"{_SCRIPTS} {_LOOK} {_CHANGE} {_MAKE} {_LANES} {_GROUPS} {_EDIT} {_PROBE} {_STEER}"
    ),
    LoginRole.MOVER: f"{_SCRIPTS} {_MOVE} {_CHANGE} {_MAKE} {_SWEEP}",
}
_FEW_WORDS = [
    "cluster|info cluster|slots exec multi role time",
    "get hgetall hlen persist pexpiretime pttl scard select ttl type zcard",
    "hexists hget rename zrank zscore",
]
_WORDS = {name: words for words, names in enumerate(_FEW_WORDS) for name in names.split()}
"""How many words follow a command's name; three follow all others."""
STANDING = (LoginRole.PRODUCER, LoginRole.LISTENER, LoginRole.DASHBOARD)
"""The roles that a database needs every day; a mover, only while it is moved."""
_GLOB = re.compile(r"([*?\[\]\\])")


@dataclass(frozen=True, slots=True)
class Grant:
    """One right."""

    rule: str
    """A rule of `ACL SETUSER`: `+zadd`, `~expirebridge:*`."""
    proof: tuple[str, ...]
    """A harmless command that a login without it cannot send."""


def grants(
    role: LoginRole,
    *,
    prefix: str,
    database: int,
    partitions: int = 1,
    redis_6: bool = False,
    followed: bool = False,
    clustered: bool = False,
) -> list[Grant]:
    """The rights of a role, in one database under one prefix.

    With several partitions, their names begin with tags of three characters.

    `redis_6` is for Redis 6.2, which lacks functions, and PEXPIRETIME: PTTL is sent in its place.
    `followed` is for a server that may be another one tomorrow: it is asked for its ROLE.
    `clustered` is for a node of a cluster: it is asked who serves which slot.
    Raises InvalidSetting for a prefix that cannot be part of a rule.
    """
    if re.search(r"""[\s"']""", prefix):
        raise InvalidSetting(f"prefix={prefix!r}: a rule cannot hold spaces or quotes")
    # Without a tag, `meta` is there in any case.
    layouts = [PartitionLayout(prefix)]
    if partitions > 1:
        layouts.append(PartitionLayout(prefix, partitions))
    keys = [(key_rules(layout), layout.prefix_of(0)) for layout in layouts]
    found = [Grant(rules[0], ("hmget", name, "x")) for rules, name in keys]
    found += [Grant(rules[1], ("hmget", f"{name}:meta", "x")) for rules, name in keys]
    rules, prefix = keys[-1]
    found.append(Grant(rules[2], ("hmget", "id:?module.function?[]", "x")))
    doorbell = f"{prefix}:doorbell:{database}"
    found.append(Grant(f"&{rules[0][1:]}:doorbell:{database}", ("publish", doorbell, "0")))
    if role is LoginRole.LISTENER:
        events = f"__keyevent@{database}__:"
        found.append(Grant(f"&{events}*", ("publish", f"{events}expired", "0")))
    commands = set(_COMMANDS[role].split())
    if database:
        commands.add("select")
    if clustered:
        commands |= {"cluster|info", "cluster|slots"}
    if followed and (role is LoginRole.LISTENER or not clustered):
        commands.add("role")
    if redis_6:
        commands = commands - {"pexpiretime", *_FUNCTIONS.split()} | {"pttl"}
    return found + [Grant(f"+{name}", _proof(name, prefix, doorbell)) for name in sorted(commands)]


def _proof(name: str, prefix: str, doorbell: str) -> tuple[str, ...]:
    """A harmless command of this name."""
    if name in {"eval", "evalsha", "fcall", "fcall_ro"}:
        return (name, "", "1", prefix)
    if name == "publish":
        return (name, doorbell, "0")
    if name == "subscribe":
        return (name, doorbell)
    # Which words of a command are keys differs: here all are a key that is granted. There must be
    # as many as the command takes: a patched Redis 8.0 refuses any other number with an error, and
    # others have crashed on looking for the rest.
    return (*name.split("|"), *[prefix] * _WORDS.get(name, 3))


def key_rules(layout: PartitionLayout) -> list[str]:
    """The patterns of the keys of every partition: the prefix alone, other keys, trigger keys.

    The prefix alone is the first key of every script.
    """
    begin = _escaped(layout.prefix)
    if layout.count > 1:
        begin = f"{{{'?' * len(layout.tag_of(0))}}}{begin}"
    return [f"~{begin}", f"~{begin}:*", r"~*:\?*\?*"]


def line(
    role: LoginRole,
    *,
    prefix: str,
    database: int,
    partitions: int = 1,
    conf: bool,
    redis_6: bool,
    followed: bool = False,
    clustered: bool = False,
) -> str:
    """A role's line: a command for redis-cli, or a line of redis.conf and of an ACL file."""
    wanted = grants(
        role, prefix=prefix, database=database, partitions=partitions, redis_6=redis_6,
        followed=followed, clustered=clustered,
    )  # fmt: skip
    rules = " ".join(grant.rule for grant in wanted)
    user = f"{prefix}-{role}"
    # Redis 6.2 lets a new user into every channel.
    opening = f"user {user}" if conf else f"ACL SETUSER {user} reset"
    return f"{opening} on >PASSWORD resetchannels {rules}"


def _escaped(name: str) -> str:
    return _GLOB.sub(r"\\\1", name)
