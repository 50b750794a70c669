"""What becomes of nodes and pools: functions of what is declared, decided and written down."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from homeostat.gpu.decisions import Constraint, Decision, Verb
from homeostat.gpu.kinds import NodeStage, PoolNode
from homeostat.gpu.membership import got_by, pool_of, strays
from homeostat.gpu.objects import Reader
from homeostat.gpu.pools.standing import (
    PoolWish,
    by_node,
    distrust,
    has_joined,
    is_silent,
    late_ones,
    node_wish,
    pool_state,
    pool_wish,
    unwanted_ones,
)
from homeostat.gpu.pools.ways import Had, PoolFailed, listed, obtained
from homeostat.model.clock import format_time

Object = dict[str, Any]
NOW = 1_800_000_000.0
OPEN, CORDONED, DRAINING, GIVING_BACK = NodeStage.OPEN, NodeStage.CORDONED, NodeStage.DRAINING, NodeStage.GIVING_BACK


def decision(verb: Verb, name: str = "n", kind: str = "GpuNode", count: int = 1) -> Decision:
    constraint = Constraint.COST if verb in (Verb.SCALE_DOWN, Verb.DRAIN) else Constraint.FAILURE
    return Decision(verb=verb, kind=kind, subject=name, name=name, reason="why", constraint=constraint, count=count)


def node(name: str = "n", stage: str = "Open", constraint: str = "") -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"stage": stage, "constraint": constraint}}


def pool(*machines: Object, maximum: int = 4, **meta: Any) -> Object:
    return {"metadata": {"name": "p", **meta}, "spec": {"maximum": maximum}, "status": {"machines": list(machines)}}


def had(name: str, **more: str) -> Object:
    return {"key": f"k-{name}", "node": name, **more}


def unjoined(count: int, ago: float, *machines: Object) -> Object:
    return {"unjoined": count, "unjoinedAt": format_time(NOW - ago), "machines": list(machines)}


@pytest.mark.parametrize(("count", "pause"), [(2, 600), (3, 1200), (5, 4800), (40, 86_400)])
def test_a_pool_whose_nodes_do_not_join_is_asked_again_after_a_pause_that_grows(count: int, pause: float) -> None:
    assert distrust(unjoined(1, 1), (), NOW, 600) == ""
    assert f"what it gave did not join within 10 min, {count} times in a row" in distrust(unjoined(count, pause - 1), (), NOW, 600)
    assert distrust(unjoined(count, pause), (), NOW, 600) == ""


def test_a_node_that_joins_ends_the_mistrust_and_one_that_joined_before_does_not() -> None:
    new, old = had("new", since=format_time(NOW - 5)), had("old", since=format_time(NOW - 500))
    assert has_joined(unjoined(3, 10, new), {"new"})
    assert distrust(unjoined(3, 10, new), {"new"}, NOW, 600) == ""
    assert not has_joined(unjoined(3, 10, old), {"old"})
    assert distrust(unjoined(3, 10, old, new), {"old"}, NOW, 600)


@pytest.mark.parametrize(
    ("stage", "verb", "facts", "becomes"),
    [
        (OPEN, None, {}, OPEN),
        (OPEN, Verb.CORDON, {}, CORDONED),
        (OPEN, Verb.SCALE_DOWN, {}, DRAINING),
        (OPEN, Verb.REPLACE, {}, DRAINING),
        (DRAINING, Verb.SCALE_DOWN, {}, GIVING_BACK),
        (DRAINING, Verb.DRAIN, {}, GIVING_BACK),
        (DRAINING, Verb.REPLACE, {}, GIVING_BACK),
        (DRAINING, Verb.REPLACE, {"replaced": False}, DRAINING),
        (DRAINING, Verb.SCALE_DOWN, {"empty": False}, DRAINING),
        (DRAINING, Verb.REPLACE, {"empty": False}, DRAINING),
        (DRAINING, Verb.REPLACE, {"mine": False}, DRAINING),
        (OPEN, Verb.SCALE_DOWN, {"mine": False}, OPEN),
        (DRAINING, Verb.SCALE_DOWN, {"mine": False}, OPEN),
        (DRAINING, None, {}, OPEN),
        (CORDONED, None, {}, OPEN),
        (GIVING_BACK, None, {}, GIVING_BACK),
        (GIVING_BACK, Verb.CORDON, {"mine": False, "empty": False}, GIVING_BACK),
    ],
)
def test_a_node_is_drained_before_it_is_given_back_and_opened_when_nothing_is_the_matter(
    stage: NodeStage, verb: Verb | None, facts: dict[str, bool], becomes: NodeStage
) -> None:
    said = None if verb is None else decision(verb)
    known = {"empty": True, "mine": True, "replaced": True, **facts}
    assert node_wish(node(stage=str(stage)), said, **known).stage is becomes


def test_a_node_that_is_being_emptied_for_its_cost_stays_so_until_it_is_empty() -> None:
    moving = node(stage="Draining", constraint="cost")
    assert node_wish(moving, None, empty=False, mine=True, replaced=False).stage is DRAINING
    assert node_wish(moving, None, empty=True, mine=True, replaced=False).stage is OPEN
    assert node_wish(moving, None, empty=False, mine=True, replaced=False, needed=True).stage is OPEN


def test_of_several_decisions_on_a_node_the_strongest_counts() -> None:
    found = by_node([decision(Verb.REPLACE), decision(Verb.CORDON), decision(Verb.REPORT), decision(Verb.SCALE_UP, "p", "NodePool")])
    assert {name: one.verb for name, one in found.items()} == {"n": Verb.REPLACE}


def test_a_node_is_replaced_by_one_and_not_by_another_when_that_was_asked_for() -> None:
    lost, nodes = {"a": decision(Verb.REPLACE, "a")}, [node("a"), node("b")]
    wish = pool_wish(pool(had("a"), had("b")), nodes, lost, None)
    assert (wish.nodes, wish.replaces, wish.replaced) == (2, ("uid-a",), {"a"})
    coming = {"key": "k-c", "replaces": "uid-a"}
    wish = pool_wish(pool(had("a"), had("b"), coming), nodes, lost, None)
    assert (wish.nodes, wish.replaces) == (2, ())


def test_a_replacement_and_a_backlog_are_met_by_the_same_node() -> None:
    asked = decision(Verb.SCALE_UP, "p", "NodePool", count=1)
    wish = pool_wish(pool(had("a")), [node("a")], {"a": decision(Verb.REPLACE, "a")}, asked)
    assert wish.nodes == 1


def test_no_more_are_asked_for_than_the_maximum_whoever_brought_those_that_are_there() -> None:
    asked = decision(Verb.SCALE_UP, "p", "NodePool", count=9)
    assert pool_wish(pool(had("a"), maximum=3), [node("a"), node("brought")], {}, asked).nodes == 2
    assert pool_wish(pool(had("a"), maximum=0), [node("a")], {}, asked).nodes == 1
    assert pool_wish(pool(had("a"), deletionTimestamp="now"), [node("a")], {}, asked).nodes == 1


def refused(name: str, **more: str) -> Object:
    return {"key": f"k-{name}", "refused": "no more quota", **more}


def test_what_was_refused_is_asked_for_again_by_the_same_key_and_not_beside_a_new_one() -> None:
    asked = decision(Verb.SCALE_UP, "p", "NodePool", count=2)
    wish = pool_wish(pool(refused("a"), refused("b")), [], {}, asked)
    assert wish.nodes == 2
    assert unwanted_ones([PoolNode(key="k-a", refused="no"), PoolNode(key="k-b", refused="no")], wish) == frozenset()


def test_what_was_refused_and_is_wanted_no_more_is_given_back() -> None:
    machines = [PoolNode(key="k-a", node="a"), PoolNode(key="k-b", refused="no"), PoolNode(key="k-c"), PoolNode(key="k-d", refused="no")]
    assert pool_wish(pool(had("a"), refused("b"), {"key": "k-c"}, refused("d")), [node("a")], {}, None).nodes == 2
    assert unwanted_ones(machines, PoolWish(2)) == {"k-b", "k-d"}
    assert unwanted_ones(machines, PoolWish(3)) == {"k-d"}
    assert unwanted_ones(machines, PoolWish(4)) == frozenset()
    assert unwanted_ones(machines[:1], PoolWish(0)) == frozenset(), "a node that is there goes another way"


def test_a_replacement_that_was_refused_is_still_wanted_until_the_node_is_back() -> None:
    lost, machines = {"a": decision(Verb.REPLACE, "a")}, (had("a"), refused("c", replaces="uid-a"))
    wish = pool_wish(pool(*machines), [node("a")], lost, None)
    assert (wish.nodes, wish.replaces) == (1, ("uid-a",))
    assert unwanted_ones([PoolNode(key="k-a", node="a"), PoolNode(key="k-c", refused="no", replaces="uid-a")], wish) == frozenset()
    assert pool_wish(pool(*machines), [node("a")], {}, None).nodes == 1


def test_a_node_that_no_pool_gave_is_not_replaced_by_one() -> None:
    assert pool_wish(pool(), [node("a")], {"a": decision(Verb.REPLACE, "a")}, None).nodes == 0


def test_what_has_not_joined_in_time_or_is_no_more_is_late() -> None:
    def machine(key: str, ago: float, node: str = "") -> PoolNode:
        return PoolNode(key=key, node=node or f"m-{key}", since=datetime.fromtimestamp(NOW - ago, UTC))

    machines = [machine("here", 900), machine("fresh", 9), machine("late", 900), machine("gone", 9), PoolNode(key="asked")]
    there = [Had(key, f"m-{key}") for key in ("here", "fresh", "late")]
    late = late_ones(machines, there, {"m-here"}, NOW, 600)
    assert late == {"late", "gone"}
    state = pool_state(machines, late, {"m-fresh"})
    assert (state.nodes, state.late) == (1, 2)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"{}", 'has no "nodes"'),
        (b'{"nodes": [{"node": "a"}]}', '"key"'),
        (b'{"nodes": [{"key": "a", "node": "Not A Name"}]}', "cannot be the name of a node"),
        (b'{"nodes": [{"key": "a"}, {"key": "a"}]}', "twice"),
        (b'{"nodes": [{"key": "a", "node": "vm"}, {"key": "b", "node": "vm"}]}', "vm is given for two keys, a and b"),
    ],
)
def test_an_answer_that_is_not_understood_is_no_empty_pool(answer: bytes, why: str) -> None:
    with pytest.raises(PoolFailed, match=why):
        listed(answer)


def test_a_node_without_a_name_of_its_own_is_named_as_its_key() -> None:
    assert listed(b'{"nodes": [{"key": "p-1"}]}') == [Had("p-1", "p-1")]
    assert obtained(b"{}", "p-1") == obtained(b"", "p-1") == "p-1"
    with pytest.raises(PoolFailed, match="cannot be the name"):
        obtained(b'{"node": 7}', "p-1")


def joined(name: str, pool: str = "") -> Object:
    return {"kind": "GpuNode", "metadata": {"name": name, "uid": name}, "spec": {"model": "H100", "pool": pool}}


def getting(name: str, *nodes: str) -> Object:
    machines = [{"key": f"k-{one}", "node": one} for one in nodes]
    return {"kind": "NodePool", "metadata": {"name": name, "uid": name}, "spec": {"model": "H100"}, "status": {"machines": machines}}


def test_a_node_that_names_no_pool_is_of_the_one_that_got_it_and_of_none_where_two_say_so() -> None:
    got = got_by([getting("p", "a", "both"), getting("q", "both", "b")])
    assert [pool_of(joined(name), got) for name in ("a", "b", "both", "other")] == ["p", "q", "", ""]
    assert pool_of(joined("a", "q"), got) == "q", "what it says itself counts for more"


def test_a_pool_says_which_of_its_nodes_do_not_count_for_it_and_what_helps() -> None:
    got = got_by([getting("p", "a", "b", "both"), getting("q", "both")])
    assert strays("p", [joined("a"), joined("b", "p")], got) == ""
    assert strays("p", [joined("a", "q"), joined("b", "r"), joined("other", "q")], got) == (
        "it got nodes that do not count for it: a says that it is of q, and 1 more like it. Start their agents with `--pool p`"
    )
    assert "q got both as well" in strays("p", [joined("both")], got)


def test_a_node_counts_for_the_pool_that_got_it_from_when_that_is_written_down_until_it_is_struck_out() -> None:
    reader = Reader()
    reader.put(getting("p"))
    reader.put(joined("a"))
    assert reader.snapshot(NOW).nodes.pool.tolist() == [-1]
    reader.put(getting("p", "a"))
    assert reader.snapshot(NOW).nodes.pool.tolist() == [0]
    reader.put(joined("b", "p"))
    assert reader.snapshot(NOW).nodes.pool.tolist() == [0, 0]
    reader.put(getting("p"))
    assert reader.snapshot(NOW).nodes.pool.tolist() == [-1, 0]


def test_a_node_whose_clock_is_minutes_behind_is_silent_when_the_server_hears_nothing_of_it() -> None:
    """One that was given back and still lives would declare itself anew if it were taken out of the API."""
    stamps = [{"fieldsV1": {"f:spec": {"f:renewTime": {}}}, "time": "2026-01-01T00:07:00Z"}]
    spec = {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}
    lease = {"metadata": {"name": "n", "managedFields": stamps}, "spec": spec}
    heard = datetime(2026, 1, 1, 0, 7, tzinfo=UTC).timestamp()
    assert [is_silent(one, heard + after, 40.0) for one, after in ((lease, 39), (lease, 41), (None, 0))] == [False, True, True]
    assert is_silent({"metadata": {"name": "n"}, "spec": {}}, heard, 40.0)
