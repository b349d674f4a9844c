import json

import msgspec
import pytest

from kube.calls import ListPage, page_decoder, read_version
from kube.errors import UndecodableError
from kube.reflector import Bookmark, Changed, EventKind, WatchFailed, event_decoder


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


@pytest.mark.parametrize(
    "page",
    [
        b'{"metadata":{}}',
        b'{"metadata":{"requestId":"1"},"error":"log in"}',
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":401}',
    ],
    ids=["nothing", "a gateway's", "a Status"],
)
def test_what_has_no_version_is_no_list_without_objects(page):
    with pytest.raises(UndecodableError, match="no resourceVersion"):
        decode_page(page)


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


def nested(levels: int) -> str:
    """An object with a name, a text that looks like nesting, and parameters that are nested deeply."""
    deep = '{"a":[' * (levels // 2) + '"]}' + '\\\\", 1' + "]}" * (levels // 2)
    return '{"metadata":{"name":"deep","resourceVersion":"8"},"text":"[[[\\"{","parameters":' + deep + ',"last":[{}]}'


@pytest.mark.parametrize("levels", [2, 126, 128, 130, 900, *range(960, 1010, 2), 5000])
def test_an_object_that_is_nested_too_deeply_is_read_without_its_depths(levels):
    text = nested(levels)
    page = decode_page(
        f'{{"metadata":{{"resourceVersion":"9"}},"items":[{{"metadata":{{"name":"a"}}}},{text}]}}'.encode()
    )
    assert page.items == ("a", "deep")
    found = decode_event(f'{{"type":"ADDED","object":{text}}}'.encode())
    assert found == Changed(kind=EventKind.ADDED, value="deep", resource_version="8")
    assert read_version(text.encode()) == "8"


def test_what_is_around_the_depths_stays():
    whole: list[object] = []
    decode = page_decoder(lambda text: whole.append(msgspec.json.decode(text)))
    decode(f'{{"metadata":{{"resourceVersion":"9"}},"items":[{nested(5000)}]}}'.encode())
    (found,) = whole
    assert isinstance(found, dict)
    assert (found["text"], found["last"]) == ('[[["{', [{}])
    assert found.keys() == {"metadata", "text", "parameters", "last"}


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b'"' + b"[" * 100_000, b"]" * 1000])
def test_depths_that_never_end_are_refused(text):
    with pytest.raises(UndecodableError):
        decode_page(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r"\ud800", "\ufffd"),
        (r"\uDFFF\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud800\\ud800", "\ufffd\\ud800"),
        (r"\\ud800\ud800\"", '\\ud800\ufffd"'),
        (r"\udc00\n\u00e9", "\ufffd\né"),
    ],
)
def test_half_of_a_surrogate_pair_is_read_as_go_reads_it(text, read):
    page = decode_page(
        f'{{"metadata":{{"resourceVersion":"9"}},"items":[{{"metadata":{{"name":"{text}"}}}}]}}'.encode()
    )
    assert page.items == (read,)
