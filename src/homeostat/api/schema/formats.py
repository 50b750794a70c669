"""String formats (`format: date-time`): those that upstream checks, checked as upstream checks them."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from datetime import date
from functools import lru_cache

from homeostat.api.schema.values import SHORT
from homeostat.model.names import dns_label_problems, dns_subdomain_problems

Check = Callable[[str], bool]

_HEX = "[0-9a-fA-F]"
_MAC = re.compile(
    "|".join(
        [rf"{_HEX}{{2}}(?P<s{n}>[:-]){_HEX}{{2}}(?:(?P=s{n}){_HEX}{{2}}){{{n - 2}}}" for n in (6, 8, 20)]
        + [rf"{_HEX}{{4}}(?:\.{_HEX}{{4}}){{{n}}}" for n in (2, 3, 9)]
        + [rf"{_HEX}{{{2 * n}}}" for n in (6, 8, 20)]
    )
).fullmatch
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})").fullmatch
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))").fullmatch
_GO_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)").fullmatch
_DURATION_PART = re.compile(r"(?<![0-9])([0-9]+)\s*([A-Za-zµ]+)", re.ASCII).findall
_DURATION_UNITS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_DURATION_SHORT = {"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"}
_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-"
_ATOM = rf"[{_ATEXT}]+"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_ADDRESS = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_ATOM}(?:\.{_ATOM})*|\[[0-9A-Fa-f.:]+\])"
_EMAIL = re.compile(rf"[ \t]*(?:{_ADDRESS}|(?:[{_ATEXT}. \t]|{_QUOTED})*<[ \t]*{_ADDRESS}[ \t]*>)[ \t]*").fullmatch
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
).fullmatch
_RGB = r"\s*(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"
_HOSTNAME = re.compile(r"[Lx](?:-?[Lx]{0,62})?|(?:[Lx](?:[Lx-]{0,61}[Lx])?\.)+L{2,63}").fullmatch
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})").search
_USER = re.compile(r"(?:[A-Za-z0-9._:~!$&'()*+,;=@-]|%[0-9a-fA-F]{2})*").fullmatch
_HOST = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+(?:%25[^\]]+)?\]|(?:[A-Za-z0-9._~!$&'()*+,;=\"<>-]|[^\x00-\x7f]|%[89a-fA-F][0-9a-fA-F])*)"
    r"(?::[0-9]*)?"
).fullmatch




def _pattern(text: str) -> Check:
    match = re.compile(text, re.ASCII).fullmatch
    return lambda value: match(value) is not None


def _uuid(third: str = "[0-9a-f]{4}", fourth: str = "[0-9a-f]{4}") -> Check:
    return _pattern(rf"(?i:[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}})")


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Reads an address as upstream's lenient parser does: leading zeros in IPv4 are fine, zones are not."""
    if "%" in value or not value.isascii():
        return None
    if ":" not in value:
        value = ".".join(part.lstrip("0") or part[:1] for part in value.split("."))
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def _is_ipv4(value: str) -> bool:
    return "." in value and _ip(value) is not None


def _is_ipv6(value: str) -> bool:
    return ":" in value and _ip(value) is not None


def _is_cidr(value: str) -> bool:
    address, slash, bits = value.partition("/")
    ip = _ip(address)
    return bool(slash) and ip is not None and bits.isascii() and bits.isdigit() and int(bits[:4]) <= ip.max_prefixlen


def _is_date(value: str) -> bool:
    if not _DATE(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return value.startswith("0000-")  # Go knows the year zero
    return True


def _is_date_time(value: str) -> bool:
    day, t, rest = value.lower().partition("t")
    clock = _TIME(rest.split("t")[0]) if t and _is_date(day) else None
    return clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


def _remembered(check: Check) -> Check:
    known = lru_cache(1024)(check)
    return lambda value: known(value) if len(value) <= SHORT else check(value)


def _is_duration(value: str) -> bool:
    """Go's durations (`1h30m`); or, as upstream has it, any text with an amount in it (`3 days`, `about 2 hours`)."""
    if _GO_DURATION(value):
        return True
    parts = [(amount, unit.lower()) for amount, unit in _DURATION_PART(value)]
    if any(len(amount) > 18 and (len(amount) > 40 or int(amount) >= 2**63) for amount, _ in parts):
        return False
    return any(unit in _DURATION_SHORT or unit.startswith(_DURATION_UNITS) for _, unit in parts)


def _is_uri(value: str) -> bool:
    """An absolute URI, or an absolute path: what may stand in a request line."""
    if not value or any(c < " " or c == "\x7f" for c in value):
        return False
    scheme = _SCHEME(value)
    rest = (value[scheme.end() :] if scheme else value).partition("?")[0]
    if not rest.startswith("/"):
        return value == "*" or scheme is not None
    if scheme and rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
        user, _, host = authority.rpartition("@")
        return _USER(user) is not None and _HOST(host) is not None and not _BAD_ESCAPE(path)
    return not _BAD_ESCAPE(rest)


def _is_hostname(value: str) -> bool:
    """Labels of letters, digits and symbols of any script, dashes inside; the last of several is letters only."""
    if any(len(label.encode("utf-8", "surrogatepass")) > 63 for label in value[:256].split(".")):
        return False
    fits = len(value) <= 255 and len(value.encode("utf-8", "surrogatepass")) <= 255
    return fits and _HOSTNAME("".join(map(_hostname_class, value))) is not None


def _hostname_class(char: str) -> str:
    """`L` for a letter, `x` for another character that may stand in a label, `!` for one that may not."""
    if char in ".-":
        return char
    category = unicodedata.category(char)[0]
    return "L" if category == "L" else "x" if category == "S" or char in "0123456789" else "!"


def _isbn(value: str, size: int) -> bool:
    digits = re.sub(r"[\s-]+", "", value)
    if size == 10:
        if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
            return False
        return sum((i + 1) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((3 if i % 2 else 1) * int(c) for i, c in enumerate(digits)) % 10 == 0


def _is_card(value: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", value)
    if not _CARD(digits):
        return False
    doubled = (int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits)))
    return sum(n // 10 + n % 10 for n in doubled) % 10 == 0


FORMATS: dict[str, Check] = {
    "bsonobjectid": _pattern("[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": lambda value: _EMAIL(value) is not None,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": lambda value: _MAC(value) is not None,
    "uuid": _uuid(),
    "uuid3": _uuid("3[0-9a-f]{3}"),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "isbn": lambda value: _isbn(value, 10) or _isbn(value, 13),
    "isbn10": lambda value: _isbn(value, 10),
    "isbn13": lambda value: _isbn(value, 13),
    "creditcard": _is_card,
    "ssn": lambda value: len(value) == 11 and re.fullmatch(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", value) is not None,
    "hexcolor": _pattern(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _pattern(rf"rgb\({_RGB},{_RGB},{_RGB}\)"),
    "byte": lambda value: _BASE64(value) is not None,
    "date": _is_date,
    "datetime": _remembered(_is_date_time),  # the objects of a moment share its time
    "duration": _is_duration,
    "k8sshortname": lambda value: not dns_label_problems(value),
    "k8slongname": lambda value: not dns_subdomain_problems(value),
}
"""Checks by name, dashes left out as upstream does."""

_UNCHECKED = {"password", "quantity"}  # known by name, any string will do
_NUMERIC = {"integer": ("int32", "int64"), "number": ("float", "double")}


def effective_format(type_name: str, name: object) -> str:
    """The format as far as it counts for a type; empty where upstream ignores it."""
    if not isinstance(name, str) or not name:
        return ""
    if type_name in ("", "string"):
        plain = name.replace("-", "")
        return name if plain in FORMATS or plain in _UNCHECKED else ""
    return name if name in _NUMERIC.get(type_name, ()) else ""


def format_check(name: str) -> Check | None:
    """The check for a string format; None where any string will do."""
    return FORMATS.get(name.replace("-", ""))
