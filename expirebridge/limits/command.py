"""Commands about limits."""

from dataclasses import asdict
from typing import Annotated

import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import (
    left_out_as_data,
    moment,
    print_json,
    print_line,
    print_table,
    warn_of,
)
from expirebridge.cli.tasks import report_change


def limits(
    lanes: Annotated[int, typer.Option(help="The most lanes to show: 1 to 1000.")] = 20,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Show the limits of the handlers, and the lanes in which most tasks are.

    A lane is one value of a limit. Tasks in a lane have a slot, or wait for one. The names of lanes
    contain arguments of tasks.

    Example: expirebridge limits

    Example: expirebridge limits --json | jq '.lanes[] | select(.waiting > 0) | .name'
    """
    with Bridge(url, prefix=prefix) as bridge:
        found = bridge.limits(lanes=lanes)
    if as_json:
        told = asdict(found)
        del told["left_out"]
        return print_json(told | left_out_as_data(found.left_out))
    warn_of(found.left_out)
    if not (found.limits or found.lanes):
        return print_line("no handler has a limit")
    print_table(
        ("limit", "numbers", "functions"),
        [(one.name, str(one), " ".join(one.functions)) for one in found.limits],
    )
    print_line()
    return print_table(
        ("lane", "taken", "of", "waiting", "oldest due"),
        [
            (
                lane.name, str(lane.held), str(lane.limit.most or "") if lane.limit else "",
                f"{lane.waiting:,}", moment(lane.oldest_due) or "",
            )
            for lane in found.lanes
        ],
    )  # fmt: skip


def let_pass(
    id: Annotated[str, typer.Argument(help="The id of the failed task.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Let the next tasks of an ordered limit go on, past a failed one that keeps its slot.

    Example: expirebridge let-pass 4f2b8c
    """
    with Bridge(url, prefix=prefix) as bridge:
        report_change(id, bridge.let_pass(id), as_json=as_json)


def weight(
    limit: Annotated[str, typer.Argument(help="The name of a fair limit.")],
    tenant: Annotated[str, typer.Argument(help="A value of its argument.")],
    weight: Annotated[float, typer.Argument(help="Turns for each one of the others.")],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Give a tenant of a fair limit more turns than others, or fewer.

    Example: expirebridge weight sms acme 3
    """
    with Bridge(url, prefix=prefix) as bridge:
        bridge.weight(limit, tenant, weight)
    if as_json:
        return print_json({"limit": limit, "tenant": tenant, "weight": weight})
    turns = f"{weight:g} turn{'' if weight == 1 else 's'}"
    return print_line(f"{tenant} has {turns} of {limit} for each one of the others")
