import json

import msgspec
import pytest

from kube.errors import UndecodableError
from kube.objects import Bookmark, Changed, EventKind, ListPage, WatchFailed, event_decoder, page_decoder


def name(text: bytes) -> str:
    found: str = msgspec.json.decode(text)["metadata"]["name"]
    return found


decode_page = page_decoder(name)
decode_event = event_decoder(name)


def event(kind: str, value: object) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode()


def test_a_page_holds_what_the_decoder_made_of_its_objects():
    text = json.dumps(
        {
            "kind": "PodList",
            "metadata": {"resourceVersion": "7", "continue": "next", "remainingItemCount": 1},
            "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
        }
    ).encode()
    assert decode_page(text) == ListPage(items=("a", "b"), resource_version="7", continue_token="next")


def test_a_list_without_items_is_empty():
    page = decode_page(b'{"metadata":{"resourceVersion":"7"},"items":null}')
    assert page == ListPage(items=(), resource_version="7")


@pytest.mark.parametrize("kind", list(EventKind))
def test_an_event_is_its_kind_its_object_and_its_version(kind):
    line = event(kind, {"metadata": {"name": "a", "resourceVersion": "8"}})
    assert decode_event(line) == Changed(kind=kind, value="a", resource_version="8")


def test_a_bookmark_needs_no_more_than_a_version():
    assert decode_event(event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})) == Bookmark(resource_version="9")


def test_an_error_event_tells_code_and_reason():
    line = event("ERROR", {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "old"})
    assert decode_event(line) == WatchFailed(code=410, reason="Expired", message="old")


def test_an_error_event_may_lack_everything():
    assert decode_event(event("ERROR", {})) == WatchFailed(code=0, reason="", message="")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"<html>",
        b'{"type":"ADDED"',
        b'{"type":"ADDED","object":{"metadata":{"name":"a',
        b'{"type":"SURPRISE","object":{}}',
        b'{"type":"ADDED","object":null}',
        b'{"type":"ADDED","object":' + b"[" * 100_000,
        b"\xff\xff",
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_any_other_text_is_undecodable_and_nothing_worse(text):
    with pytest.raises(UndecodableError):
        decode_event(text)
    with pytest.raises(UndecodableError):
        decode_page(text)
