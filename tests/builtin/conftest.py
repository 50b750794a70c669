"""Built-in kinds by group and name, and objects as the server would judge them."""

from __future__ import annotations

from copy import deepcopy

import pytest

from homeostat.api.builtin import resources
from homeostat.api.builtin.checks import cannot_decode
from homeostat.api.schema import decode_errors


@pytest.fixture(scope="session")
def kinds():
    return {(r.group, r.kind): r for r in resources()}


@pytest.fixture(scope="session")
def rules(kinds):
    return lambda kind, group="": kinds[group, kind].rules


@pytest.fixture(scope="session")
def created(kinds, rules):
    """The object after it was read, defaulted and prepared, as it would be validated."""

    def create(kind, group="", **fields):
        obj = deepcopy({"metadata": {"name": "x", "namespace": "default", "uid": "u"}, **fields})
        resource = kinds[group, kind]
        version = resource.versions[resource.storage]
        if version.decode is None:  # otherwise these are fields of the stored form, which is another type
            _, problems = decode_errors(version.schema, obj)
            if problems:
                raise cannot_decode(kind, version.name, problems[0])
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
