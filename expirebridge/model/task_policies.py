"""What `make_task` and `@every` both accept: tags and policies, as a record holds them."""

from collections.abc import Sequence

from expirebridge.model.durations import Duration
from expirebridge.model.keys import check_tags
from expirebridge.model.misfire import MisfireSpec, misfire_policy_of
from expirebridge.model.policies import RetrySpec, policy_of
from expirebridge.model.timeout import check_timeout


def policy_fields(
    *,
    tags: Sequence[str] = (),
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
) -> dict[str, str | float]:
    """Return the fields of a record for these arguments of `make_task`: only those that were given.

    Raises InvalidTask for values that cannot be.
    """
    fields: dict[str, str | float] = {}
    if tags == () and retry is timeout is late_after is misfire is None:
        return fields  # nearly always, and each task of many comes here
    if legal_tags := check_tags(tags):
        fields["tags"] = " ".join(legal_tags)
    if (policy := policy_of(retry)) is not None:
        fields["retry"] = policy.encode().decode()
    if (seconds := check_timeout(timeout)) is not None:
        fields["timeout"] = seconds
    if (late := misfire_policy_of(late_after, misfire)) is not None:
        fields["misfire"] = late.encode().decode()
    return fields
