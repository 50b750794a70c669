"""What tenants may use, told from their declarations as they stood over the last while: whoever admits may know them late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from homeostat.gpu.kinds import WHOLE, milli

PLENTY = 10**9


class Right(msgspec.Struct, frozen=True):
    """What a tenant may use, in thousandths of a GPU."""

    nominal: int
    most: int
    """With all that it may borrow."""
    lends: int
    cohort: str


def right_of(tenant: Mapping[str, Any]) -> Right:
    """By its declaration; there is one type of GPU here."""
    spec = tenant["spec"]
    quota = next(iter(spec.get("quotas") or ()), {"nominal": 0})
    nominal, cohort = milli(quota["nominal"]), spec.get("cohort") or ""
    borrows = PLENTY if quota.get("borrowingLimit") is None else milli(quota["borrowingLimit"])
    lends = PLENTY if quota.get("lendingLimit") is None else milli(quota["lendingLimit"])
    return Right(nominal, nominal + (borrows if cohort else 0), min(lends, nominal) if cohort else 0, cohort)


def widest(rights: Iterable[Right]) -> Right:
    """The widest that any of these allows."""
    some = list(rights)
    return Right(
        max(one.nominal for one in some),
        max(one.most for one in some),
        max(one.lends for one in some),
        some[-1].cohort,
    )


def beyond(tenant: str, used: Mapping[str, int], rights: Mapping[str, Right]) -> str:
    """Why a tenant uses more than it may, in words; empty where it does not."""
    mine = rights.get(tenant)
    if mine is None:
        return f"{tenant} is not declared"
    if used.get(tenant, 0) > mine.most:
        return f"{tenant} uses {used[tenant] / WHOLE:g} of the {mine.most / WHOLE:g} that it may"
    cohort = {name: right for name, right in rights.items() if right.cohort and right.cohort == mine.cohort}
    drawn = sum(max(used.get(name, 0) - (right.nominal - right.lends), 0) for name, right in cohort.items())
    has = sum(right.lends for right in cohort.values())
    if used.get(tenant, 0) > mine.nominal and drawn > has:
        return f"the cohort of {tenant} lends {drawn / WHOLE:g} of the {has / WHOLE:g} that it has"
    return ""
