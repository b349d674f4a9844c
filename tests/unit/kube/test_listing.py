"""A list is read page by page, all of one version."""

from kube.calls import ListPage
from kube.reflector import list_all
from kube.transport import Response


class Pages:
    """Answers two pages and keeps what was asked."""

    def __init__(self):
        self.asked = []

    async def request(self, verb, path, *, params=None, deadline_s=None, purpose=None, **_):
        self.asked.append((verb, path, dict(params)))
        return Response(status=200, headers={}, body=b"2" if "continue" in params else b"1")


def decode(body):
    if body == b"1":
        return ListPage(items=("a", "b"), resource_version="7", continue_token="more")
    return ListPage(items=("c",), resource_version="7")


async def test_all_pages_are_read_with_the_selectors_on_each():
    pages = Pages()
    found = await list_all(pages, "/api/v1/pods", decode, selectors={"fieldSelector": "spec.nodeName=n1"})
    assert (found.items, found.resource_version) == (("a", "b", "c"), "7")
    first = {"fieldSelector": "spec.nodeName=n1", "limit": "500"}
    assert [params for _, _, params in pages.asked] == [first, {**first, "continue": "more"}]
