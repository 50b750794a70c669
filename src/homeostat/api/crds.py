"""CustomResourceDefinition: a kind that declares kinds. Its rules, its names, and its life from accepted to gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from homeostat.api.builtin.declare import kind
from homeostat.api.resource import Object, Resource, Rules
from homeostat.api.schema import check_crd, check_crd_status, default_crd, format_warnings
from homeostat.api.table import CREATED_AT, NAME
from homeostat.model.clock import Clock
from homeostat.model.conditions import condition_is, set_condition
from homeostat.model.errors import FieldError
from homeostat.model.protocol import CHILD_KINDS, HELD_BY, HOST

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CRDS = f"{DEFINITIONS}/"
"""Where definitions live in the store."""
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class CrdRules(Rules):
    """`definitions` are all there are, by key; they decide which names are still free."""

    kept_by_status = None

    def __init__(self, definitions: Mapping[str, Object], clock: Clock) -> None:
        self._definitions = definitions
        self._clock = clock

    def default(self, obj: Object) -> None:
        default_crd(obj)

    def prepare_create(self, obj: Object) -> None:
        obj.pop("status", None)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        # An update is judged as a whole step, by `validate_update`.
        return () if obj["metadata"].get("resourceVersion") else self._judge(obj, None)

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return self._judge(obj, old)

    def prepare_update(self, obj: Object, old: Object) -> None:
        status = obj["status"] = {**(obj.get("status") or {})}
        status["storedVersions"] = _stored_versions(obj)

    def _judge(self, obj: Object, old: Object | None) -> Sequence[FieldError]:
        """What is wrong; a sound definition is given its names at once, so that its kind is served with the answer."""
        # A spec that stays was judged when it came: what is written then is the status alone.
        errors = check_crd_status(obj) if old and obj.get("spec") == old["spec"] else check_crd(obj, old)
        if ((obj.get("spec") or {}).get("conversion") or {}).get("strategy") == "Webhook":
            why = "no webhooks are called here: use None, and versions that differ in nothing but their names"
            errors.append(FieldError.forbidden("spec.conversion.strategy", why))
        metadata = obj["metadata"]
        if not errors and metadata.get("name") and not metadata.get("deletionTimestamp"):
            # A copy: a large definition is judged in a thread of its own, while others come and go.
            accept_names(obj, tuple(self._definitions.values()), self._clock.timestamp())
        return errors

    def warnings(self, obj: Object, old: Object | None) -> Sequence[str]:
        return format_warnings(obj, old)

    def begin_deletion(self, obj: Object) -> None:
        metadata = obj["metadata"]
        # Unlike all other kinds, a definition that begins to end counts no new generation and has no grace period.
        del metadata["deletionGracePeriodSeconds"]
        metadata["generation"] -= 1
        metadata["finalizers"] = [*metadata.get("finalizers", ()), FINALIZER]
        obj["status"] = {**(obj.get("status") or {})}
        obj["status"]["conditions"] = list(obj["status"].get("conditions", ()))
        set_condition(
            obj,
            "Terminating",
            "True",
            now=self._clock.timestamp(),
            reason="InstanceDeletionPending",
            message="CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        )


def accept_names(crd: Object, others: Iterable[Object], now: str) -> Object:
    """Gives a definition the names that no other one in its group holds, and says so in its status."""
    names = crd["spec"]["names"]
    status = crd["status"] = {**(crd.get("status") or {})}
    status["conditions"] = [dict(c) for c in status.get("conditions") or ()]
    status["storedVersions"] = _stored_versions(crd)
    taken, kinds = _taken(crd, others)
    accepted = dict(status.get("acceptedNames") or {})
    problem: tuple[str, str] | None = None  # the last one is told
    for field in ("plural", "singular", "shortNames", "kind", "listKind"):
        wanted = names.get(field)
        held = kinds if field in ("kind", "listKind") else taken
        clash = [f'"{n}" is already in use' for n in (wanted if isinstance(wanted, list) else [wanted]) if n in held]
        if clash:
            why = clash[0] if len(clash) == 1 else f"[{', '.join(clash)}]"
            problem = (f"{field[0].upper()}{field[1:]}Conflict", why)
        elif wanted:
            accepted[field] = wanted
        else:
            accepted.pop(field, None)
    if names.get("categories"):
        accepted["categories"] = names["categories"]
    else:
        accepted.pop("categories", None)
    accepted.setdefault("plural", "")
    accepted.setdefault("kind", "")
    status["acceptedNames"] = accepted
    if problem:
        set_condition(crd, "NamesAccepted", "False", now=now, reason=problem[0], message=problem[1])
        if not established(crd):
            set_condition(
                crd, "Established", "False", now=now, reason="NotAccepted", message="not all names are accepted"
            )
    else:
        set_condition(crd, "NamesAccepted", "True", now=now, reason="NoConflicts", message="no conflicts found")
        set_condition(
            crd,
            "Established",
            "True",
            now=now,
            reason="InitialNamesAccepted",
            message="the initial names have been accepted",
        )
    return crd


def _stored_versions(crd: Object) -> list[str]:
    """Every version in which objects may lie in the store: those of before, and the one that is stored from now on."""
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    storage = next((v["name"] for v in crd["spec"]["versions"] if v.get("storage")), None)
    return stored if storage is None or storage in stored else [*stored, storage]


def _taken(crd: Object, others: Iterable[Object]) -> tuple[set[str], set[str]]:
    """Resource names and kinds that other definitions of the group hold."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] != crd["spec"]["group"] or other["metadata"]["name"] == crd["metadata"]["name"]:
            continue
        held = (other.get("status") or {}).get("acceptedNames") or {}
        resources.update(n for n in (held.get("plural"), held.get("singular"), *(held.get("shortNames") or ())) if n)
        kinds.update(n for n in (held.get("kind"), held.get("listKind")) if n)
    return resources, kinds


def established(crd: Object) -> bool:
    """The kind is served."""
    return condition_is(crd, "Established")


def accepted(crd: Object) -> bool:
    """Nobody else holds any of its names."""
    return condition_is(crd, "NamesAccepted")


def is_composed(crd: Object) -> bool:
    """Whether a loop makes other objects of those of a kind, and takes them away itself."""
    return CHILD_KINDS in (crd["metadata"].get("annotations") or {})


def acts_on_host(crd: Object) -> bool:
    """Whether a definition carries the mark of a kind that acts on the host."""
    return bool((crd["metadata"].get("annotations") or {}).get(HOST) == "true")


def held_by(crd: Object) -> str:
    """The field of the status by which the objects of a kind are held; empty where there is none."""
    return str((crd["metadata"].get("annotations") or {}).get(HELD_BY, ""))


def served_alike(before: Object, crd: Object) -> bool:
    """Nothing changed that would be seen in how the kind is served."""
    if before["spec"] != crd["spec"] or not established(before) or acts_on_host(before) != acts_on_host(crd):
        return False
    if held_by(before) != held_by(crd):
        return False
    return bool(before["status"].get("acceptedNames") == crd["status"].get("acceptedNames"))


def resource(definitions: Mapping[str, Object], clock: Clock) -> Resource:
    """The CustomResourceDefinition kind itself."""
    crd = kind(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        rules=CrdRules(definitions, clock),
        status=True,
        generation=True,
        columns=(NAME, CREATED_AT),
    )
    crd.unconditional_update = False
    return crd
