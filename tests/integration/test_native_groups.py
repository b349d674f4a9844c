"""Groups of Kubernetes' own in the versions that it had and has, of which a server serves one (groups 7)."""

import pytest

from tests.support.worlds.controller_rig import NODES, PODS, pod, share
from tests.support.worlds.frameworks import CARDS, frameworks, play

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def kind(version, named="PodGroup"):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "metadata": {"name": f"{named.lower()}s.scheduling.k8s.io"},
        "spec": {
            "group": "scheduling.k8s.io",
            "scope": "Namespaced",
            "names": {"kind": named, "plural": f"{named.lower()}s"},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def member(name, of):
    made = pod(name, share(1000))
    made["spec"]["schedulingGroup"] = {"podGroupName": of}
    return made


@pytest.mark.parametrize(
    ("version", "condition"),
    [
        ("v1alpha2", "PodGroupScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
async def test_a_group_is_followed_and_told_of_in_the_version_that_is_served(rig, version, condition):
    async with rig(nodes=NODES[:1]) as world:
        groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"

        async def made(name, count, **more):
            spec = {"schedulingPolicy": {"gang": {"minCount": count}}, **more}
            about = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": {"name": name}}
            await world.client.create(groups, {**about, "spec": spec})

        def says(name, *wanted):
            async def said():
                found = (await world.client.get(f"{groups}/{name}")).get("status") or {}
                conditions = {one["type"]: one for one in found.get("conditions") or ()}
                one = conditions.get(condition, {})
                return len(conditions) == 1 and (one.get("status"), one.get("reason")) == wanted

            return world.until(said)

        await world.client.create(CRDS, kind(version))
        await world.controller()
        await made("g", 3)
        await world.add(member("a", "g"), member("b", "g"))
        await world.waits("a", "2 are ready")
        await says("g", "False", "Unschedulable")
        await made("part", 2, parentCompositePodGroupName="whole")
        await world.add(member("p", "part"))
        await world.waits("p", "spec.parentCompositePodGroupName")
        await says("part", "False", "SchedulerError")
        await world.client.patch(f"{groups}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
        for name in "ab":
            await world.phase(name)
        await says("g", "True", "Scheduled")
        await world.client.delete(f"{PODS}/p")


FRAMEWORKS = tuple(one for one in frameworks() if one.native)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[one.name for one in FRAMEWORKS])
async def test_what_a_framework_makes_becomes_what_its_page_says(staged, framework):
    async with staged(nodes=CARDS[framework.cards].nodes()) as stage:
        for named in ("PodGroup", "Workload"):
            await stage.admin.create(CRDS, kind("v1beta1", named))
        await play(stage.admin, framework)
