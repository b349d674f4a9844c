"""The store counts revisions, keeps etcd's order and forgets the past below a floor."""

import pytest

from sandbox.api.errors import StatusError
from sandbox.api.selectors import FieldTerm, LabelTerm, Selection
from sandbox.api.store import Store


def pod(name, namespace="default", node="", **labels):
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"nodeName": node}}


def names(stored):
    return [s.obj["metadata"]["name"] for s in stored]


def told(watcher):
    return [(kind, stored.obj["metadata"]["name"], stored.revision) for kind, stored in watcher.take()]


def on_node(name):
    return Selection(fields=(FieldTerm(path="spec.nodeName", value=name, equal=True),))


def labelled(key, value):
    return Selection(labels=(LabelTerm(key=key, operator="In", values=frozenset({value})),))


def test_objects_are_listed_in_the_order_of_their_keys():
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a-b", "c"), ("a", "y")):
        store.write("pods", pod(name, namespace))
    # etcd compares whole keys, and "-" is less than "/".
    assert names(store.select("pods")) == ["c", "y", "z", "x"]
    assert names(store.select("pods", Selection(namespace="a"))) == ["y", "z"]


def test_an_equal_object_is_not_written_again():
    store = Store()
    first = store.write("pods", pod("a"))
    assert store.write("pods", pod("a")) is first
    assert store.revision == 1


def test_a_watch_tells_everything_after_its_revision():
    store = Store()
    store.write("pods", pod("a"))
    store.write("pods", pod("b"))
    watcher = store.watch("pods", Selection(), since=1)
    store.remove("pods", "default", "a")
    assert told(watcher) == [("ADDED", "b", 2), ("DELETED", "a", 3)]


def test_a_watch_from_a_revision_to_come_tells_what_comes_after_it():
    store = Store()
    watcher = store.watch("pods", Selection(), since=2)
    for name in ("a", "b", "c"):
        store.write("pods", pod(name))
    assert told(watcher) == [("ADDED", "c", 3)]


def test_leaving_the_selection_is_a_deletion_with_the_last_selected_state():
    store = Store()
    watcher = store.watch("pods", labelled("app", "x"), since=0)
    store.write("pods", pod("a", app="y"))
    store.write("pods", pod("a", app="x"))
    store.write("pods", pod("a", app="z"))
    events = watcher.take()
    assert [(kind, stored.obj["metadata"]["labels"]["app"]) for kind, stored in events] == [
        ("ADDED", "x"),
        ("DELETED", "x"),
    ]
    assert events[1][1].obj["metadata"]["resourceVersion"] == "3"


def test_a_watch_from_below_the_floor_is_expired():
    store = Store(events_kept=2)
    for i in range(4):
        store.write("pods", pod(f"p{i}"))
    with pytest.raises(StatusError) as caught:
        store.watch("pods", Selection(), since=1)
    assert caught.value.code == 410
    assert told(store.watch("pods", Selection(), since=2)) == [("ADDED", "p2", 3), ("ADDED", "p3", 4)]


def test_compaction_expires_watches_and_continued_lists():
    store = Store()
    for i in range(4):
        store.write("pods", pod(f"p{i}"))
    page = store.page("pods", Selection(), limit=2)
    store.compact()
    for attempt in (
        lambda: store.watch("pods", Selection(), since=3),
        lambda: store.page("pods", Selection(), 2, page.token),
    ):
        with pytest.raises(StatusError) as caught:
            attempt()
        assert caught.value.code == 410
    assert told(store.watch("pods", Selection(), since=4)) == []


def test_the_pages_of_a_list_are_the_list_of_its_first_moment():
    store = Store()
    for i in range(5):
        store.write("pods", pod(f"p{i}"))
    first = store.page("pods", Selection(), limit=2)
    store.remove("pods", "default", "p3")
    second = store.page("pods", Selection(), 2, first.token)
    third = store.page("pods", Selection(), 2, second.token)
    assert names((*first.items, *second.items, *third.items)) == ["p0", "p1", "p2", "p3", "p4"]
    assert (first.remaining, second.revision, third.token) == (3, 5, "")


def test_the_index_by_node_follows_every_write():
    store = Store()
    store.write("pods", pod("a"))
    store.write("pods", pod("b", node="n1"))
    store.write("pods", pod("a", node="n1"))
    assert names(store.select("pods", on_node("n1"))) == ["a", "b"]
    assert names(store.select("pods", on_node(""))) == []
    store.remove("pods", "default", "b")
    assert names(store.select("pods", on_node("n1"))) == ["a"]


def test_a_revision_to_come_is_too_large():
    with pytest.raises(StatusError) as caught:
        Store().check_reached(1)
    assert (caught.value.code, caught.value.headers) == (504, {"Retry-After": "1"})
