"""The audit log: complete, bounded, and without a single value."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.api.audit import AuditLog, Record, fields_changed
from homeostat.api.auth.user import User

ALICE = User("alice", groups=("dev",))


def record(**more):
    return Record(**{"time": 1_800_000_000.25, "id": "r1", "user": ALICE, "verb": "update", "code": 200, **more})


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def log(tmp_path):
    made = AuditLog(tmp_path / "audit.log", flush_seconds=30)
    yield made
    made.close()


def test_a_record_says_who_did_what_to_which_object(log):
    thing = {"group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale", "namespace": "n"}
    more = {"latency": 0.0015, "source": "10.0.0.1", "impersonated_by": User("root"), "change_set": "c1"}
    log.record(record(**thing, name="web", uid="u", **more, fields=["spec.replicas"], dry_run=True))
    log.flush()
    assert lines(log.path) == [
        {
            "time": "2027-01-15T08:00:00.250000Z",
            "id": "r1",
            "user": {"name": "alice", "groups": ["dev"]},
            "impersonatedBy": {"name": "root", "groups": []},
            "sourceIP": "10.0.0.1",
            "verb": "update",
            "object": {**thing, "name": "web", "uid": "u"},
            "fieldsChanged": ["spec.replicas"],
            "changeSet": "c1",
            "dryRun": True,
            "code": 200,
            "latencyMs": 1.5,
        }
    ]


def test_a_path_is_logged_without_its_query(log):
    log.record(record(user=None, verb="get", code=401, path="/metrics?token=hst_secret"))
    log.flush()
    (line,) = lines(log.path)
    assert line["path"] == "/metrics"
    assert line["user"] is None
    assert "hst_secret" not in log.path.read_text()


@pytest.mark.parametrize(
    ("verb", "group", "resource", "code", "wanted"),
    [
        ("create", "", "configmaps", 201, True),
        ("get", "", "configmaps", 200, False),
        ("watch", "apps", "deployments", 200, False),
        ("get", "", "secrets", 200, True),
        ("list", "", "secrets", 200, True),
        ("get", "", "configmaps", 403, True),
        ("get", "", "", 401, True),
        ("get", "other.io", "secrets", 200, False),
    ],
)
def test_writes_refusals_and_reads_of_secrets_are_logged(log, verb, group, resource, code, wanted):
    assert log.wants(verb, group, resource, code) is wanted


def test_every_read_is_logged_where_that_is_asked_for(tmp_path):
    log = AuditLog(tmp_path / "a", reads=True)
    assert log.wants("list", "", "configmaps", 200)
    log.close()


def test_a_line_in_a_name_makes_no_second_line(log):
    log.record(record(resource="x", name='a\n{"user":"forged"}', namespace="\ud800"))
    log.flush()
    assert len(lines(log.path)) == 1


def test_long_names_are_shortened(log):
    log.record(record(user=User("u" * 10_000), resource="x", name="n" * 10_000))
    log.flush()
    assert len(log.path.read_bytes()) < 1500


def test_the_log_is_readable_by_its_owner_only(log):
    log.record(record())
    log.flush()
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_records_are_written_soon_without_being_asked(tmp_path):
    log = AuditLog(tmp_path / "audit.log", flush_seconds=0.01)
    written = threading.Event()
    real = log._write
    log._write = lambda: (real(), written.set())
    log.record(record())
    assert written.wait(5)
    assert len(lines(log.path)) == 1
    log.close()


def test_closing_writes_what_waits_and_twice_is_harmless(tmp_path):
    log = AuditLog(tmp_path / "audit.log", flush_seconds=30)
    for number in range(1000):
        log.record(record(id=str(number)))
    log.close()
    log.close()
    assert [line["id"] for line in lines(log.path)] == [str(number) for number in range(1000)]
    log.record(record())
    assert log.lost == 1


def test_a_restart_goes_on_in_the_same_file(tmp_path):
    for number in range(2):
        log = AuditLog(tmp_path / "audit.log")
        log.record(record(id=str(number)))
        log.close()
    assert [line["id"] for line in lines(log.path)] == ["0", "1"]


def test_files_are_put_aside_when_full_and_the_oldest_go(tmp_path):
    log = AuditLog(tmp_path / "audit.log", max_bytes=1000, keep_files=3, flush_seconds=30)
    for number in range(100):
        log.record(record(id=f"{number:03}"))
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    kept = [line["id"] for name in reversed(files) for line in lines(tmp_path / name)]
    assert kept == [f"{number:03}" for number in range(100)][-len(kept) :]
    assert len(kept) >= 10


def test_a_disk_that_fails_is_reported_once_and_loses_nothing_that_fits(tmp_path):
    told = []
    (tmp_path / "gone").mkdir()
    log = AuditLog(tmp_path / "gone" / "audit.log", flush_seconds=30, queue_limit=3, report=told.append)
    (tmp_path / "gone").rmdir()
    for number in range(5):
        log.record(record(id=str(number)))
        log.flush()
    assert len(told) == 1
    assert "cannot be written" in told[0]
    assert (log.failures, log.lost) == (5, 2)
    (tmp_path / "gone").mkdir()
    log.close()
    assert [line["id"] for line in lines(log.path)] == ["0", "1", "2"]


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    import os

    log = AuditLog(tmp_path / "audit.log", flush_seconds=30, report=lambda _: None)
    log.record(record(id="a"))
    log.flush()
    real = os.write

    def full(descriptor, data):
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: len(data) - 19])

    monkeypatch.setattr(os, "write", full)
    log.record(record(id="b"))
    log.flush()
    monkeypatch.setattr(os, "write", real)
    assert [line["id"] for line in lines(log.path)] == ["a"]
    log.close()
    assert [line["id"] for line in lines(log.path)] == ["a", "b"]


def test_closing_in_the_middle_of_a_flush_ends(tmp_path):
    flushing, closing = threading.Event(), threading.Event()

    class Held(AuditLog):
        def flush(self):
            flushing.set()
            closing.wait(10)
            super().flush()

    log = Held(tmp_path / "audit.log", flush_seconds=0)
    log.record(record())
    flushing.wait(10)
    closer = threading.Thread(target=log.close, daemon=True)
    closer.start()
    log._stopped.wait(10)
    closing.set()
    closer.join(10)
    assert not closer.is_alive()
    assert len(lines(log.path)) == 1


def test_the_log_follows_no_link(tmp_path):
    told = []
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "audit.log").symlink_to(tmp_path / "precious")
    log = AuditLog(tmp_path / "audit.log", report=told.append)
    log.record(record())
    log.close()
    assert (tmp_path / "precious").read_text() == "keep me"
    assert told


# What changed


def test_changed_fields_are_named_by_path():
    old = {"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "containers": [{"image": "a"}, {"image": "b"}]}}
    new = {
        "metadata": {"labels": {"a": "1", "app.kubernetes.io/name": "x"}},
        "spec": {"replicas": 2, "containers": [{"image": "a"}, {"image": "c"}]},
    }
    assert sorted(fields_changed(old, new)) == [
        "metadata.labels[app.kubernetes.io/name]",
        "spec.containers[1].image",
        "spec.replicas",
    ]


def test_a_list_that_grew_is_named_as_a_whole():
    assert fields_changed({"a": [1]}, {"a": [1, 2]}) == ["a"]


def test_a_field_that_appears_empty_has_changed():
    assert fields_changed({}, {"a": []}) == ["a"]
    assert fields_changed({"a": None}, {}) == ["a"]


def test_what_follows_from_other_changes_is_left_out():
    old = {"metadata": {"resourceVersion": "1", "generation": 1, "managedFields": []}, "spec": {"a": 1}}
    new = {"metadata": {"resourceVersion": "2", "generation": 2, "managedFields": [1]}, "spec": {"a": 2}}
    assert fields_changed(old, new) == ["spec.a"]


def test_a_creation_and_a_deletion_name_no_fields():
    assert fields_changed(None, {"a": 1}) == []
    assert fields_changed({"a": 1}, None) == []


def test_of_many_changes_some_are_named():
    found = fields_changed({}, {f"k{number}": 1 for number in range(1000)}, limit=10)
    assert len(found) == 11
    assert found[-1] == "…"


def test_a_deep_change_is_named_as_far_as_it_is_followed():
    def nest(depth, leaf):
        for _ in range(depth):
            leaf = {"a": leaf}
        return leaf

    (path,) = fields_changed(nest(200, 1), nest(200, 2))
    assert path == ".".join("a" * 32)


def test_a_secrets_values_never_show_only_its_keys():
    old = {"kind": "Secret", "data": {"password": "aHVudGVyMg=="}, "stringData": {}}
    new = {"kind": "Secret", "data": {"password": "c3dvcmRmaXNo"}, "stringData": {"pin": "1234"}}
    assert fields_changed(old, new) == ["data.password", "stringData.pin"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("VALUE"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4)


@given(objects, objects)
def test_paths_are_given_where_objects_differ_and_never_hold_a_value(old, new):
    found = fields_changed(old, new)
    assert bool(found) == (old != new)
    assert "VALUE" not in "".join(found)
