"""Conversion between versions, as a CustomResourceDefinition declares it. Webhooks are checked as upstream checks them.

Whether a webhook is then called is not decided here.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from homeostat.model.errors import FieldError
from homeostat.model.names import dns1035_problems, dns_subdomain_problems

STRATEGIES = ("None", "Webhook")
REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"
_ONLY_WEBHOOK = "should not be set when strategy is not set to Webhook"


def conversion_errors(conversion: Any, path: str) -> list[FieldError]:
    """What is wrong with `spec.conversion`; nothing where there is none."""
    if type(conversion) is not dict:
        return []
    errors: list[FieldError] = []
    strategy = conversion.get("strategy") or ""
    if not strategy:
        errors.append(FieldError.required(f"{path}.strategy"))
    elif strategy not in STRATEGIES:
        errors.append(FieldError.not_supported(f"{path}.strategy", strategy, STRATEGIES))
    webhook = conversion.get("webhook")
    webhook = webhook if type(webhook) is dict else {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    at_client, at_reviews = f"{path}.webhookClientConfig", f"{path}.conversionReviewVersions"
    if strategy != "Webhook":
        if client is not None:
            errors.append(FieldError.forbidden(at_client, _ONLY_WEBHOOK))
        if reviews:
            errors.append(FieldError.forbidden(at_reviews, _ONLY_WEBHOOK))
        return errors
    if type(client) is not dict:
        errors.append(FieldError.required(at_client, "required when strategy is set to Webhook"))
    elif (client.get("url") is None) == (client.get("service") is None):
        errors.append(FieldError.required(at_client, "exactly one of url or service is required"))
    elif client.get("url") is not None:
        errors.extend(_url_errors(str(client["url"]), f"{at_client}.url"))
    elif type(client["service"]) is dict:
        errors.extend(_service_errors(client["service"], f"{at_client}.service"))
    errors.extend(_review_errors(reviews if type(reviews) is list else [], at_reviews))
    return errors


def _url_errors(url: str, path: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [FieldError.required(path, f"url must be a valid URL: {error}{_FORM}")]
    errors: list[FieldError] = []
    if parts.scheme != "https":
        errors.append(FieldError.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        errors.append(FieldError.invalid(path, host, f"host must be specified{_FORM}"))
    if at:
        errors.append(FieldError.invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(FieldError.invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(FieldError.invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def _service_errors(service: dict[str, Any], path: str) -> list[FieldError]:
    errors = [FieldError.required(f"{path}.{field}") for field in ("name", "namespace") if not service.get(field)]
    port = service.get("port", 443)
    if type(port) is not int or not 1 <= port <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(FieldError.invalid(f"{path}.port", port, why))
    where = service.get("path")
    if type(where) is not str or where in ("", "/"):
        return errors
    at = f"{path}.path"
    if where == "//":
        return [*errors, FieldError.invalid(at, where, "segment[0] may not be empty")]
    if not where.startswith("/"):
        errors.append(FieldError.invalid(at, where, "must start with a '/'"))
    for i, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(FieldError.invalid(at, where, f"segment[{i}] may not be empty"))
        else:
            errors.extend(FieldError.invalid(at, where, f"segment[{i}]: {p}") for p in dns_subdomain_problems(step))
    return errors


def _review_errors(versions: list[Any], path: str) -> list[FieldError]:
    if not versions:
        return [FieldError.required(path)]
    errors: list[FieldError] = []
    for i, version in enumerate(versions):
        if version in versions[:i]:
            errors.append(FieldError.invalid(f"{path}[{i}]", version, "duplicate version"))
        else:
            errors.extend(FieldError.invalid(f"{path}[{i}]", version, p) for p in dns1035_problems(str(version)))
    if not any(version in REVIEW_VERSIONS for version in versions):
        why = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        errors.append(FieldError.invalid(path, versions, why))
    return errors
