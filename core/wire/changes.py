"""A change of the cluster to simulate: the input of ``kubectl cards simulate``, and its JSON for the controller."""

from typing import Final

import msgspec

from core.wire import reading

# The most copies of a node that one change adds.
NODES_MAX: Final = 5_000
# The name of the file in messages if there is none.
NO_FILE: Final = "-f"


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change.

    manifests: the text of a manifest file. file: its name in messages, `NO_FILE` if there is none. namespace: of
    objects without one. requests: resources and amounts for the containers with cards in *manifests*; the amount ""
    removes the resource. add_nodes: number of copies of the node *like*. drain, remove: nodes. repartition: nodes,
    each with a mode or a number of shares for all its cards. policy: another placement policy; "" = the cluster's. If
    nothing else changes, it places the pods that run again.
    """

    manifests: str = ""
    file: str = NO_FILE
    namespace: str = "default"
    requests: tuple[tuple[str, str], ...] = ()
    add_nodes: int = 0
    like: str = ""
    drain: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    repartition: tuple[tuple[str, str], ...] = ()
    policy: str = ""

    @property
    def is_policy_alone(self) -> bool:
        """Whether nothing but the policy changes."""
        return self == Change(file=self.file, namespace=self.namespace, policy=self.policy)


decode_change: Final = reading.reader("change", Change, lambda found: found)


def encode_change(change: Change) -> bytes:
    """Return *change* as JSON."""
    return msgspec.json.encode(change)
