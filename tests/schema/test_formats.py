"""String formats: what passes and what does not, as in upstream's own tables."""

from __future__ import annotations

import pytest

from homeostat.api.schema.formats import effective_format, format_check

GOOD: dict[str, list[str]] = {
    "date-time": ["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00", "2016-02-29T00:00:00Z"],
    "date": ["2014-12-15", "2016-02-29"],
    "duration": ["1h30m", "1.5s", "-2m", "0", "3 days", "22 ns", "1 week 2 hours", "5 Seconds", "1h1", "about 2 hours"],
    "byte": ["aGk=", "YWJj", "YWJjZA=="],
    "email": ["a@b.c", "Barry Gibbs <bg@example.com>", '"quoted x"@example.com'],
    "ipv4": ["1.2.3.4", "01.02.03.04", "::ffff:1.2.3.4"],
    "ipv6": ["::1", "fe80::1", "::ffff:1.2.3.4"],
    "cidr": ["10.0.0.0/8", "::/0", "010.0.0.0/8"],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab", "0123456789ab", "01:23:45:67:89:ab:cd:ef"],
    "uri": ["http://a.b/c?d=e#f", "/path", "urn:x:y", "http://[::1]:80/", "http://h/a b"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
    "uuid4": ["de305d54-75b4-431b-adb2-eb6b9e546014"],
    "hostname": ["a", "example.com", "xn--bcher-kva.example", "1a.example.co", "é.com"],
    "isbn": ["0321751043", "978-0321751041"],
    "creditcard": ["4111-1111-1111-1111", "371449635398431"],
    "ssn": ["111-11-1111", "111 11 1111"],
    "hexcolor": ["#fff", "FFFFFF"],
    "rgbcolor": ["rgb(1, 2,255)"],
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "k8s-short-name": ["a-b", "1"],
    "k8s-long-name": ["a.b-c"],
}
BAD: dict[str, list[str]] = {
    "date-time": ["2014-12-15", "2014-13-15T19:30:20Z", "2014-12-15T24:30:20Z", "2014-12-15T19:30:20", ""],
    "date": ["2014-02-30", "14-1-1", "2014-12-15T", "\uff12014-12-15"],
    "duration": ["", "1", "1 parsec", "h", "99999999999999999999h and 1 s"],
    "byte": ["", "aGk", "a b=", "====", "aGk=\n"],
    "email": ["a", "a@", "@b", "a b@c", "<a@b", "a@b@c", "a@b.c\n"],
    "ipv4": ["256.1.1.1", "1.2.3", "::1", "1.2.3.4%eth0", "", "1.2.3.٤"],
    "ipv6": ["1.2.3.4", "::1%eth0", ":::", "g::"],
    "cidr": ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x", "/8", "::/129"],
    "mac": ["01:23:45:67:89", "01:23-45:67:89:ab", "0123456789a", "01:23:45:67:89:ag"],
    "uri": ["", "relative/path", "http://a b/", "http://h:port/", "http://h/%zz", "a\x01", "#frag"],
    "uuid": ["123e4567-e89b-12d3-a456-42661417400", "x"],
    "uuid4": ["123e4567-e89b-12d3-a456-426614174000"],
    "hostname": ["-a.com", "a..b", "a_b.com", "a" * 64, ".com", "a." * 130 + "com"],
    "isbn": ["0321751042", "978-0321751040"],
    "creditcard": ["4111-1111-1111-1112", "1"],
    "ssn": ["11-111-1111", "111111111"],
    "hexcolor": ["#ff", "#gggggg"],
    "rgbcolor": ["rgb(1,2)", "rgb(256,1,1)"],
    "bsonobjectid": ["507f1f77bcf86cd79943901"],
    "k8s-short-name": ["A", "a.b", "-a", "a" * 64],
    "k8s-long-name": ["A.b", ".a", "a" * 254],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in GOOD.items() for v in vs])
def test_this_passes(name: str, value: str) -> None:
    check = format_check(name)
    assert check is not None
    assert check(value)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BAD.items() for v in vs])
def test_this_does_not(name: str, value: str) -> None:
    check = format_check(name)
    assert check is not None
    assert not check(value)


@pytest.mark.parametrize(
    ("type_name", "given", "counts"),
    [
        ("string", "date-time", "date-time"),
        ("string", "shape", ""),
        ("string", "int32", ""),
        ("integer", "int32", "int32"),
        ("integer", "uint8", ""),
        ("number", "double", "double"),
        ("object", "date", ""),
        ("string", "password", "password"),
    ],
)
def test_a_format_counts_only_for_its_type(type_name: str, given: str, counts: str) -> None:
    assert effective_format(type_name, given) == counts
