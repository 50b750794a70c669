"""Built-in kinds by group and name, and objects as the server would judge them."""

from __future__ import annotations

from copy import deepcopy

import pytest

from homeostat.api.builtin import resources


@pytest.fixture(scope="session")
def kinds():
    return {(r.group, r.kind): r for r in resources()}


@pytest.fixture(scope="session")
def rules(kinds):
    return lambda kind, group="": kinds[group, kind].rules


@pytest.fixture(scope="session")
def created(rules):
    """The object after defaulting and preparation, as it would be validated."""

    def create(kind, group="", **fields):
        obj = deepcopy({"metadata": {"name": "x", "namespace": "default", "uid": "u"}, **fields})
        rules(kind, group).default(obj)
        rules(kind, group).prepare_create(obj)
        return obj

    return create


@pytest.fixture(scope="session")
def refusals(rules, created):
    return lambda kind, group="", **fields: [
        str(e) for e in rules(kind, group).validate(created(kind, group, **fields))
    ]


@pytest.fixture(scope="session")
def update_refusals(rules):
    """What is said when `change` is made to `old`."""

    def update(kind, group, old, change):
        new = deepcopy(old)
        change(new)
        rules(kind, group).default(new)
        rules(kind, group).prepare_update(new, old)
        return [str(e) for e in rules(kind, group).validate_update(new, old)]

    return update
