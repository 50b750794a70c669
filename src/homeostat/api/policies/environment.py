"""What the expressions of a policy can see, and how they are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.model.cel.authorizers import AUTHORIZER
from homeostat.model.cel.check import checked
from homeostat.model.cel.evaluate import Code, compile_tree
from homeostat.model.cel.syntax import InvalidExpression
from homeostat.model.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Field, Type, list_of, map_of

NAMES = ("object", "oldObject", "request", "namespaceObject", "params", "authorizer", "variables")
"""Every variable, in the order in which values are handed to `Code.evaluate`."""
_JSON = NAMES[:5]

ANYTHING: tuple[Type, ...] = ()
"""As what an expression has to give: whatever it likes."""


def _structure(name: str, /, **fields: Type | tuple[str, Type]) -> Type:
    known = {n: Field(*f) if isinstance(f, tuple) else Field(n, f) for n, f in fields.items()}
    return Type("object", f"kubernetes.{name}", fields=known)


_KIND = _structure("GroupVersionKind", group=STRING, version=STRING, kind=STRING)
_RESOURCE = _structure("GroupVersionResource", group=STRING, version=STRING, resource=STRING)
_USER = _structure(
    "UserInfo", username=STRING, uid=STRING, groups=list_of(STRING), extra=map_of(STRING, list_of(STRING))
)
REQUEST = _structure(
    "AdmissionRequest",
    kind=_KIND,
    resource=_RESOURCE,
    subResource=STRING,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=STRING,
    name=STRING,
    namespace=STRING,
    operation=STRING,
    userInfo=_USER,
    dryRun=BOOL,
    options=DYN,
)
_CONDITION = _structure(
    "NamespaceCondition", status=STRING, type=STRING, lastTransitionTime=TIMESTAMP, message=STRING, reason=STRING
)
NAMESPACE = _structure(
    "Namespace",
    metadata=_structure(
        "NamespaceMetadata",
        name=STRING,
        generateName=STRING,
        namespace=STRING,
        labels=map_of(STRING, STRING),
        annotations=map_of(STRING, STRING),
        UID=("uid", STRING),
        creationTimestamp=TIMESTAMP,
        deletionGracePeriodSeconds=INT,
        deletionTimestamp=TIMESTAMP,
        generation=INT,
        resourceVersion=STRING,
        finalizers=list_of(STRING),
    ),
    spec=_structure("NamespaceSpec", finalizers=list_of(STRING)),
    status=_structure("NamespaceStatus", conditions=list_of(_CONDITION), phase=STRING),
)


class Expression:
    """One compiled expression, or the reason why there is none."""

    __slots__ = ("code", "error", "text", "type")

    def __init__(self, text: str, code: Code | None, type_: Type, error: str = "") -> None:
        self.text = text
        self.code = code
        self.type = type_
        self.error = error


class Environment:
    """Compiles the expressions of one policy. Variables that it is told of are there for those that follow."""

    def __init__(self, *, params: bool) -> None:
        self._params = params
        self._composed: dict[str, Field] = {}

    def compile(self, text: str, gives: Sequence[Type], *, authorizer: bool = True, composed: bool = True) -> Expression:
        """An expression that has to give one of some types. Its `error` is upstream's, where it has one."""
        declared: dict[str, Type] = {"object": DYN, "oldObject": DYN, "request": REQUEST, "namespaceObject": NAMESPACE}
        if self._params:
            declared["params"] = DYN
        if authorizer:
            declared["authorizer"] = AUTHORIZER
        if composed and self._composed:
            declared["variables"] = Type("object", "kubernetes.variables", fields=self._composed)
        try:
            tree, _ = checked(text, declared)
        except InvalidExpression as error:
            return Expression(text, None, DYN, f"compilation failed: {error}")
        if gives and tree.type not in gives:
            wanted = _type_name(gives[0]) if len(gives) == 1 else f"one of [{' '.join(map(_type_name, gives))}]"
            return Expression(text, None, DYN, f"must evaluate to {wanted} but got {_type_name(tree.type)}")
        return Expression(text, compile_tree(tree, NAMES, _JSON), tree.type)

    def define(self, name: str, text: str) -> Expression:
        """A variable: its expression may use those before it."""
        found = self.compile(text, ANYTHING)
        self._composed = {**self._composed, name: Field(name, found.type)}
        return found


def _type_name(type_: Type) -> str:
    return "null_type" if type_.kind == "null" else type_.text


def values_for(bindings: Mapping[str, Any]) -> list[Any]:
    """The values of all variables in their order; what is not said is null."""
    return [bindings.get(name) for name in NAMES]
