"""UserToken: a bearer token for a person. Its object holds a digest; the token itself is shown once, at creation."""

from __future__ import annotations

from homeostat.api.auth.usertokens import GROUP, KIND, PLURAL, VERBS, VERSION
from homeostat.api.builtin.cells import text_at
from homeostat.api.resource import Column, Resource, Version, at
from homeostat.api.table import AGE, NAME
from homeostat.model.schema import Schema

_SCHEMA = Schema(
    {
        "type": "object",
        "description": "A bearer token for a person; deleting the object revokes the token.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "spec": {
                "type": "object",
                "description": "Whom the token stands for, and for how long.",
                "required": ["user"],
                "properties": {
                    "user": {"type": "string", "description": "The user's name."},
                    "groups": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Groups the user is in, beside system:authenticated.",
                    },
                    "expirationSeconds": {
                        "type": "integer",
                        "format": "int64",
                        "description": "Lifetime in seconds; a day where it is not said.",
                    },
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "digest": {"type": "string", "description": "SHA-256 of the token."},
                    "expirationTimestamp": {"type": "string", "format": "date-time"},
                    "token": {"type": "string", "description": "Only in the answer to the creation."},
                },
            },
        },
    }
)


def resources() -> list[Resource]:
    """UserToken. It has no update: what a token stands for never changes."""
    form = Version(
        VERSION,
        schema=_SCHEMA,
        columns=(
            NAME,
            Column("User", text_at("spec", "user"), description="Whom the token stands for."),
            Column("Groups", lambda o: ",".join(at(o, "spec", "groups") or ()), priority=1, description="In which groups."),
            Column("Expires", text_at("status", "expirationTimestamp"), description="When the token ends."),
            AGE,
        ),
    )
    return [
        Resource(
            group=GROUP,
            plural=PLURAL,
            kind=KIND,
            singular="usertoken",
            namespaced=False,
            versions={VERSION: form},
            storage=VERSION,
            verbs=VERBS,
            counts_generation=False,
        )
    ]
