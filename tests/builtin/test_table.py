"""Objects are printed as kube-apiserver prints them; the cells were compared with a real one's."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from homeostat.api.resource import Column
from homeostat.api.table import (
    META_V1BETA1,
    Printer,
    age,
    human_duration,
    include_object,
)
from homeostat.model.errors import ApiError

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
AN_HOUR_AGO = "2025-12-31T23:00:00Z"


def show(kinds, kind, group="", version="", **fields):
    """The cells of one object by column."""
    resource = kinds[group, kind]
    printer = Printer(resource.versions[version or resource.storage].columns)
    obj = {"kind": kind, "metadata": {"name": "x", "creationTimestamp": AN_HOUR_AGO}, **fields}
    return dict(zip([c["name"] for c in printer.definitions], printer.row(obj, NOW)["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_rough(seconds, text):
    assert human_duration(seconds) == text


def test_times_that_are_none_have_no_age():
    assert age("", NOW) == age(None, NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<invalid>"
    assert age("2025-12-31T23:59:00.123456Z", NOW) == "59s"


def test_custom_kinds_show_their_name_first():
    printer = Printer([], custom=True)
    assert [(c["name"], c["type"]) for c in printer.definitions] == [("Name", "string"), ("Age", "date")]
    assert printer.row({"metadata": {"name": "a", "creationTimestamp": AN_HOUR_AGO}}, NOW)["cells"] == ["a", "60m"]


@pytest.mark.parametrize(
    ("column_type", "value", "cell"),
    [
        ("string", "a", "a"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", {"a": 1}, '{"a":1}'),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("number", 1.5, 1.5),
        ("boolean", True, True),
        ("boolean", "true", None),
        ("date", AN_HOUR_AGO, "60m"),
        ("date", "soon", "<invalid>"),
        ("date", 3, None),
        ("string", None, None),
    ],
)
def test_custom_columns_show_values_of_their_type(column_type, value, cell):
    printer = Printer([Column("X", ".spec.deep.x", type=column_type)], custom=True)
    assert printer.row({"metadata": {"name": "a"}, "spec": {"deep": {"x": value}}}, NOW)["cells"] == ["a", cell]


def test_custom_columns_bear_what_is_missing():
    printer = Printer([Column("X", ".spec.deep.x")], custom=True)
    for obj in ({}, {"spec": None}, {"spec": {"deep": []}}, {"spec": {"deep": "text"}}):
        assert printer.row({"metadata": {"name": "a"}, **obj}, NOW)["cells"] == ["a", None]


def test_rows_carry_as_much_of_the_object_as_was_asked():
    printer, obj = Printer([], custom=True), {"kind": "W", "metadata": {"name": "a"}, "spec": {}}
    assert printer.row(obj, NOW, "None")["object"] is None
    assert printer.row(obj, NOW, "Object")["object"] is obj
    assert printer.row(obj, NOW, "Metadata", META_V1BETA1)["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_V1BETA1,
        "metadata": {"name": "a"},
    }
    assert include_object("") == "Metadata"
    with pytest.raises(ApiError, match="must be 'Metadata', 'Object', 'None', or empty"):
        include_object("All")


def test_a_table_keeps_the_metadata_of_the_list():
    metadata = {"resourceVersion": "5", "continue": "c"}
    table = Printer([], custom=True).table([{"metadata": {"name": "a"}}], NOW, metadata=metadata, headers=False)
    assert (table["kind"], table["apiVersion"], table["metadata"]) == ("Table", "meta.k8s.io/v1", metadata)
    assert table["columnDefinitions"] is None


def test_pods_tell_what_their_containers_are_at(kinds):
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    running = {"name": "a", "ready": True, "restartCount": 2, "state": {"running": {}}}
    crashed = {
        "name": "b",
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2025-12-31T23:58:00Z"}},
    }
    cells = show(kinds, "Pod", spec=spec, status={"phase": "Running", "containerStatuses": [running, crashed]})
    assert cells["Ready"] == "1/2"
    assert cells["Status"] == "CrashLoopBackOff"
    assert cells["Restarts"] == "3 (2m ago)"
    assert cells["Node"] == cells["IP"] == cells["Readiness Gates"] == "<none>"
    leaving = {"name": "x", "deletionTimestamp": AN_HOUR_AGO}
    assert show(kinds, "Pod", spec=spec, metadata=leaving)["Status"] == "Terminating"


def test_finished_pods_are_marked_completed(kinds):
    printer = Printer(kinds["", "Pod"].versions["v1"].columns)
    row = printer.row({"kind": "Pod", "metadata": {"name": "x"}, "status": {"phase": "Succeeded"}}, NOW)
    assert row["conditions"][0]["reason"] == "Succeeded"


def test_common_kinds_show_what_people_look_for(kinds):
    deployment = show(
        kinds,
        "Deployment",
        "apps",
        spec={"replicas": 3, "selector": {"matchLabels": {"a": "b"}}},
        status={"readyReplicas": 2, "updatedReplicas": 1},
    )
    assert deployment == {
        "Name": "x", "Ready": "2/3", "Up-to-date": 1, "Available": 0, "Age": "60m", "Containers": "", "Images": "",
        "Selector": "a=b",
    }  # fmt: skip
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30001}, {"port": 53, "protocol": "UDP"}]
    service = show(kinds, "Service", spec={"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": ports})
    assert service["Port(s)"] == "80:30001/TCP,53/UDP"
    assert service["External-IP"] == "<pending>"
    assert show(kinds, "Namespace", status={"phase": "Active"}) == {"Name": "x", "Status": "Active", "Age": "60m"}
    assert show(kinds, "Secret", type="Opaque", data={"a": ""})["Data"] == 1
    assert show(kinds, "Role", "rbac.authorization.k8s.io") == {"Name": "x", "Created At": AN_HOUR_AGO}
    node = show(
        kinds, "Node", spec={"unschedulable": True}, status={"conditions": [{"type": "Ready", "status": "True"}]}
    )
    assert node["Status"] == "Ready,SchedulingDisabled"


def test_events_look_alike_in_both_forms(kinds):
    core = show(
        kinds,
        "Event",
        involvedObject={"kind": "Pod", "name": "p"},
        lastTimestamp=AN_HOUR_AGO,
        message=" hi ",
        reason="R",
        type="Normal",
    )
    modern = show(
        kinds,
        "Event",
        "events.k8s.io",
        regarding={"kind": "Pod", "name": "p"},
        deprecatedLastTimestamp=AN_HOUR_AGO,
        note=" hi ",
        reason="R",
        type="Normal",
    )
    assert core == modern
    assert (core["Last Seen"], core["Object"], core["Message"], core["Count"]) == ("60m", "pod/p", "hi", 1)


def test_every_kind_prints_an_object_that_says_nothing(kinds):
    for resource in kinds.values():
        for version in resource.versions.values():
            Printer(version.columns).row({"kind": resource.kind, "metadata": {"name": "x"}}, NOW)


def test_ten_thousand_rows_are_printed_quickly(kinds):
    printer = Printer(kinds["", "ConfigMap"].versions["v1"].columns)
    objects = [{"metadata": {"name": f"x{n}", "creationTimestamp": AN_HOUR_AGO}, "data": {}} for n in range(10_000)]
    begin = time.perf_counter()
    assert len(printer.table(objects, NOW)["rows"]) == 10_000
    assert time.perf_counter() - begin < 1.0  # an order of magnitude above what it takes
