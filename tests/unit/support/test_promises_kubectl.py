"""What kubectl says, less what differs at every run."""

from types import SimpleNamespace
from typing import Any

from tests.support.promises.promises_kubectl import plain


def test_a_name_that_looks_like_an_age_is_none():
    world: Any = SimpleNamespace(namespace="promise-4711084d", folder="/tmp/x")
    assert plain("node/promise-4711084d-node  Ready  12d", world) == ["node/NAMESPACE-node  Ready  AGE"]
