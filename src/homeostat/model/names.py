"""Names, labels and annotations: what is legal, said in upstream's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from homeostat.model.errors import FieldError

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?").fullmatch
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*").fullmatch
_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]").fullmatch

SUBDOMAIN_MAX = 253
LABEL_MAX = 63
ANNOTATIONS_MAX = 256 * 1024

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def _too_long(limit: int, unit: str = "characters") -> str:
    """Upstream counts the same in all of them, but calls it characters in names and bytes in labels."""
    return f"must be no more than {limit} {unit}"


def dns_subdomain_problems(value: str, unit: str = "characters") -> list[str]:
    """Why this is no DNS-1123 subdomain; empty where it is one."""
    problems = []
    if len(value) > SUBDOMAIN_MAX:
        problems.append(_too_long(SUBDOMAIN_MAX, unit))
    if not _SUBDOMAIN(value):
        problems.append(_SUBDOMAIN_WORDS)
    return problems


def dns_label_problems(value: str) -> list[str]:
    """Why this is no DNS-1123 label (namespaces, most short names)."""
    problems = []
    if len(value) > LABEL_MAX:
        problems.append(_too_long(LABEL_MAX))
    if not _LABEL(value):
        problems.append("must not contain dots" if _SUBDOMAIN(value) else _LABEL_WORDS)
    return problems


def dns1035_problems(value: str) -> list[str]:
    """Why this is no DNS-1035 label (services)."""
    problems = []
    if len(value) > LABEL_MAX:
        problems.append(_too_long(LABEL_MAX))
    if not _DNS1035(value):
        problems.append(_DNS1035_WORDS)
    return problems


def path_segment_problems(value: str) -> list[str]:
    """Why this cannot stand in a URL path (RBAC names and the like, which are otherwise free)."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{bad}'" for bad in ("/", "%") if bad in value]


def qualified_name_problems(value: str) -> list[str]:
    """Why this is no qualified name (`[prefix/]name`), as label and annotation keys must be."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return [
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')"
        ]
    problems = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend(f"prefix part {p}" for p in dns_subdomain_problems(prefix, unit="bytes"))
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        problems.append(f"name part {_too_long(LABEL_MAX, 'bytes')}")
    if not _QUALIFIED(name):
        problems.append(f"name part {_QUALIFIED_WORDS}")
    return problems


def label_value_problems(value: str) -> list[str]:
    """Why this is no label value; the empty string is one."""
    problems = []
    if len(value) > LABEL_MAX:
        problems.append(_too_long(LABEL_MAX, "bytes"))
    if value and not _QUALIFIED(value):
        problems.append(_LABEL_VALUE_WORDS)
    return problems


def label_errors(labels: dict[str, str], path: str) -> Sequence[FieldError]:
    """Everything wrong with a map of labels."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        # One match each in the common case; the words are only looked for when it fails.
        if not (_QUALIFIED(key) and len(key) <= LABEL_MAX):
            errors.extend(FieldError.invalid(path, key, p) for p in qualified_name_problems(key))
        if value and not (_QUALIFIED(value) and len(value) <= LABEL_MAX):
            errors.extend(FieldError.invalid(path, value, p) for p in label_value_problems(value))
    return errors


def annotation_errors(annotations: dict[str, str], path: str) -> Sequence[FieldError]:
    """Everything wrong with a map of annotations; their total size is limited."""
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        if not (_QUALIFIED(key) and len(key) <= LABEL_MAX):
            errors.extend(FieldError.invalid(path, key, p) for p in qualified_name_problems(key.lower()))
    if size > ANNOTATIONS_MAX:
        errors.append(FieldError.too_long(path, ANNOTATIONS_MAX))
    return errors
