from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.policy import Hours, Window
from homeostat.guards.window import is_open, opens_at

from .fleets import a_fleet, drift, ref


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


OFFICE = (Window(allow=(Hours(days="Mon-Fri", hours="08:00-18:00", timezone="Europe/Zurich"),)),)
NIGHTS = (Window(allow=(Hours(days="Fri", hours="22:00-06:00"),)),)


@pytest.mark.parametrize(
    ("moment", "is_it"),
    [
        ("2026-03-02T07:59:59", False),  # a Monday
        ("2026-03-02T08:00:00", True),
        ("2026-03-02T17:59:59", True),
        ("2026-03-02T18:00:00", False),
        ("2026-03-06T12:00:00", True),
        ("2026-03-07T12:00:00", False),  # a Saturday
    ],
)
def test_the_first_moment_belongs_to_a_window_and_the_last_does_not(moment, is_it):
    assert is_open(OFFICE, at(moment, "Europe/Zurich")) is is_it


def test_the_hours_are_those_of_the_wall_clock_also_after_it_was_put_forward():
    assert not is_open(OFFICE, at("2026-03-27T06:59:59"))  # winter time: UTC + 1
    assert is_open(OFFICE, at("2026-03-27T07:00:00"))
    assert is_open(OFFICE, at("2026-03-30T06:00:00"))  # summer time: UTC + 2


@pytest.mark.parametrize(
    ("kind", "hours", "now", "opens"),
    [
        ("allow", "02:30-03:30", "2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00"),  # 02:30 is left out on this night
        ("deny", "22:00-02:30", "2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00"),
        ("allow", "02:15-02:45", "2026-10-25T02:50+02:00", "2026-10-25T02:15+01:00"),  # and comes twice on this one
        ("deny", "22:00-02:30", "2026-10-25T02:10+01:00", "2026-10-25T02:30+01:00"),
        ("allow", "01:00-02:30", "2026-10-25T02:40+02:00", "2026-10-25T02:00+01:00"),
    ],
)
def test_when_it_opens_is_told_also_in_the_nights_in_which_the_clock_is_put(kind, hours, now, opens):
    windows = (Window(**{kind: (Hours(hours=hours, timezone="Europe/Zurich"),)}),)
    moment = datetime.fromisoformat(now).timestamp()
    assert not is_open(windows, moment)
    assert opens_at(windows, moment) == datetime.fromisoformat(opens).timestamp()


@pytest.mark.parametrize(
    ("moment", "is_it"),
    [
        ("2026-03-06T21:59:59", False),  # a Friday
        ("2026-03-06T22:00:00", True),
        ("2026-03-07T05:59:59", True),
        ("2026-03-07T06:00:00", False),
        ("2026-03-07T22:30:00", False),
        ("2026-03-06T03:00:00", False),  # the night from Thursday
    ],
)
def test_a_span_past_midnight_belongs_to_the_day_on_which_it_began(moment, is_it):
    assert is_open(NIGHTS, at(moment)) is is_it


def test_a_span_may_run_over_the_end_of_the_week():
    weekend = (Window(allow=(Hours(days="Sat-Mon"),)),)
    assert [is_open(weekend, at(f"2026-03-{day:02}T12:00:00")) for day in range(6, 11)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_denied_time_closes_an_allowed_one():
    windows = (Window(allow=OFFICE[0].allow, deny=(Hours(days="Fri", hours="15:00-24:00", timezone="Europe/Zurich"),)),)
    assert is_open(windows, at("2026-03-06T14:59:59", "Europe/Zurich"))
    assert not is_open(windows, at("2026-03-06T15:00:00", "Europe/Zurich"))
    assert opens_at(windows, at("2026-03-06T15:00:00", "Europe/Zurich")) == at("2026-03-09T08:00:00", "Europe/Zurich")


def test_all_windows_must_be_open():
    windows = (*OFFICE, Window(allow=(Hours(days="Tue"),)))
    assert not is_open(windows, at("2026-03-02T12:00:00"))
    assert opens_at(windows, at("2026-03-02T12:00:00")) == at("2026-03-03T08:00:00", "Europe/Zurich")


def test_one_that_never_opens_says_so():
    windows = (Window(deny=(Hours(),)),)
    assert opens_at(windows, at("2026-03-02T12:00:00")) == 0.0


def test_a_closed_window_holds_everything_until_it_opens():
    fleet = a_fleet(5)
    made = drift(fleet, [1])
    policy = GuardPolicy(mode=Mode.ENFORCE, windows=OFFICE)
    saturday, monday = at("2026-03-07T12:00:00", "Europe/Zurich"), at("2026-03-09T08:00:00", "Europe/Zurich")
    verdict = decide(policy, fleet, saturday)
    assert verdict.allowed == []
    assert verdict.held[ref(1)].until == monday
    assert "it opens at 2026-03-09T07:00:00Z" in verdict.held[ref(1)].reason
    assert decide(policy, fleet, monday).allowed == made
