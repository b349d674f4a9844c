"""What kubectl sends as protobuf is read, and damage is refused in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.api.protobuf import ProtobufError, decode


def field(number, content):
    if isinstance(content, int):
        return bytes([number << 3, content])
    raw = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(raw)]) + raw


def envelope(kind, raw):
    return b"k8s\x00" + field(1, field(1, "v1") + field(2, kind)) + field(2, raw)


def test_a_config_map_is_read():
    metadata = field(1, "c") + field(2, "") + field(3, "ns") + field(11, field(1, "a") + field(2, "b"))
    body = field(1, metadata) + field(2, field(1, "k") + field(2, "v")) + field(3, field(1, "x") + field(2, b"\xff"))
    assert decode(envelope("ConfigMap", body)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "ns", "labels": {"a": "b"}},
        "data": {"k": "v"},
        "binaryData": {"x": "/w=="},
    }


def test_what_the_api_server_leaves_out_is_left_out():
    named, no_text, zero, no, yes = field(1, field(1, "c")), field(4, ""), field(2, 0), field(3, 0), field(3, 1)
    stored = {"apiVersion": "v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 0}
    assert decode(envelope("PriorityClass", named + zero + no + no_text)) == stored
    assert decode(envelope("PriorityClass", named + zero + yes + no_text)) == {**stored, "globalDefault": True}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{}", "does not begin"),
        (envelope("Deployment", b""), "'Deployment' are not read"),
        (envelope("Namespace", field(1, "x"))[:-1], "cut short"),
        (envelope("Namespace", b"\x0a\x05ab"), "cut short"),
        (envelope("Namespace", field(1, 3)), "another type"),
        (b"k8s\x00\x0f", "wire type 7"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(raw, words):
    with pytest.raises(ProtobufError, match=words):
        decode(raw)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_a_refusal(raw):
    for text in (b"k8s\x00" + raw, envelope("DeleteOptions", raw[:120])):
        try:
            assert isinstance(decode(text), dict)
        except ProtobufError:
            continue
