"""What the whole of a tree knows of the toy dialect, which stands in a folder there: JSON on standard output.

Run in a copy of the tree by tests/unit/test_toy_folder.py.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from controller.actions import Bind
from controller.documents import Documents, places
from controller.handing_over.locks import Locks
from controller.metrics import card_series
from core.admission.mutate import mutate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.configuration import Source, Text, merge
from core.configuration import decode as decode_text
from core.explaining import explain
from core.model import Node, NodeName
from core.placing import decide
from core.placing.decide import Shape
from core.settings import DialectName, Policy, Settings, Tables
from core.view.cards import cards_of
from core.wire.config_maps import ConfigMap
from core.wire.reviews import decode_review
from tests.support.pages.manifest_lists import BASE, written
from tests.support.worlds.world import World, pod

TOY: Final = DialectName("toy")
PLUGIN: Final = "system:serviceaccount:kube-system:toy-plugin"
_HAVE: Final = {"cpu": "4", "memory": "8Gi", "pods": "10"}
_NODE: Final = Node(
    name=NodeName("n1"), annotations={"toy.example/cards": "a:8,a:16"}, capacity=_HAVE, allocatable=_HAVE
)

Json = dict[str, Any]


def _pod(limits: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Json:
    container = {"name": "main", "image": "i", "resources": {"limits": dict(limits)}}
    metadata = {"name": "p", "namespace": "n", "uid": "u", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _review(user: str, new: Json, old: Json | None = None) -> Json:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request: Json = {"uid": "r", "kind": kind, "operation": "UPDATE" if old else "CREATE", "namespace": "n"}
    request |= {"userInfo": {"username": user}, "object": new, "oldObject": old}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    verdict, patch = mutate(decode_review(body.encode()), rulebook(Settings(), Tables(), standard_catalog()))
    return {
        "allowed": verdict.allowed,
        "message": verdict.message,
        "warnings": [str(one) for one in verdict.warnings],
        "patch": patch.decode(),
    }


def admission() -> Json:
    """Reviews of pods with toy cards."""
    held, mine = {"toy.example/held": "0/6/0"}, {"toy.example/memory": "6"}
    return {
        "new": _review("dana", _pod(mine, {"toy.example/mode": " Rough"})),
        "mixed": _review("dana", _pod(mine | {"volcano.sh/vgpu-number": "1"})),
        "plugin": _review(PLUGIN, _pod(mine, held), _pod(mine)),
        "forged": _review("dana", _pod(mine, held), _pod(mine)),
    }


def configuration() -> Json:
    """Texts that name the dialect, its switch and its mode."""

    def read(source: Source, content: str) -> tuple[bool, list[str]]:
        found = decode_text(Text(source=source, config_map="a/b", content=content), standard_catalog())
        return merge({source: found}, standard_catalog()).settings.has_on(TOY), list(found.problems)

    conf = "tiers: [{{plugins: [{{name: deviceshare, arguments: {{deviceshare.ToyEnable: {on}}}}}]}}]"
    return {
        "listed": read(Source.OWN, "dialects: [toy]\nmode_preference: [rough]"),
        "on": read(Source.SCHEDULER_MAP, conf.format(on="true")),
        "off": read(Source.SCHEDULER_MAP, conf.format(on="false")),
    }


def controller() -> Json:
    """What becomes of a pod that fits, and of one that does not."""
    world = World(_NODE)
    world.adds(*(pod(name, limits={"toy.example/memory": memory}) for name, memory in (("a", "6"), ("b", "99"))))
    (bind,) = world.binds()
    assert isinstance(bind, Bind)
    world.accepts(bind)

    waiting = decide.shape_of(world.seen("b"), world.ledger)
    assert isinstance(waiting, Shape)
    explained = explain.report(explain.refused(world.ledger, waiting, Policy.BINPACK))
    documents = Documents(standard_catalog())
    documents.change(
        places(standard_catalog())[-1],
        ConfigMap(namespace="toy-system", name="toy-n1", texts={"state": "well"}),
        gone=False,
    )
    locks = Locks(standard_catalog(), Settings(node_lock=True), world.scheduler.cluster.handoff)
    lock = locks.used.get(TOY)
    return {
        "bind": [bind.node, dict(bind.annotations)],
        "in_flight": world.scheduler.cluster.handoff.in_flight,
        "explained": explained,
        "metrics": "".join(card_series(world.ledger, per_pod=True)),
        "cards": repr(cards_of(world.ledger)),
        "documents": dict(documents.of(NodeName("n1"))),
        "lock": lock.lock_key if lock is not None else "",
    }


def manifests() -> Json:
    """deploy/base as scripts/manifests writes it."""
    book = rulebook(Settings(), Tables(), standard_catalog())
    return {path.name: written(path.read_text(encoding="utf-8"), book) for path in BASE.glob("*.yaml")}


def main() -> None:
    """Say it all."""
    found = {"admission": admission(), "configuration": configuration(), "manifests": manifests()}
    sys.stdout.write(json.dumps(found | controller()))


if __name__ == "__main__":
    main()
