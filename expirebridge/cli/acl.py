"""The command acl: the rights that a login needs."""

from contextlib import closing
from typing import Annotated

import typer

from expirebridge.cli.options import (
    Prefix,
    Url,
)
from expirebridge.cli.output import print_line
from expirebridge.cli.stats import probe_store_of
from expirebridge.settings import Settings
from expirebridge.store.acl import STANDING, LoginRole, line
from expirebridge.task.keys import hash_tag_of
from expirebridge.task.partitions import MAX_PARTITIONS


def acl(
    role: Annotated[
        LoginRole | None,
        typer.Argument(help="What the login is for; if not given, the first three."),
    ] = None,
    conf: Annotated[
        bool, typer.Option("--conf", help="Print lines for redis.conf or an ACL file.")
    ] = False,
    redis_6: Annotated[bool, typer.Option("--redis-6", help="For Redis 6.2.")] = False,
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions",
            help="For a database with several partitions, as in a cluster in any case.",
        ),
    ] = False,
    url: Url = None,
    prefix: Prefix = None,
) -> None:
    """Print ACL lines with the fewest rights that each role needs.

    Producers make, find and change tasks; listeners run them; a dashboard finds and changes them;
    a mover moves them to another database, and needs these rights there, too.
    This connects to no server: only the database is taken from the URL. Replace PASSWORD.

    Example: expirebridge acl listener | sed s/PASSWORD/$SECRET/ | redis-cli
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(probe_store_of(settings)) as store:
        database = store.database
    spread = database.clustered and not hash_tag_of(settings.prefix)
    for one in [role] if role else STANDING:
        print_line(
            line(
                one,
                prefix=settings.prefix,
                database=database.number,
                partitions=MAX_PARTITIONS if partitions or spread else 1,
                conf=conf,
                redis_6=redis_6,
                followed=database.followed,
                clustered=database.clustered,
            )
        )
