"""Files under the real engine, on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import WAIT_SECONDS, Bench, ready, running

from homeostat.guards import default_policy
from homeostat.loop.declarations import ADOPT
from homeostat.model.errors import ApiError
from homeostat.providers.file import File

ADOPTED = {ADOPT: "true"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
async def bench(tmp_path: Path, root: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path, lambda: File(allowed=[root])) as bench:
        yield bench


async def soon(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.002)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# A file


async def test_a_declared_file_is_written_with_its_content_and_mode(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "welcome\n", "mode": "0640"})
    obj = await bench.ready("motd")
    assert path.read_text() == "welcome\n"
    assert mode(path) == 0o640
    assert obj["status"]["lastApplied"]["digest"].startswith("sha256:")
    assert "welcome" not in str(obj["status"])


async def test_bytes_are_declared_in_base64_and_an_empty_file_by_nothing(bench: Bench, root: Path) -> None:
    await bench.declare("bytes", {"path": str(root / "bytes"), "contentBase64": "AP8="})
    await bench.declare("empty", {"path": str(root / "empty")})
    await bench.ready("bytes")
    await bench.ready("empty")
    assert (root / "bytes").read_bytes() == b"\x00\xff"
    assert (root / "empty").read_bytes() == b""


async def test_a_changed_declaration_changes_the_file(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "one"})
    await bench.ready("motd")
    await bench.declare("motd", {"path": str(path), "content": "two"})
    await bench.ready("motd")
    assert path.read_text() == "two"


async def test_who_declared_another_content_is_named_also_by_a_loop_that_begins_later(bench: Bench, root: Path) -> None:
    def named(obj: dict[str, Any]) -> bool:
        return bool(obj["status"].get("drift", {}).get("by") == ["test"])

    await bench.declare("motd", {"path": str(root / "motd"), "content": "one"})
    await bench.ready("motd")
    _observe(bench)
    await bench.declare("motd", {"path": str(root / "motd"), "content": "two"})
    await bench.until("motd", named)
    await bench.stop()
    await bench.start()
    _observe(bench)
    (root / "motd").write_text("by somebody else, too")
    found = await bench.until("motd", lambda obj: bool(obj["status"].get("drift", {}).get("cause") == "both"))
    assert named(found)


async def test_nobody_is_named_where_only_what_a_file_refers_to_was_changed(bench: Bench, root: Path) -> None:
    await bench.secret("app", token="one")
    await bench.declare("token", {"path": str(root / "token"), "template": "{{ app.token }}", "values": [{"name": "app", "secret": "app"}]})
    await bench.ready("token")
    _observe(bench)
    await bench.secret("app", token="two")
    found = await bench.until("token", lambda obj: "drift" in obj["status"])
    assert "by" not in found["status"]["drift"]


def _observe(bench: Bench) -> None:
    bench.gate.built_in[bench.provider.info.name] = default_policy(bench.provider.info.name)
    bench.engine.regroup()


@pytest.mark.parametrize("loss", ["edited", "removed", "permissions", "replaced by a link"])
async def test_drift_is_noticed_by_itself_and_repaired(bench: Bench, root: Path, loss: str) -> None:
    path, elsewhere = root / "motd", root / "elsewhere"
    elsewhere.write_text("not mine")
    await bench.declare("motd", {"path": str(path), "content": "welcome"})
    await bench.ready("motd")
    if loss == "edited":
        path.write_text("defaced")
    elif loss == "permissions":
        path.chmod(0o777)
    else:
        path.unlink()
        if loss == "replaced by a link":
            path.symlink_to(elsewhere)
    await soon(
        lambda: path.is_file() and not path.is_symlink() and path.read_text() == "welcome" and mode(path) == 0o644
    )
    await bench.ready("motd")
    assert elsewhere.read_text() == "not mine"


async def test_drift_on_a_watched_file_is_noticed_within_50_ms(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "welcome"})
    await bench.ready("motd")
    await asyncio.sleep(0.05)  # the hints of our own writing have come in by then
    noticed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    provider, observe = bench.provider, bench.provider.observe

    async def timed(spec: Any) -> Any:
        state = await observe(spec)
        if not noticed.done():
            noticed.set_result(time.perf_counter())
        return state

    provider.observe = timed  # type: ignore[method-assign]
    began = time.perf_counter()
    path.write_text("defaced")
    assert await asyncio.wait_for(noticed, WAIT_SECONDS) - began < 0.05


async def test_once_as_declared_nothing_is_written_any_more(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "welcome"})
    before = await bench.ready("motd")
    inode = path.stat().st_ino
    for _ in range(3):
        await bench.whole_pass()
    assert (await bench.kind.get("motd"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert path.stat().st_ino == inode


async def test_a_file_that_was_there_is_left_alone_until_it_is_adopted(bench: Bench, root: Path) -> None:
    path = root / "motd"
    path.write_text("somebody's")
    spec = {"path": str(path), "content": "mine"}
    await bench.declare("motd", spec)
    assert "adopt" in await bench.reason("motd", "Held")
    assert path.read_text() == "somebody's"
    await bench.declare("motd", spec, ADOPTED)
    bench.look_again()
    await soon(lambda: path.read_text() == "mine")


async def test_owner_and_group_stay_as_they_are_where_nobody_declares_them(bench: Bench, root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = root / "motd"
    path.write_text("old")
    os.chown(path, 12345, 54321)
    await bench.declare("motd", {"path": str(path), "content": "new"}, ADOPTED)
    await bench.ready("motd")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


async def test_a_declared_owner_is_given_by_name_or_id_and_kept(bench: Bench, root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "x", "owner": 4242, "group": "root"})
    await bench.ready("motd")
    assert (path.stat().st_uid, path.stat().st_gid) == (4242, 0)
    os.chown(path, 0, 4242)
    await soon(lambda: (path.stat().st_uid, path.stat().st_gid) == (4242, 0))


async def test_an_owner_that_nobody_knows_is_said_to_be_so(bench: Bench, root: Path) -> None:
    await bench.declare("motd", {"path": str(root / "motd"), "owner": "nobody-of-that-name"})
    assert "no user 'nobody-of-that-name'" in await bench.reason("motd", "Unreadable")


# Where


@pytest.mark.parametrize("path", ["/etc/motd", "{root}/../escaped", "{root}//x", "{root}", "{root}/./x", "{root}/x/"])
async def test_what_is_not_plainly_below_an_allowed_root_is_refused(bench: Bench, root: Path, path: str) -> None:
    await bench.declare("motd", {"path": path.format(root=root), "content": "x"})
    await bench.reason("motd", "Unreadable")
    assert not (root.parent / "escaped").exists()


async def test_no_link_is_followed_on_the_way(bench: Bench, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "inside").symlink_to(outside)
    await bench.declare("motd", {"path": str(root / "inside" / "motd"), "content": "x", "parents": True})
    assert "symbolic link" in await bench.reason("motd", "Unreadable")
    assert list(outside.iterdir()) == []


async def test_without_an_allow_list_everything_is_refused(tmp_path: Path, root: Path) -> None:
    async with running(tmp_path, File) as bench:
        await bench.declare("motd", {"path": str(root / "motd"), "content": "x"})
        assert "--allow file:PATH" in await bench.reason("motd", "Unreadable")
        assert list(root.iterdir()) == []


async def test_a_root_that_has_gone_makes_its_files_unknown_and_not_absent(bench: Bench, root: Path) -> None:
    await bench.declare("motd", {"path": str(root / "motd"), "content": "x"})
    await bench.ready("motd")
    away = root.rename(root.with_name("unmounted"))
    bench.look_again()
    assert "allowed root" in await bench.reason("motd", "Unreadable")
    assert not root.exists()
    away.rename(root)
    bench.look_again()
    await bench.ready("motd")


async def test_the_path_of_a_file_cannot_be_changed(bench: Bench, root: Path) -> None:
    await bench.declare("motd", {"path": str(root / "a")})
    with pytest.raises(ApiError, match="declare another File"):
        await bench.declare("motd", {"path": str(root / "b")})


async def test_missing_directories_are_only_made_when_that_is_said(bench: Bench, root: Path) -> None:
    path = root / "a" / "b" / "motd"
    await bench.declare("motd", {"path": str(path), "content": "x"})
    assert "parents: true" in await bench.reason("motd", "ActionFailed")
    assert not (root / "a").exists()
    await bench.declare("motd", {"path": str(path), "content": "x", "parents": True})
    obj = await bench.ready("motd")
    assert path.read_text() == "x"
    assert obj["status"]["kept"]["directories"] == [str(root / "a"), str(root / "a" / "b")]


# Templates


async def test_a_template_takes_its_values_from_config_maps_and_secrets(bench: Bench, root: Path) -> None:
    maps = bench.client.kind("v1", "ConfigMap", namespace="default")
    await maps.create({"metadata": {"name": "app"}, "data": {"host.name": "db.local"}})
    await bench.secret("app", password="hunter2")
    spec = {
        "path": str(root / "app.ini"),
        "template": "host={{ app.host.name }}\npassword={{secrets.password}}\nliteral={{{{ x }}\n",
        "values": [{"name": "app", "configMap": "app"}, {"name": "secrets", "secret": "app"}],
    }
    await bench.declare("app", spec)
    obj = await bench.ready("app")
    assert (root / "app.ini").read_text() == "host=db.local\npassword=hunter2\nliteral={{ x }}\n"
    assert "hunter2" not in str(obj)
    assert obj["status"]["lastApplied"]["digest"].startswith("hmac-sha256:")


async def test_a_changed_secret_is_followed_at_once(bench: Bench, root: Path) -> None:
    path = root / "token"
    await bench.secret("app", token="one")
    spec = {"path": str(path), "template": "{{ app.token }}", "values": [{"name": "app", "secret": "app"}]}
    await bench.declare("token", spec)
    await bench.ready("token")
    await bench.secret("app", token="two")
    await soon(lambda: path.read_text() == "two")


async def test_what_a_template_lacks_makes_the_file_unknown_until_it_is_there(bench: Bench, root: Path) -> None:
    path = root / "token"
    spec = {"path": str(path), "template": "{{ app.token }}", "values": [{"name": "app", "secret": "app"}]}
    await bench.declare("token", spec)
    assert "Secret default/app is not there" in await bench.reason("token", "Unreadable")
    await bench.secret("app", other="x")
    await bench.until("token", lambda obj: "no key 'token'" in ready(obj).get("message", ""))
    assert not path.exists()
    await bench.secret("app", token="one")
    await bench.ready("token")
    assert path.read_text() == "one"


async def test_a_file_can_be_deleted_when_its_secret_is_gone(bench: Bench, root: Path) -> None:
    path = root / "token"
    await bench.secret("app", token="one")
    spec = {"path": str(path), "template": "{{ app.token }}", "values": [{"name": "app", "secret": "app"}]}
    await bench.declare("token", spec)
    await bench.ready("token")
    await bench.client.kind("v1", "Secret", namespace="default").delete("app")
    await bench.reason("token", "Unreadable")
    assert path.read_text() == "one"
    await bench.kind.delete("token")
    await bench.gone("token")
    assert not path.exists()


async def test_braces_that_mean_nothing_are_pointed_at(bench: Bench, root: Path) -> None:
    await bench.declare("token", {"path": str(root / "token"), "template": "a\nb {{ oops }}"})
    assert "line 2 of the template" in await bench.reason("token", "Unreadable")


# Directories


def tree(root: Path) -> dict[str, str]:
    """The files below a directory; what is just being written, and has its name for a moment only, is not one of them."""
    found = {}
    for path in sorted(root.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.name.startswith(".homeostat-"):
                found[str(path.relative_to(root))] = path.read_text()
    return found


def files(**content: str) -> dict[str, Any]:
    return {name.replace("__", "/"): {"content": text} for name, text in content.items()}


async def test_a_directory_is_made_with_its_files_and_kept_so(bench: Bench, root: Path) -> None:
    top = root / "app"
    await bench.declare(
        "app", {"kind": "directory", "path": str(top), "mode": "0750", "files": files(a="1", sub__b="2")}
    )
    await bench.ready("app")
    assert tree(top) == {"a": "1", "sub/b": "2"}
    assert mode(top) == 0o750
    (top / "sub" / "b").write_text("changed")
    (top / "a").unlink()
    await soon(lambda: tree(top) == {"a": "1", "sub/b": "2"})
    top.chmod(0o777)
    await soon(lambda: mode(top) == 0o750)


async def test_files_that_are_declared_no_more_go_and_those_of_others_stay(bench: Bench, root: Path) -> None:
    top = root / "app"
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1", sub__b="2", c="3")})
    await bench.ready("app")
    (top / "theirs").write_text("x")
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1")})
    await bench.ready("app")
    assert tree(top) == {"a": "1", "theirs": "x"}
    assert not (top / "sub").exists()
    obj = await bench.kind.get("app")
    assert list(obj["status"]["lastApplied"]["files"]) == ["a"]


async def test_a_file_of_others_is_not_overwritten_for_being_declared_later(bench: Bench, root: Path) -> None:
    top = root / "app"
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1")})
    await bench.ready("app")
    (top / "b").write_text("theirs")
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1", b="mine")})
    assert "b exists and is not ours" in await bench.reason("app", "Held")
    assert (top / "b").read_text() == "theirs"


async def test_purging_takes_what_nobody_declared_and_nothing_else(bench: Bench, root: Path, tmp_path: Path) -> None:
    top, outside = root / "app", tmp_path / "outside"
    outside.write_text("safe")
    await bench.declare("own", {"path": str(top / "conf.d" / "own"), "content": "o", "parents": True})
    await bench.ready("own")
    (top / "stray" / "deep").mkdir(parents=True)
    (top / "stray" / "deep" / "file").write_text("x")
    (top / "link").symlink_to(outside)
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1")}, ADOPTED)
    await bench.ready("app")
    assert (top / "stray" / "deep" / "file").exists()
    spec = {"kind": "directory", "path": str(top), "files": files(a="1"), "purge": True}
    await bench.declare("app", spec, ADOPTED)
    await bench.ready("app")
    assert tree(top) == {"a": "1", "conf.d/own": "o"}
    assert sorted(p.name for p in top.iterdir()) == ["a", "conf.d"]
    assert outside.read_text() == "safe"
    (top / "new").write_text("x")
    await soon(lambda: not (top / "new").exists())


async def test_a_directory_in_the_place_of_a_file_is_not_removed(bench: Bench, root: Path) -> None:
    top = root / "app"
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1", b="2")})
    await bench.ready("app")
    (top / "a").unlink()
    (top / "a").mkdir()
    (top / "a" / "precious").write_text("x")
    assert "is a directory" in await bench.reason("app", "ActionFailed")
    assert (top / "a" / "precious").read_text() == "x"


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped", "a/../../escaped", ".homeostat-x"])
async def test_files_of_a_directory_do_not_leave_it(bench: Bench, root: Path, name: str) -> None:
    await bench.declare("app", {"kind": "directory", "path": str(root / "app"), "files": {name: {"content": "x"}}})
    await bench.until("app", lambda obj: "not a plain path" in str(obj.get("status")))
    assert not (root / "escaped").exists()


async def test_what_makes_no_sense_is_refused_by_the_api(bench: Bench, root: Path) -> None:
    path = str(root / "x")
    with pytest.raises(ApiError, match="one of content"):
        await bench.declare("x", {"path": path, "content": "a", "template": "b"})
    with pytest.raises(ApiError, match="its files do"):
        await bench.declare("x", {"path": path, "kind": "directory", "content": "a"})
    with pytest.raises(ApiError, match="for directories"):
        await bench.declare("x", {"path": path, "purge": True})
    with pytest.raises(ApiError, match=r"spec\.mode"):
        await bench.declare("x", {"path": path, "mode": "4755"})


# Deleting


async def test_deleting_removes_the_file_and_the_directories_that_were_made_for_it(bench: Bench, root: Path) -> None:
    (root / "there").mkdir()
    await bench.declare("motd", {"path": str(root / "there" / "a" / "b" / "motd"), "content": "x", "parents": True})
    await bench.ready("motd")
    await bench.kind.delete("motd")
    await bench.gone("motd")
    assert [p.name for p in root.iterdir()] == ["there"]
    assert list((root / "there").iterdir()) == []


async def test_deleting_leaves_what_others_put_beside(bench: Bench, root: Path) -> None:
    top = root / "app"
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1", sub__b="2")})
    await bench.ready("app")
    (top / "sub" / "theirs").write_text("x")
    await bench.kind.delete("app")
    await bench.gone("app")
    assert tree(root) == {"app/sub/theirs": "x"}


async def test_a_root_whose_disk_is_gone_is_unknown_and_nothing_is_made_in_its_place(bench: Bench, root: Path) -> None:
    await bench.declare("motd", {"path": str(root / "motd"), "content": "hello"})
    await bench.ready("motd")
    if shutil.which("mount") is None or subprocess.run(["mount", "-t", "tmpfs", "none", root], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        await bench.whole_pass()
        assert "is on another file system than when the loop began" in await bench.reason("motd", "Unreadable")
        assert os.listdir(root) == []
    finally:
        subprocess.run(["umount", "-l", root], check=True)
    await bench.whole_pass()
    await bench.ready("motd")


async def test_a_declaration_renamed_by_adoption_leaves_the_file_to_the_new_one(bench: Bench, root: Path) -> None:
    await bench.declare("old", {"path": str(root / "motd"), "content": "hello"})
    await bench.ready("old")
    made = (root / "motd").stat().st_ino
    await bench.declare("new", {"path": str(root / "motd"), "content": "hello"}, {ADOPT: "true"})
    await bench.ready("new")
    await bench.kind.delete("old")
    await bench.gone("old")
    assert (root / "motd").stat().st_ino == made, "it was neither deleted nor made anew"
    await bench.kind.delete("new")
    await bench.gone("new")
    assert not (root / "motd").exists(), "it is the new one's, and goes with it"


async def test_deleting_an_adopted_directory_leaves_the_directory(bench: Bench, root: Path) -> None:
    top = root / "app"
    top.mkdir()
    await bench.declare("app", {"kind": "directory", "path": str(top), "files": files(a="1")}, ADOPTED)
    await bench.ready("app")
    await bench.kind.delete("app")
    await bench.gone("app")
    assert list(root.iterdir()) == [top]
    assert list(top.iterdir()) == []


async def test_deleting_a_declaration_that_was_never_adopted_leaves_the_file(bench: Bench, root: Path) -> None:
    path = root / "motd"
    path.write_text("x")
    await bench.declare("motd", {"path": str(path), "content": "y"})
    await bench.reason("motd", "Held")
    await bench.kind.delete("motd")
    await bench.gone("motd")
    assert path.read_text() == "x"


async def test_a_forged_status_does_not_make_it_remove_what_lies_elsewhere(bench: Bench, root: Path) -> None:
    path = root / "motd"
    (root / "empty").mkdir()
    await bench.declare("motd", {"path": str(path), "content": "x"})
    await bench.ready("motd")
    forged = {"kept": {"directories": [str(root / "empty"), "/tmp/../etc", str(root)]}}
    await bench.kind.patch("motd", {"status": forged}, subresource="status")
    await bench.kind.delete("motd")
    await bench.gone("motd")
    assert (root / "empty").is_dir()


# Trouble


async def test_a_restart_finds_everything_as_it_was_and_goes_on_watching(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.declare("motd", {"path": str(path), "content": "x"})
    await bench.ready("motd")
    await bench.stop()
    inode = path.stat().st_ino
    (root / "other").write_text("while nobody looked")
    await bench.start()
    await bench.whole_pass()
    assert path.stat().st_ino == inode
    path.write_text("drift")
    await soon(lambda: path.read_text() == "x")


async def test_a_creation_cut_off_by_a_crash_is_finished(bench: Bench, root: Path) -> None:
    path = root / "motd"
    await bench.stop()
    await bench.declare("motd", {"path": str(path), "content": "whole"})
    intent = {"op": "create", "madeFrom": "x", "key": "k", "at": "2026-01-01T00:00:00Z"}
    await bench.kind.patch("motd", {"status": {"intent": intent}}, subresource="status")
    path.write_text("")  # it was about to be made
    await bench.start()
    await bench.ready("motd")
    assert path.read_text() == "whole"


async def test_content_over_the_limit_is_refused_and_a_huge_file_is_replaced_unread(tmp_path: Path, root: Path) -> None:
    async with running(tmp_path, lambda: File(allowed=[root], limit=10)) as bench:
        await bench.declare("big", {"path": str(root / "big"), "content": "12345678901"})
        assert "more than 10 are refused" in await bench.reason("big", "Unreadable")
        await bench.declare("small", {"path": str(root / "small"), "content": "1"})
        await bench.ready("small")
        with (root / "small").open("wb") as file:
            file.truncate(1 << 40)
        await soon(lambda: (root / "small").stat().st_size == 1)
