"""Work that ends: Job, and CronJob that starts one by the clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.api.builtin.cells import container_columns, selector_column, text_at
from homeostat.api.builtin.checks import SELECTOR_MISMATCH, not_negative, one_of, unchanged
from homeostat.api.builtin.declare import fill, kind, section
from homeostat.api.builtin.jobpolicies import policy_errors
from homeostat.api.builtin.podspec import default_template, template_errors
from homeostat.api.builtin.podwarnings import Templated
from homeostat.api.resource import Column, Object, Resource, at
from homeostat.api.table import AGE, NAME, NONE, Since, human_duration, seconds_of
from homeostat.model.conditions import condition_is
from homeostat.model.errors import FieldError
from homeostat.model.names import dns_subdomain_problems
from homeostat.model.selectors import label_selector_errors, label_selector_from

Spec = dict[str, Any]

_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_CRON_NAME_MAX = 52  # eleven characters are left for the time in a job's name


def _default_job_spec(spec: Spec) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        fill(spec, completions=1, parallelism=1)
    fill(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    fill(spec, podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    default_template(spec)


def _job_spec_errors(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = [e for field in _COUNTS for e in not_negative(spec.get(field), f"{path}.{field}")]
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        errors.append(FieldError.not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and spec.get("completions") is None:
        detail = "when completion mode is Indexed"
        errors.append(FieldError.required(f"{path}.completions", detail))
    template = spec.get("template") or {}
    errors += template_errors(template, f"{path}.template")
    policy = at(template, "spec", "restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if policy in (None, "", "Always"):
        errors.append(FieldError.required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errors.append(FieldError.not_supported(where, policy, ("OnFailure", "Never")))
    return errors + policy_errors(spec, path)


class JobRules(Templated):
    """A job owns its pods by a label with its uid, unless it brings a selector of its own."""

    names_pods = True
    orphans = True
    orphans_warning = (
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
        "propagationPolicy=Orphan to suppress this warning"
    )

    def default(self, obj: Object) -> None:
        _default_job_spec(section(obj, "spec"))

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        spec, metadata = section(obj, "spec"), obj["metadata"]
        if not spec.get("manualSelector"):
            self._own_pods(spec, metadata)
        # Jobs without labels wear those of their pods.
        labels = at(spec, "template", "metadata", "labels")
        if labels and not metadata.get("labels"):
            metadata["labels"] = dict(labels)

    @staticmethod
    def _own_pods(spec: Spec, metadata: Mapping[str, Any]) -> None:
        """Labels the pods with the job's identity and selects them by it."""
        labels = section(section(section(spec, "template"), "metadata"), "labels")
        uid, name = metadata.get("uid") or "", metadata.get("name") or ""
        labels.update(dict.fromkeys(_UID_LABELS, uid))
        labels.update(dict.fromkeys(_NAME_LABELS, name))
        section(section(spec, "selector"), "matchLabels")[_UID_LABELS[1]] = uid

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = _job_spec_errors(spec, "spec")
        for field in ("active", "succeeded", "failed", "ready", "terminating"):
            errors += not_negative(at(obj, "status", field), f"status.{field}")
        if condition_is(obj, "Complete") and condition_is(obj, "Failed"):
            detail = "Invalid value: cannot set Complete=True and Failed=true conditions"
            errors.append(FieldError("FieldValueInvalid", "status.conditions", detail))
        selector = spec.get("selector")
        if selector is None:
            return [*errors, FieldError.required("spec.selector")]
        problems = label_selector_errors(selector, "spec.selector")
        labels = at(spec, "template", "metadata", "labels")
        compiled = None if problems else label_selector_from(selector)
        if compiled is not None and not compiled.matches(labels):
            problems.append(FieldError.invalid("spec.template.metadata.labels", labels, SELECTOR_MISMATCH))
        generated = {"matchLabels": {_UID_LABELS[1]: obj["metadata"].get("uid") or ""}}
        if not spec.get("manualSelector") and selector != generated and not obj["metadata"].get("resourceVersion"):
            problems.append(FieldError.invalid("spec.selector", selector, "`selector` not auto-generated"))
        return errors + problems

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        fields = ["selector", "completionMode"]
        # A suspended job may still be fitted to where it will run; an indexed one may grow and shrink.
        if not (before.get("suspend") and not at(old, "status", "startTime")):
            fields.append("template")
        if before.get("completionMode") != "Indexed":
            fields.append("completions")
        return [e for field in fields for e in unchanged(spec.get(field), before.get(field), f"spec.{field}")]

    def fields(self, obj: Object) -> Mapping[str, str]:
        return {"status.successful": str(at(obj, "status", "succeeded") or 0)}


class CronJobRules(Templated):
    """A schedule in the form of cron, and a template for the jobs."""

    pod_spec = ("spec", "jobTemplate", "spec", "template", "spec")
    names_pods = True

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(
            spec,
            concurrencyPolicy="Allow",
            suspend=False,
            successfulJobsHistoryLimit=3,
            failedJobsHistoryLimit=1,
        )
        if (template := spec.get("jobTemplate")) is not None:
            job = section(template, "spec")
            # A job made from this gets its own defaults; only its pods are filled in here.
            default_template(job)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        schedule = spec.get("schedule") or ""
        if not schedule:
            errors.append(FieldError.required("spec.schedule"))
        else:
            errors += [FieldError.invalid("spec.schedule", schedule, p) for p in schedule_problems(schedule)]
        if "TZ" in schedule and schedule and not errors:
            detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(FieldError.invalid("spec.schedule", schedule, detail))
        errors += _time_zone_errors(spec.get("timeZone"))
        errors += not_negative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
        errors += one_of(spec.get("concurrencyPolicy"), _CONCURRENCY, "spec.concurrencyPolicy")
        job = at(spec, "jobTemplate", "spec") or {}
        path = "spec.jobTemplate.spec"
        errors += _job_spec_errors(job, path)
        if job.get("selector") is not None:
            errors.append(FieldError.invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated"))
        if job.get("manualSelector"):
            errors.append(FieldError.not_supported(f"{path}.manualSelector", True, ("nil", "false")))
        for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            errors += not_negative(spec.get(field), f"spec.{field}")
        return errors

    def name_problems(self, name: str) -> Sequence[str]:
        problems = dns_subdomain_problems(name)
        if len(name) > _CRON_NAME_MAX:
            problems.append(f"must be no more than {_CRON_NAME_MAX} characters")
        return problems


def _time_zone_errors(zone: str | None) -> list[FieldError]:
    if zone is None:
        return []
    path = "spec.timeZone"
    if not zone:
        return [FieldError.invalid(path, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        return [
            FieldError.invalid(
                path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
            )
        ]
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return [FieldError.invalid(path, zone, f"unknown time zone {zone}")]
    return []


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {3: {name: n for n, name in enumerate(_MONTHS, 1)}, 4: {name: n for n, name in enumerate(_DAYS)}}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_DESCRIPTORS = frozenset(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"))
_EVERY = re.compile(r"@every ([0-9.]+(ns|us|µs|ms|s|m|h))+").fullmatch


def schedule_problems(schedule: str) -> list[str]:
    """Why this is no schedule in cron's standard form (five fields, names of months and days, `@daily`, …)."""
    text = re.sub(r"^(TZ|CRON_TZ)=\S+\s*", "", schedule.strip())
    if text.startswith("@"):
        known = text in _DESCRIPTORS or _EVERY(text)
        return [] if known else [f"unrecognized descriptor: {text}"]
    fields = text.split()
    if len(fields) != 5:
        return [f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"]
    for index, field in enumerate(fields):
        for part in field.split(","):
            if problem := _part_problem(part, index):
                return [problem]
    return []


def _part_problem(part: str, index: int) -> str:
    """What is wrong with one item of one field: `*`, `5`, `mon-fri`, `*/15`, `1-30/2`."""
    span, slash, step = part.partition("/")
    low, high = _BOUNDS[index]
    numbers = []
    for word in [] if span in ("*", "?") else span.split("-"):
        number = _NAMES.get(index, {}).get(word.lower(), word)
        if not str(number).isdigit():
            return f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": invalid syntax'
        numbers.append(int(number))
    if len(numbers) > 2:
        return f"too many hyphens: {part}"
    if slash and not step.isdigit():
        return f'failed to parse int from {step}: strconv.Atoi: parsing "{step}": invalid syntax'
    if slash and int(step) == 0:
        return f"step of range should be a positive number: {part}"
    if numbers and numbers[0] < low:
        return f"beginning of range ({numbers[0]}) below minimum ({low}): {part}"
    if numbers and numbers[-1] > high:
        return f"end of range ({numbers[-1]}) above maximum ({high}): {part}"
    if len(numbers) == 2 and numbers[0] > numbers[1]:
        return f"beginning of range ({numbers[0]}) beyond end of range ({numbers[1]}): {part}"
    return ""


def _job_status(job: Object) -> str:
    for condition in ("Complete", "Failed"):
        if condition_is(job, condition):
            return condition
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition_is(job, condition):
            return condition
    return "Running"


def _completions(job: Object) -> str:
    done, wanted = at(job, "status", "succeeded") or 0, at(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = at(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(job: Object) -> str | Callable[[float], str]:
    begin, end = (seconds_of(at(job, "status", f) or "") for f in ("startTime", "completionTime"))
    if begin is None:
        return ""
    return human_duration(end - begin) if end is not None else lambda now: human_duration(now - begin)


def _last_schedule(cron_job: Object) -> str | Since:
    last = at(cron_job, "status", "lastScheduleTime")
    return Since(last) if last else NONE


def resources() -> list[Resource]:
    """Job and CronJob."""
    return [
        kind(
            "batch/v1",
            "Job",
            "jobs",
            categories=("all",),
            rules=JobRules(),
            status=True,
            generation=True,
            columns=(
                NAME,
                Column("Status", _job_status, description="How far the job is."),
                Column("Completions", _completions, description="How many pods have succeeded, of how many."),
                Column("Duration", _duration, description="How long it has taken."),
                AGE,
                *container_columns("spec", "template"),
                selector_column("spec", "selector"),
            ),
        ),
        kind(
            "batch/v1",
            "CronJob",
            "cronjobs",
            short=("cj",),
            categories=("all",),
            rules=CronJobRules(),
            status=True,
            generation=True,
            columns=(
                NAME,
                Column("Schedule", text_at("spec", "schedule"), description="When, in cron's form."),
                Column("Timezone", text_at("spec", "timeZone", missing=NONE), description="In which time zone."),
                Column(
                    "Suspend",
                    lambda o: "True" if at(o, "spec", "suspend") else "False",
                    type="boolean",
                    description="Whether it starts nothing for now.",
                ),
                Column(
                    "Active",
                    lambda o: len(at(o, "status", "active") or ()),
                    type="integer",
                    description="Jobs that run.",
                ),
                Column("Last Schedule", _last_schedule, description="How long ago it started one."),
                AGE,
                *container_columns("spec", "jobTemplate", "spec", "template"),
                selector_column("spec", "jobTemplate", "spec", "selector"),
            ),
        ),
    ]
