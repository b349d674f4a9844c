"""Every scenario of `tests/integration` again, on a real API server with the manifests' arguments, accounts and rights.

The tests are those of that room; what opens their cluster is another fixture here.
"""

from tests.support.worlds.scenarios import replayed

globals().update(replayed())
