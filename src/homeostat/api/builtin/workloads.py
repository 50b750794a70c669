"""Workloads that keep pods running: Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from homeostat.api.builtin.cells import container_columns, count_at, pairs, selector_column
from homeostat.api.builtin.checks import (
    SELECTOR_MISMATCH,
    at_most_100_percent,
    not_negative,
    one_of,
    percent_or_count,
    share,
    unchanged,
)
from homeostat.api.builtin.declare import REPLICAS, fill, kind, section
from homeostat.api.builtin.podspec import default_template, template_errors
from homeostat.api.builtin.podwarnings import Templated
from homeostat.api.builtin.storage import claim_spec_errors, default_claim
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE
from homeostat.model.errors import FieldError
from homeostat.model.selectors import label_selector_errors, label_selector_from

Spec = dict[str, Any]

_TEMPLATE_LABELS = "spec.template.metadata.labels"


def selector_and_template_errors(
    spec: Spec, what: str, forbidden_for: str, *, required: bool = True
) -> list[FieldError]:
    """What is wrong with a structured selector, the template, and between them. `what` is the kind in lower case."""
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = at(template, "metadata", "labels")
    errors: list[FieldError] = []
    if selector is None:
        if required:
            errors.append(FieldError.required("spec.selector"))
        errors.append(FieldError.invalid(_TEMPLATE_LABELS, labels, SELECTOR_MISMATCH))
    elif problems := label_selector_errors(selector, "spec.selector"):
        errors += [*problems, FieldError.invalid("spec.selector", selector, "invalid label selector")]
    else:
        compiled = label_selector_from(selector)
        if compiled is None or compiled.empty:
            errors.append(FieldError.invalid("spec.selector", selector, f"empty selector is invalid for {what}"))
        elif not compiled.matches(labels):
            errors.append(FieldError.invalid(_TEMPLATE_LABELS, labels, SELECTOR_MISMATCH))
    return errors + always_running_errors(template, forbidden_for)


def always_running_errors(template: Spec, forbidden_for: str) -> list[FieldError]:
    """What is wrong with a template whose pods are meant to run for ever."""
    errors = template_errors(template, "spec.template")
    policy = at(template, "spec", "restartPolicy")
    if policy != "Always" and policy in ("OnFailure", "Never"):
        errors.append(FieldError.not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if at(template, "spec", "activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {forbidden_for} is not Supported"
        errors.append(FieldError.forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def _counts(spec: Spec, *fields: str) -> list[FieldError]:
    return [error for field in fields for error in not_negative(spec.get(field), f"spec.{field}")]


class DeploymentRules(Templated):
    """Selector and template fit together; the selector stays."""

    counts_annotations = True
    kept_by_status = ("labels",)
    names_pods = True

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
        strategy = section(spec, "strategy")
        fill(strategy, type="RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(section(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
        default_template(spec)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = _counts(spec, "replicas")
        errors += selector_and_template_errors(spec, "deployment", "ReplicaSet")
        errors += _deployment_strategy_errors(spec.get("strategy") or {})
        errors += _counts(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
            detail = "must be greater than minReadySeconds"
            errors.append(FieldError.invalid("spec.progressDeadlineSeconds", deadline, detail))
        return errors + _status_errors(
            obj.get("status") or {}, ("updatedReplicas", "readyReplicas", "availableReplicas")
        )

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = unchanged(at(obj, "spec", "selector"), at(old, "spec", "selector"), "spec.selector")
        collisions, before = (at(o, "status", "collisionCount") for o in (obj, old))
        if before is not None and (collisions is None or collisions < before):
            errors.append(FieldError.invalid("status.collisionCount", collisions, "cannot be decremented"))
        return errors


def _deployment_strategy_errors(strategy: Mapping[str, Any]) -> list[FieldError]:
    path, rolling = "spec.strategy", strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            if rolling is None:
                return []
            detail = "may not be specified when strategy `type` is 'Recreate'"
            return [FieldError.forbidden(f"{path}.rollingUpdate", detail)]
        case "RollingUpdate":
            return _rolling_errors(rolling or {}, f"{path}.rollingUpdate")
        case _:
            return [FieldError.not_supported(path, strategy, ("Recreate", "RollingUpdate"))]


def _rolling_errors(rolling: Mapping[str, Any], path: str) -> list[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    errors = percent_or_count(unavailable, f"{path}.maxUnavailable") + percent_or_count(surge, f"{path}.maxSurge")
    if not share(unavailable) and not share(surge):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(FieldError.invalid(f"{path}.maxUnavailable", unavailable, detail))
    return errors + at_most_100_percent(unavailable, f"{path}.maxUnavailable")


def _status_errors(status: Mapping[str, Any], fields: Sequence[str]) -> list[FieldError]:
    """Counts in a status are never negative, and no part is greater than the whole."""
    errors = [e for f in ("replicas", *fields) for e in not_negative(status.get(f), f"status.{f}")]
    replicas, ready = status.get("replicas") or 0, status.get("readyReplicas") or 0
    for field in fields:
        value = status.get(field) or 0
        if value > replicas:
            errors.append(FieldError.invalid(f"status.{field}", value, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas") or 0
    if available > ready:
        detail = "cannot be greater than readyReplicas"
        errors.append(FieldError.invalid("status.availableReplicas", available, detail))
    return errors


class ReplicaSetRules(Templated):
    """Selector and template fit together; the selector stays."""

    names_pods = True

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, replicas=1)
        default_template(spec)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        return [
            *_counts(spec, "replicas", "minReadySeconds"),
            *selector_and_template_errors(spec, "deployment", "ReplicaSet"),
            *_status_errors(obj.get("status") or {}, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")),
        ]

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return unchanged(at(obj, "spec", "selector"), at(old, "spec", "selector"), "spec.selector")

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"status.replicas": str(at(obj, "status", "replicas") or 0)}


class ReplicationControllerRules(Templated):
    """As a ReplicaSet, with plain labels for a selector, taken from the template where none is given."""

    names_pods = True
    orphans = True

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, replicas=1)
        labels = at(spec, "template", "metadata", "labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = section(obj, "metadata")
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
        if spec.get("template") is not None:
            default_template(spec)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        selector, template = spec.get("selector") or {}, spec.get("template")
        errors = _counts(spec, "minReadySeconds")
        if not selector:
            errors.append(FieldError.required("spec.selector"))
        errors += _counts(spec, "replicas")
        if template is None:
            errors.append(FieldError.required("spec.template"))
        else:
            labels = at(template, "metadata", "labels") or {}
            if not selector.items() <= labels.items():
                errors.append(FieldError.invalid(_TEMPLATE_LABELS, labels, SELECTOR_MISMATCH))
            errors += always_running_errors(template, "ReplicationController")
        return errors

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"status.replicas": str(at(obj, "status", "replicas") or 0)}


_STATEFUL_MUTABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_STATEFUL_FIXED = (
    "updates to statefulset spec for fields other than "
    + ", ".join(f"'{field}'" for field in _STATEFUL_MUTABLE[:-1])
    + f" and '{_STATEFUL_MUTABLE[-1]}' are forbidden"
)


class StatefulSetRules(Templated):
    """Claims are volumes of the pods; little beside the template and the number may change."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
        strategy = section(spec, "updateStrategy")
        fill(strategy, type="RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(section(strategy, "rollingUpdate"), partition=0)
        fill(section(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
            default_claim(claim)
        default_template(spec)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        policy = spec.get("podManagementPolicy")
        if policy not in ("OrderedReady", "Parallel"):
            detail = "must be 'OrderedReady' or 'Parallel'"
            errors.append(FieldError.invalid("spec.podManagementPolicy", policy, detail))
        strategy = spec.get("updateStrategy") or {}
        rolling, path = strategy.get("rollingUpdate"), "spec.updateStrategy"
        if strategy.get("type") == "OnDelete":
            if rolling is not None:
                detail = "only allowed for updateStrategy 'RollingUpdate'"
                errors.append(FieldError.invalid(f"{path}.rollingUpdate", rolling, detail))
        elif strategy.get("type") == "RollingUpdate":
            errors += not_negative((rolling or {}).get("partition"), f"{path}.rollingUpdate.partition")
        else:
            errors.append(FieldError.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"))
        for field in ("whenDeleted", "whenScaled"):
            kept = at(spec, "persistentVolumeClaimRetentionPolicy", field)
            errors += one_of(kept, ("Retain", "Delete"), f"spec.persistentVolumeClaimRetentionPolicy.{field}")
        errors += not_negative(at(spec, "ordinals", "start"), "spec.ordinals.start")
        errors += _counts(spec, "replicas", "minReadySeconds")
        errors += selector_and_template_errors(self._with_claims(spec), "statefulset", "StatefulSet")
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            errors += claim_spec_errors(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
        return errors

    @staticmethod
    def _with_claims(spec: Spec) -> Spec:
        """The spec as its pods will see it: claims are volumes that the template may mount without naming them."""
        claims = [at(c, "metadata", "name") for c in spec.get("volumeClaimTemplates") or ()]
        pod = at(spec, "template", "spec")
        if not claims or pod is None:
            return spec
        declared = [v for v in pod.get("volumes") or () if v.get("name") not in claims]
        volumes = declared + [{"name": name, "emptyDir": {}} for name in claims if name]
        return {**spec, "template": {**spec["template"], "spec": {**pod, "volumes": volumes}}}

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        new, before = (
            {k: v for k, v in (o.get("spec") or {}).items() if k not in _STATEFUL_MUTABLE} for o in (obj, old)
        )
        return [] if new == before else [FieldError.forbidden("spec", _STATEFUL_FIXED)]


_NO_DAEMONS = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetRules(Templated):
    """As a Deployment without a number; changes of the template are counted in an annotation."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, revisionHistoryLimit=10)
        strategy = section(spec, "updateStrategy")
        fill(strategy, type="RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(section(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
        default_template(spec)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        section(section(obj, "metadata"), "annotations")[_TEMPLATE_GENERATION] = "1"

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        count = int(at(old, "metadata", "annotations", _TEMPLATE_GENERATION) or 1)
        if at(obj, "spec", "template") != at(old, "spec", "template"):
            count += 1
        section(section(obj, "metadata"), "annotations")[_TEMPLATE_GENERATION] = str(count)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = selector_and_template_errors(spec, "daemonset", "DaemonSet", required=False)
        errors += _counts(spec, "minReadySeconds", "revisionHistoryLimit")
        strategy, path = spec.get("updateStrategy") or {}, "spec.updateStrategy"
        if strategy.get("type") == "RollingUpdate":
            errors += self._rolling_errors(strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate")
        elif strategy.get("type") != "OnDelete":
            errors.append(FieldError.not_supported(path, strategy, ("RollingUpdate", "OnDelete")))
        return errors

    @staticmethod
    def _rolling_errors(rolling: Mapping[str, Any], path: str) -> list[FieldError]:
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        errors = percent_or_count(unavailable, f"{path}.maxUnavailable") + percent_or_count(surge, f"{path}.maxSurge")
        if share(unavailable) and share(surge):
            detail = "may not be set when maxUnavailable is non-zero"
            errors.append(FieldError.invalid(f"{path}.maxSurge", surge, detail))
        elif not share(unavailable) and not share(surge):
            errors.append(FieldError.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        errors += at_most_100_percent(unavailable, f"{path}.maxUnavailable")
        return errors + at_most_100_percent(surge, f"{path}.maxSurge")

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return unchanged(at(obj, "spec", "selector"), at(old, "spec", "selector"), "spec.selector")


class ControllerRevisionRules(Rules):
    """A snapshot that stays."""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors = [] if obj.get("data") is not None else [FieldError.required("data", "data is mandatory")]
        return errors + not_negative(obj.get("revision"), "revision")

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return unchanged(obj.get("data"), old.get("data"), "data")


def _ready(obj: Object) -> str:
    return f"{at(obj, 'status', 'readyReplicas') or 0}/{at(obj, 'spec', 'replicas') or 0}"


def _count(name: str, field: str, description: str, *, part: str = "status", cell_type: str = "integer") -> Column:
    return Column(name, count_at(part, field), type=cell_type, description=description)


_SELECTOR = selector_column("spec", "selector")
_CONTAINERS = container_columns("spec", "template")
_DESIRED = _count("Desired", "replicas", "How many there should be.", part="spec")
_REPLICA_COLUMNS = (
    NAME,
    _DESIRED,
    _count("Current", "replicas", "How many there are."),
    _count("Ready", "readyReplicas", "How many are ready."),
    AGE,
    *_CONTAINERS,
    _SELECTOR,
)
_READY = Column("Ready", _ready, description="How many are ready, of how many.")
_DEPLOYMENT_COLUMNS = (
    NAME,
    _READY,
    _count("Up-to-date", "updatedReplicas", "How many run the present template.", cell_type="string"),
    _count("Available", "availableReplicas", "How many have been ready long enough.", cell_type="string"),
    AGE,
    *_CONTAINERS,
    _SELECTOR,
)
_DAEMON_COLUMNS = (
    NAME,
    _count("Desired", "desiredNumberScheduled", "How many nodes should run it."),
    _count("Current", "currentNumberScheduled", "How many nodes run it."),
    _count("Ready", "numberReady", "How many are ready."),
    _count("Up-to-date", "updatedNumberScheduled", "How many run the present template."),
    _count("Available", "numberAvailable", "How many have been ready long enough."),
    Column(
        "Node Selector",
        lambda o: pairs(at(o, "spec", "template", "spec", "nodeSelector")),
        description="Which nodes should run it.",
    ),
    AGE,
    *_CONTAINERS,
    _SELECTOR,
)


def _controller(obj: Object) -> str:
    for owner in at(obj, "metadata", "ownerReferences") or ():
        if owner.get("controller"):
            group = owner.get("apiVersion", "").rpartition("/")[0]
            name = f"{owner.get('kind', '').lower()}.{group}" if group else owner.get("kind", "").lower()
            return f"{name}/{owner.get('name', '')}"
    return NONE


def resources() -> list[Resource]:
    """The workloads of `apps/v1`, and their ancestor in the core group."""
    shared = partial(kind, categories=("all",), status=True, generation=True)
    return [
        shared(
            "apps/v1",
            "Deployment",
            "deployments",
            short=("deploy",),
            scale=REPLICAS,
            rules=DeploymentRules(),
            columns=_DEPLOYMENT_COLUMNS,
        ),
        shared(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            short=("rs",),
            scale=REPLICAS,
            rules=ReplicaSetRules(replicas=0),
            columns=_REPLICA_COLUMNS,
        ),
        shared(
            "apps/v1",
            "StatefulSet",
            "statefulsets",
            short=("sts",),
            scale=REPLICAS,
            rules=StatefulSetRules(replicas=0, availableReplicas=0),
            columns=(NAME, _READY, AGE, *_CONTAINERS),
        ),
        shared(
            "apps/v1",
            "DaemonSet",
            "daemonsets",
            short=("ds",),
            rules=DaemonSetRules(**_NO_DAEMONS),
            columns=_DAEMON_COLUMNS,
        ),
        shared(
            "v1",
            "ReplicationController",
            "replicationcontrollers",
            short=("rc",),
            scale=REPLICAS,
            rules=ReplicationControllerRules(replicas=0),
            columns=_REPLICA_COLUMNS,
        ),
        kind(
            "apps/v1",
            "ControllerRevision",
            "controllerrevisions",
            rules=ControllerRevisionRules(),
            columns=(
                NAME,
                Column("Controller", _controller, description="Who made it."),
                Column("Revision", count_at("revision"), description="Its number."),
                AGE,
            ),
        ),
    ]
