"""Which cards take nothing new is what claims and slices say, as they come, change and go in any order."""

import json
import random
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.constraints.resource_claims import Uses
from core.ledger import Ledger
from core.model import Node, NodeName
from core.port.refusals import Reason
from core.settings import DialectName, Settings, Tables
from core.wire.resource_claims import resource_claim_from_object, resource_slice_from_object

NODES = ("n0", "n1", "n2")
NVIDIA, ASCEND, NETWORK, CHANNELS = "gpu.nvidia.com", "npu.huawei.com", "net.example.com", "compute-domain.nvidia.com"
WHOLE, VGPU, NPU = DialectName("whole_gpu"), DialectName("vgpu"), DialectName("ascend_hami")
# Driver and pool of each slice.
SLICES = {
    "s0": (NVIDIA, "n0"),
    "s1": (NVIDIA, "n0"),
    "s2": (NVIDIA, "n0"),
    "s3": (NVIDIA, "n1"),
    "s4": (NVIDIA, "shared"),
    "s5": (ASCEND, "n0"),
    "s6": (NETWORK, "n0"),
}
# What of a node's cards are whose, as the README of each driver says.
SOLD_BY = {NVIDIA: (VGPU, WHOLE), ASCEND: (NPU,), NETWORK: (), CHANNELS: ()}


def node(name):
    """A node with two vGPU cards, the same sold whole too, and two NPUs."""
    cards = "".join(f"GPU-{name}-{at},10,10000,NVIDIA-T4,true,hami-core:" for at in range(2))
    chips = [
        {"id": f"NPU-{name}-{at}", "index": at, "count": 7, "devmem": 21527, "devcore": 8, "type": "Ascend310P",
         "numa": 0, "health": True}
        for at in range(2)
    ]  # fmt: skip
    have = {
        "volcano.sh/vgpu-number": "20",
        "volcano.sh/vgpu-memory": "20000",
        "volcano.sh/vgpu-cores": "200",
        "nvidia.com/gpu": "2",
        "huawei.com/Ascend310P": "14",
    }
    annotations = {
        "volcano.sh/node-vgpu-register": cards,
        "hami.io/node-register-Ascend310P": json.dumps(chips),
    }
    return Node(name=NodeName(name), annotations=annotations, capacity=have, allocatable=have)


class World:
    """Nodes, claims and slices as manifests, and the ledger that is told of them."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.claims = {}
        self.slices = {}
        self.ledger = Ledger(standard_catalog(), Tables(), Settings())
        self.uses = Uses(self.ledger.set_uses)
        for name in NODES:
            self.ledger.set_node(node(name))

    def step(self):
        chance = self.chance
        draw = chance.choice
        match draw(("claim", "claim", "claim gone", "slice", "slice", "slice gone", "node", "lists")):
            case "claim":
                manifest = self.claim(f"c{chance.randrange(5)}")
                self.claims[manifest["metadata"]["name"]] = manifest
                self.uses.claims.put(resource_claim_from_object(manifest))
            case "claim gone" if self.claims:
                manifest = self.claims.pop(draw(sorted(self.claims)))
                self.uses.claims.drop(resource_claim_from_object(manifest))
            case "slice":
                manifest = self.slice(draw(sorted(SLICES)))
                self.slices[manifest["metadata"]["name"]] = manifest
                self.uses.slices.put(resource_slice_from_object(manifest))
            case "slice gone" if self.slices:
                manifest = self.slices.pop(draw(sorted(self.slices)))
                self.uses.slices.drop(resource_slice_from_object(manifest))
            case "node":
                name = NodeName(draw(NODES))
                if self.ledger.node(name) is None:
                    self.ledger.set_node(node(name))
                else:
                    self.ledger.remove_node(name)
            case "lists":
                # What went while nobody watched.
                for some in (self.claims, self.slices):
                    if some and chance.random() < 0.5:
                        del some[draw(sorted(some))]
                claims = [resource_claim_from_object(one) for one in self.claims.values()]
                slices = [resource_slice_from_object(one) for one in self.slices.values()]
                for steps in (self.uses.claims.replaced(claims), self.uses.slices.replaced(slices)):
                    for _ in steps:
                        pass
            case _:
                pass

    def claim(self, name):
        chance = self.chance
        found = {"metadata": {"namespace": "a", "name": name}, "spec": {}}
        if chance.random() < 0.15:
            return found | {"status": {}}
        results: list[dict[str, Any]] = []
        for _ in range(chance.choice((1, 1, 2))):
            results.append(
                {
                    "request": "r",
                    "driver": chance.choice((NVIDIA, NVIDIA, NVIDIA, ASCEND, NETWORK, CHANNELS)),
                    "pool": chance.choice(("n0", "n0", "n1", "n2", "shared")),
                    "device": f"d{chance.randrange(3)}",
                }
            )
            if chance.random() < 0.1:
                results[-1]["adminAccess"] = True
        allocation: dict[str, Any] = {"devices": {"results": results}}
        if chance.random() < 0.3:
            field = {"key": "metadata.name", "operator": "In", "values": [chance.choice(NODES)]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return found | {"status": {"allocation": allocation}}

    def slice(self, name):
        """Slice *name* with other devices, or of another generation."""
        chance = self.chance
        driver, pool = SLICES[name]
        devices = []
        for at in range(chance.choice((1, 2, 3))):
            attributes = {"type": {"string": "gpu"}, "cores": {"int": 8}}
            key = chance.choice(("uuid", "parentUUID", f"{driver}/uuid", "model"))
            kind = chance.choice(("GPU", "GPU", "MIG"))
            attributes[key] = {"string": f"{kind}-{chance.choice(NODES)}-{chance.randrange(3)}"}
            devices.append({"name": f"d{at}", "attributes": attributes})
            if pool == "shared" and chance.random() < 0.5:
                devices[-1]["nodeName"] = chance.choice(NODES)
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": chance.choice((1, 1, 2)), "resourceSliceCount": 1},
            "devices": devices,
        }
        if pool != "shared":
            spec["nodeName"] = pool
        return {"metadata": {"name": name}, "spec": spec}

    # ------------------------------------------------------------------ by the book

    def expected(self, name):
        """By dialect the cards that claims close on a node, and the dialects that they close as a whole."""
        cards, whole = set(), set()
        for claim in self.claims.values():
            allocation = claim.get("status", {}).get("allocation", {"devices": {"results": []}})
            for one in allocation["devices"]["results"]:
                if one.get("adminAccess") or name not in self.nodes_of(allocation, one):
                    continue
                device = self.device(one)
                attributes = device.get("attributes", {}) if device else {}
                told = {key.split("/")[-1]: value.get("string") for key, value in attributes.items()}
                ids = {told.get("uuid"), told.get("parentUUID")}
                here = {f"GPU-{name}-0", f"GPU-{name}-1"} & ids
                cards |= here
                of = SOLD_BY[NVIDIA] if here else SOLD_BY[one["driver"]]
                # A card of that name is one of the vGPU cards, or none of them.
                is_card = any(text and text.startswith("GPU-") for text in ids)
                whole |= {each for each in of if each != VGPU or not is_card}
        return cards, whole

    def device(self, result):
        same = [
            one["spec"]
            for one in self.slices.values()
            if (one["spec"]["driver"], one["spec"]["pool"]["name"]) == (result["driver"], result["pool"])
        ]
        newest = max((one["pool"]["generation"] for one in same), default=0)
        for spec in same:
            for one in spec["devices"]:
                if spec["pool"]["generation"] == newest and one["name"] == result["device"]:
                    return {"nodeName": spec.get("nodeName", ""), **one}
        return None

    def nodes_of(self, allocation, result):
        device = self.device(result)
        if device and device["nodeName"]:
            return [device["nodeName"]]
        if "nodeSelector" in allocation:
            return allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        return [] if device else [result["pool"]]

    def found(self, name):
        """The same as the ledger has it."""
        state = self.ledger.states[NodeName(name)]
        cards = [card.fixed for name in (VGPU, NPU) for card in state.offers[name]]
        closed = {one.uuid for one in cards if one.fault is Reason.CLAIMED}
        assert all("resource claim a/c" in one.problem for one in cards if one.uuid in closed)
        assert all("resource claim a/c" in why for why in state.closed.values())
        return closed, set(state.closed)


@pytest.mark.parametrize("seed", range(16))
def test_what_claims_close_is_what_their_devices_are(seed):
    world = World(seed)
    for _ in range(50):
        world.step()
        for name in world.ledger.states:
            assert world.found(name) == world.expected(name)
    for key in list(world.claims):
        world.uses.claims.drop(resource_claim_from_object(world.claims.pop(key)))
    for name in world.ledger.states:
        assert world.found(name) == (set(), set())
        assert not world.ledger.uses(name)
