"""Every `World` of a test ends with the audit: its ledger against one made anew of the pods that it was shown."""

from collections.abc import Iterator

import pytest

from tests.support.worlds import world


@pytest.fixture(autouse=True)
def _audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose ledgers end with drift; the mark `drifts` lifts it, with a reason."""
    world.made.clear()
    yield
    found = [text for one in world.made for text in one.audited()]
    world.made.clear()
    if request.node.get_closest_marker("drifts") is None:
        assert not found
    else:
        assert found, "nothing differs in the end: take the mark away"
