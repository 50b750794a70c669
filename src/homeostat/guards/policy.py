"""The GuardPolicy kind: which fleet it guards, and how. Everything has a default, and the defaults are careful.

Limits are counts (`3`) or shares of the fleet (`10%`). A share is rounded down to a count and is never below 1, and a
limit trips on *more than*: with `30%` of a fleet of 10, three are fine and the fourth is too many.
"""

# Frozen below an open base: msgspec allows it, the rules that mypy has for dataclasses do not.
# mypy: disable-error-code="misc"

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, field, structs

from homeostat.guards import expressions, window
from homeostat.model.errors import FieldError
from homeostat.model.kinds import (
    Column,
    InvalidSpec,
    KindInfo,
    Length,
    ListMap,
    Span,
    Spec,
    crd_for,
    decode,
    format_duration,
)
from homeostat.model.selectors import Labels, label_selector_errors, label_selector_from

GROUP, VERSION, KIND = "homeostat.dev", "v1alpha1", "GuardPolicy"

_LIMIT_PATTERN = "^(100|[1-9]?[0-9])%$"
_DAY = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_DAYS_PATTERN = f"^{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*$"
_HOURS_PATTERN = "^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"

WEBHOOK = r"^https?://[^\s/?#@]+([/?][^\s#]*)?$"
"""An address without a user in it: who we are is said by a secret."""

Limit = Annotated[int | str, Meta(extra_json_schema={"pattern": _LIMIT_PATTERN, "minimum": 0})]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Few = Meta(max_length=64)
Expression = Annotated[str, Meta(min_length=1, max_length=4096)]


class Mode(StrEnum):
    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class OnFailure(StrEnum):
    HALT = "Halt"
    RETURN = "Return"


class LabelExpression(Spec, frozen=True):
    """A requirement on one label."""

    key: str
    operator: Annotated[str, Meta(pattern="^(In|NotIn|Exists|DoesNotExist)$")]
    values: tuple[str, ...] = ()


class Selector(Spec, frozen=True):
    """Labels that a resource has. An empty one is met by all."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelExpression, ...] = ()


class Selection(Spec, frozen=True):
    """What belongs to the fleet. An empty selection selects nothing, never everything."""

    kinds: Annotated[tuple[Name, ...], Few] = ()
    """Kinds by plural and group, such as `files.files.homeostat.dev`. With none, nothing is selected."""
    namespaces: Annotated[tuple[Name, ...], Few] = ()
    """Only in these namespaces; with none, in all."""
    selector: Selector = Selector()
    """Only what has these labels."""


class Freeze(Spec, frozen=True):
    """Closes the gate. Looking and reporting go on. Only its end, or a person who takes it away, lifts it."""

    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    """Why, for whoever finds it closed."""
    author: Annotated[str, Meta(min_length=1, max_length=253)]
    """Who froze it, and can be asked."""
    until: datetime | None = None
    """When it ends by itself; without, it stays until it is lifted."""
    kinds: Annotated[tuple[Name, ...], Few] = ()
    """Only these kinds of the fleet; with none, all."""
    namespaces: Annotated[tuple[Name, ...], Few] = ()
    """Only in these namespaces; with none, in all."""
    names: Annotated[tuple[Name, ...], Few] = ()
    """Only resources of these names; with none, all."""


class MassDrift(Spec, frozen=True):
    """So much of a fleet differs that the declaration or the observer is more likely wrong than the fleet."""

    limit: Limit = "30%"
    """More than this halts the fleet. Changes and deletions are counted apart."""
    fleet_of: Annotated[int, Meta(ge=1)] = 10
    """In smaller fleets a few are soon many: there it does not look."""


class Canary(Spec, frozen=True):
    """A change of intent goes out in steps, and goes on only while all that it touched is verified healthy."""

    steps: Annotated[tuple[Limit, ...], Meta(max_length=16)] = (1, "10%", "50%", "100%")
    """How much of the change set may have been touched by the end of each step; after the last, all of it."""
    verify_within: Length = timedelta(minutes=5)
    """A verdict that is not there by then is a failure."""
    rest: Span = timedelta()
    """So long nothing more of a change set is touched after each of its waves: time for what is well at first, and not later. What goes
    wrong meanwhile halts the rest of it. None unless said."""
    on_failure: OnFailure = OnFailure.HALT
    """`Halt` waits for a person; `Return` also takes all that the change set declared in the fleet back to what it was before, as a
    change set of its own. It needs a server that keeps the past, and never overwrites what somebody declared since."""


class Breaker(Spec, frozen=True):
    """Leaves a target alone that fails."""

    failures: Annotated[int, Meta(ge=1)] = 5
    """So many in a row open it."""
    open_for: Length = timedelta(seconds=30)
    """Then nothing is tried for so long, and after that one probe."""


class Backoff(Spec, frozen=True):
    """How long a resource waits after a failure: a random time up to `first` × `factor` per failure in a row. Never
    blocks others."""

    first: Span = timedelta(seconds=1)
    factor: Annotated[float, Meta(ge=1, le=10)] = 2.0
    most: Span = timedelta(minutes=5)


class Flap(Spec, frozen=True):
    """Somebody keeps undoing what we do: hold the resource rather than fight."""

    reversals: Annotated[int, Meta(ge=1)] = 3
    """So many within the time hold it."""
    within: Length = timedelta(minutes=10)


class Invariant(Spec, frozen=True):
    """What must stay true of all that the policy selects. A plan after which it would not be is refused; one that cannot be
    evaluated is not true. While it is broken already, nothing is deleted but what mends it, and all else goes on."""

    name: Name
    expression: Expression
    """CEL over `before` and `after`: the lists of what exists now, and what would after the plan. True: all is well. Each
    thing is `{kind, metadata: {name, namespace, labels, annotations}, spec, state}`: as declared, and its state as observed
    (in `after`, of what is acted on: as it would be; in `before`, `metadata` and `spec` as they were). What is declared and does not exist is in neither."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """What to tell people when it is refused."""


class Health(Spec, frozen=True):
    """When a thing that is as declared also does its work, in addition to what its provider asks. Waves wait for it, and it is
    not Ready before."""

    name: Name
    expression: Expression
    """CEL over `object`, the declared object with its status, and `state`, the observed state. True: it is healthy. One that
    cannot be evaluated is no yes."""
    message: Annotated[str, Meta(max_length=1024)] = ""
    """What to tell people while it is not."""


class Hours(Spec, frozen=True):
    """A time of the week."""

    days: Annotated[str, Meta(pattern=_DAYS_PATTERN)] = "Mon-Sun"
    """Such as `Mon-Fri` or `Mon,Wed,Sat-Sun`."""
    hours: Annotated[str, Meta(pattern=_HOURS_PATTERN)] = "00:00-24:00"
    """From, and up to. One that ends before it begins goes on past midnight and belongs to the day on which it began."""
    timezone: Annotated[str, Meta(max_length=64)] = "UTC"
    """By its IANA name, such as `Europe/Zurich`."""


class Window(Spec, frozen=True):
    """When the fleet may be acted on. It is open at a time that is allowed (with none, at any) and not denied."""

    allow: Annotated[tuple[Hours, ...], Few] = ()
    deny: Annotated[tuple[Hours, ...], Few] = ()


class Deletion(Spec, frozen=True):
    """What is gone is gone: many deletions want a person's word."""

    confirm_above: Limit | None = None
    """More open deletions than this wait for an approval. Without, the cap."""
    grace: Span = timedelta()
    """How long a thing is kept after its deletion was declared: time to find out that it was a mistake. None unless said.
    Deletions that wait count as open."""


class AlertOn(StrEnum):
    """What people can be told of."""

    HALT = "Halt"  # a guard closed the gate for the fleet, or for a change set
    APPROVAL = "Approval"  # something waits for a person's yes
    FLAP = "Flap"  # another writer keeps undoing what we do
    INVARIANT = "Invariant"  # a plan was refused for what it would break
    ACTION_FAILED = "ActionFailed"  # the same action failed again and again
    OWNERSHIP = "Ownership"  # something exists that is not ours to change
    BREAKER = "Breaker"  # a target is left alone because it fails
    UNKNOWN = "Unknown"  # some cannot be read, and not so many that it is a halt
    FROZEN = "Frozen"  # a person closed the gate
    RETURN = "Return"  # a change set failed, and was taken back, or could not be


NEEDS_A_PERSON = (AlertOn.HALT, AlertOn.APPROVAL, AlertOn.FLAP, AlertOn.INVARIANT, AlertOn.ACTION_FAILED, AlertOn.RETURN)


class SecretReference(Spec, frozen=True):
    """A Secret. Its key `token` is sent as bearer token; with its key `hmac` the body is signed."""

    namespace: Name
    name: Name


class Alert(Spec, frozen=True):
    """Who is told, by a POST of JSON."""

    webhook: Annotated[str, Meta(pattern=WEBHOOK, max_length=2048)]
    """Where. One that ends in `/api/v2/alerts` gets what Alertmanager understands. With a secret it is `https`."""
    secret: SecretReference | None = None
    on: Annotated[tuple[AlertOn, ...], Few] = NEEDS_A_PERSON
    """Of what. Unless said otherwise: halts, what goes on only when a person does something, and change sets that were taken back."""
    remind_after: Span = timedelta(hours=4)
    """How long until it is told again while it lasts. 0: never."""


class GuardPolicy(Spec, frozen=True):
    """How a fleet is kept from harm by its own automation."""

    fleet: Selection = Selection()
    mode: Mode = Mode.OBSERVE
    """`Observe` reports and acts on nothing; `Enforce` acts."""
    freezes: Annotated[tuple[Freeze, ...], Few] = ()
    cap: Limit = "10%"
    """How many existing things may be changed in a wave, and how many deleted. 0: none."""
    creations: Limit | None = None
    """How many creations may be under way at once. Without, any number: they harm nothing that exists."""
    mass_drift: MassDrift = MassDrift()
    unknown: Limit = "20%"
    """More unreadable than this, and the observer is suspected: nothing is done."""
    canary: Canary = Canary()
    breaker: Breaker = Breaker()
    backoff: Backoff = Backoff()
    flap: Flap = Flap()
    invariants: Annotated[tuple[Invariant, ...], ListMap("name"), Few] = ()
    health: Annotated[tuple[Health, ...], ListMap("name"), Few] = ()
    """All must be true for a thing to count as healthy."""
    windows: Annotated[tuple[Window, ...], Few] = ()
    """All of them must be open; with none, it is always time."""
    deletion: Deletion = Deletion()
    domains: Annotated[int, Meta(ge=1)] = 1
    """In how many fault domains existing things may be acted on at once."""
    alerts: Annotated[tuple[Alert, ...], Few] = ()
    """Who is told when something needs a person. Where several policies guard a fleet, all of them are."""


class HaltStatus(Spec, frozen=True):
    """A guard that keeps the gate closed."""

    guard: str
    reason: str
    since: datetime
    plan: str = ""
    """`homeostat approve` this to let exactly this plan through, once."""
    what_to_do: str = ""
    change_set: str = ""
    """The change set that it is about; empty: the whole fleet."""
    fleet: str = ""
    """The fleet that it halts: what the same policies select."""


class AskStatus(Spec, frozen=True):
    """Some things that wait for a person's word, while others go on."""

    guard: str
    reason: str
    plan: str
    """`homeostat approve` this to let exactly this plan through, once."""
    count: int
    """How many wait."""
    fleet: str = ""


class WaveStatus(Spec, frozen=True):
    """What is acted on together, or was."""

    change_set: str
    """Empty for repairs, where only reality had changed."""
    number: int
    members: int
    verified: int
    failed: int
    started: datetime
    fleet: str = ""


class AlertStatus(Spec, frozen=True):
    """What somebody was told, so that a restart does not tell it again."""

    receiver: str
    """A hash of the address, which may hold a secret itself."""
    fleet: str
    about: str
    """What it is about, within the fleet."""
    on: str
    guard: str
    since: datetime
    told: datetime | None = None
    """When it was told last; not at all yet where it is not there."""
    plan: str = ""
    """The plan that was told."""


class ReturnState(StrEnum):
    """How far a return is."""

    RETURNING = "Returning"  # declarations are being written; who finds it so after a crash finishes it
    RETURNED = "Returned"
    INCOMPLETE = "Incomplete"  # but for what `problem` says
    REFUSED = "Refused"  # nothing was written: the change set stays halted


class ReturnStatus(Spec, frozen=True):
    """A change set that failed, and what became of its return. It is kept, so that a change set is taken back once."""

    change_set: str
    fleet: str
    state: ReturnState
    since: datetime
    reason: str = ""
    """Why the change set failed."""
    returned_by: str = ""
    """The change set that took it back: all of its declarations carry this name."""
    objects: int = 0
    """How many declarations are as they were before."""
    problem: str = ""
    """What could not be taken back, and why."""


class GuardPolicyStatus(Spec, frozen=True):
    """How all that the policy selects stands."""

    fleet_size: int = 0
    drifted: int = 0
    unknown: int = 0
    acted_in_wave: int = 0
    halted: str = ""
    """The guards that halt it now."""
    halts: tuple[HaltStatus, ...] = ()
    asks: tuple[AskStatus, ...] = ()
    waves: tuple[WaveStatus, ...] = ()
    past_waves: tuple[WaveStatus, ...] = ()
    """Waves of change sets that are over, the latest last: however quick they were, and over restarts."""
    alerts: tuple[AlertStatus, ...] = ()
    returns: tuple[ReturnStatus, ...] = ()
    """Change sets that were to be taken back, the latest last."""


POLICY_KIND = KindInfo(
    GROUP,
    VERSION,
    KIND,
    GuardPolicy,
    status=GuardPolicyStatus,
    scope="Cluster",
    short_names=("gp",),
    categories=("homeostat",),
    columns=(
        Column("Mode", ".spec.mode"),
        Column("Fleet", ".status.fleetSize", "integer", "Resources that exist, or should."),
        Column("Drifted", ".status.drifted", "integer"),
        Column("Unknown", ".status.unknown", "integer", "Resources that could not be read."),
        Column("Halted", ".status.halted", description="The guards that halt it now."),
    ),
)


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition of GuardPolicy."""
    return crd_for(POLICY_KIND)


def parse_policy(obj: Mapping[str, Any]) -> GuardPolicy:
    """The policy that an object declares; `InvalidSpec` names every field that is wrong.

    Treat a policy that cannot be read as one that observes: what nobody could read must not open a gate.
    """
    policy = decode(GuardPolicy, obj.get("spec") or {})
    errors = [*_limit_errors(policy), *_length_errors(policy), *_window_errors(policy), *_expression_errors(policy), *_alert_errors(policy)]
    selector = (obj.get("spec") or {}).get("fleet", {}).get("selector")
    errors += label_selector_errors(selector, "spec.fleet.selector")
    if errors:
        raise InvalidSpec(KIND, errors)
    return policy


def _limit_errors(policy: GuardPolicy) -> Iterable[FieldError]:
    limits = {
        "spec.cap": policy.cap,
        "spec.creations": policy.creations,
        "spec.unknown": policy.unknown,
        "spec.massDrift.limit": policy.mass_drift.limit,
        "spec.deletion.confirmAbove": policy.deletion.confirm_above,
        **{f"spec.canary.steps[{index}]": step for index, step in enumerate(policy.canary.steps)},
    }
    for path, limit in limits.items():
        fine = limit is None or (limit >= 0 if isinstance(limit, int) else re.fullmatch(_LIMIT_PATTERN, limit))
        if not fine:
            yield FieldError.invalid(path, limit, "a limit is a count such as 3, or a share of the fleet such as 10%")


def _length_errors(policy: GuardPolicy) -> Iterable[FieldError]:
    lengths = {
        "spec.canary.verifyWithin": policy.canary.verify_within,
        "spec.breaker.openFor": policy.breaker.open_for,
        "spec.flap.within": policy.flap.within,
    }
    least = {
        "spec.canary.rest": policy.canary.rest,
        "spec.backoff.first": policy.backoff.first,
        "spec.backoff.most": policy.backoff.most,
        "spec.deletion.grace": policy.deletion.grace,
        **{f"spec.alerts[{index}].remindAfter": alert.remind_after for index, alert in enumerate(policy.alerts)},
    }
    for path, span in lengths.items():
        if not span:
            yield FieldError.invalid(path, format_duration(span), "it takes a time that is more than nothing, such as 30s")
    for path, span in (lengths | least).items():
        if span < timedelta():
            yield FieldError.invalid(path, format_duration(span), "a time cannot be below nothing")


def _window_errors(policy: GuardPolicy) -> Iterable[FieldError]:
    for index, one in enumerate(policy.windows):
        for name, hours in (("allow", one.allow), ("deny", one.deny)):
            for place, span in enumerate(hours):
                if (problem := window.problem(span)) is not None:
                    yield FieldError.invalid(f"spec.windows[{index}].{name}[{place}].timezone", span.timezone, problem)


def _expression_errors(policy: GuardPolicy) -> Iterable[FieldError]:
    asked = [
        *((f"spec.invariants[{i}]", one.expression, expressions.FLEET) for i, one in enumerate(policy.invariants)),
        *((f"spec.health[{i}]", one.expression, expressions.RESOURCE) for i, one in enumerate(policy.health)),
    ]
    for path, text, variables in asked:
        if (problem := expressions.problem(text, variables)) is not None:
            yield FieldError.invalid(f"{path}.expression", text, problem)


def _alert_errors(policy: GuardPolicy) -> Iterable[FieldError]:
    for index, alert in enumerate(policy.alerts):
        if alert.secret is not None and not alert.webhook.startswith("https:") and not is_loopback(alert.webhook):
            shown = alert.webhook.split("/", 3)[2]
            yield FieldError.invalid(f"spec.alerts[{index}].webhook", shown, "with a secret it must be https")


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine and nowhere else."""
    return re.match(r"^https?://(127\.[0-9.]+|localhost|\[::1\])(:[0-9]+)?([/?]|$)", url) is not None


def selects(policy: GuardPolicy, kind: str, namespace: str, labels: Labels | None) -> bool:
    """Whether the policy guards this resource. `kind` is plural and group."""
    fleet = policy.fleet
    if kind not in fleet.kinds or (fleet.namespaces and namespace not in fleet.namespaces):
        return False
    if not (fleet.selector.match_labels or fleet.selector.match_expressions):
        return True
    raw = {
        "matchLabels": fleet.selector.match_labels,
        "matchExpressions": [structs.asdict(expression) for expression in fleet.selector.match_expressions],
    }
    selector = label_selector_from(raw)
    return selector is not None and selector.matches(labels)


def default_policy(kind: str, mode: Mode = Mode.OBSERVE) -> GuardPolicy:
    """What guards a kind that no policy selects: every default, and observe only."""
    return GuardPolicy(fleet=Selection(kinds=(kind,)), mode=mode)
