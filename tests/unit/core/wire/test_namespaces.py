"""Namespaces are read for their labels."""

from core.wire.policies import Namespace, decode_namespace


def test_a_namespace_is_its_name_and_its_labels():
    assert decode_namespace(b'{"metadata":{"name":"a","labels":{"team":"x"}}}') == Namespace("a", {"team": "x"})
    assert decode_namespace(b'{"metadata":{"name":"a","labels":null}}') == Namespace("a", {})
