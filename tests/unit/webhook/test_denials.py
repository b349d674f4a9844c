"""What operators hear of service accounts that try to write assignments: an event on the pod, and not too many."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import AdmissionSettings, OnOtherNodes, Settings, Tables, plugin_remedy
from kube.errors import ApiUnreachableError, CredentialsError
from webhook.denials import Denials
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer

pytestmark = pytest.mark.looptime

ACCOUNT = "system:serviceaccount:team:forger"
IDS = "volcano.sh/vgpu-ids-new"
BOOK = rulebook(Settings(), Tables(), standard_catalog())


class Cluster:
    """Where events are written; down and forbidden while *error* is set."""

    def __init__(self):
        self.events = []
        self.error = None
        self.opened = 0

    async def open(self, stack):
        del stack
        self.opened += 1
        if isinstance(self.error, CredentialsError):
            raise self.error
        return self

    async def create_event(self, namespace, event):
        if self.error is not None:
            raise self.error
        self.events.append((namespace, event))


@asynccontextmanager
async def telling(cluster, book=BOOK):
    loop = asyncio.get_running_loop()
    metrics = Metrics()
    denials = Denials(metrics, clock=loop.time, wall=lambda: 1_800_000_000.0 + loop.time())
    task = asyncio.create_task(denials.run(cluster.open), name="denials")
    try:
        yield Reviewer(book, metrics, denials.note)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def forge(reviewer, *, user=ACCOUNT, uid="u1", keys=(IDS,), **fields):
    old = {"metadata": {"name": "p", "namespace": "n", "uid": uid}, "spec": {"containers": [{"name": "m"}]}}
    new = {**old, "metadata": {**old["metadata"], "annotations": dict.fromkeys(keys, "GPU-0,NVIDIA,1,1:")}}
    request = {
        "uid": "r1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "UPDATE", "namespace": "n", "name": "p",
        "userInfo": {"username": user}, "object": new, "oldObject": old, **fields,
    }  # fmt: skip
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.loads(reviewer.answer(Path.MUTATE, json.dumps(review).encode()))["response"]


async def test_a_device_plugin_that_is_denied_the_pod_of_another_node_is_told_on_the_pod():
    cluster = Cluster()
    strict = Settings(admission=AdmissionSettings(plugins_on_other_nodes=OnOtherNodes.DENY))
    plugin = "system:serviceaccount:kube-system:volcano-device-plugin"
    asking = {"username": plugin, "extra": {"authentication.kubernetes.io/node-name": ["b"]}}
    async with telling(cluster, rulebook(strict, Tables(), standard_catalog())) as reviewer:
        assert not forge(reviewer, userInfo=asking)["allowed"]
        await asyncio.sleep(1)
        ((_, event),) = cluster.events
    assert event["message"] == f"CS315 {plugin} tried to write a pod of another node than its own"


async def test_a_denied_account_is_told_on_the_pod_after_the_answer():
    cluster = Cluster()
    async with telling(cluster) as reviewer:
        assert not forge(reviewer)["allowed"]
        assert cluster.events == []
        await asyncio.sleep(1)
        ((namespace, event),) = cluster.events
    assert namespace == "n"
    assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == (
        "AssignmentWriteDenied",
        "Warning",
        "u1",
    )
    assert event["message"] == (
        f"CS301 {ACCOUNT} may not write assignments; only schedulers and device plugins may; "
        f"{plugin_remedy(ACCOUNT)}; it tried to write annotation {IDS}"
    )
    assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"
    assert reviewer.metrics.events == {"written": 1}


async def test_a_shortened_account_is_not_given_to_write_into_the_settings():
    cluster = Cluster()
    account = f"system:serviceaccount:team:{'a' * 200}"
    async with telling(cluster) as reviewer:
        assert not forge(reviewer, user=account)["allowed"]
        await asyncio.sleep(1)
        ((_, event),) = cluster.events
    assert event["message"].endswith(
        f"{account[:128]} may not write assignments; only schedulers and device plugins may; "
        f"it tried to write annotation {IDS}"
    )


async def test_the_remedy_is_whole_however_many_keys_were_written():
    cluster = Cluster()
    account = f"system:serviceaccount:team:{'a' * 101}"
    keys = sorted(BOOK.protected)
    async with telling(cluster) as reviewer:
        assert not forge(reviewer, user=account, keys=keys)["allowed"]
        await asyncio.sleep(1)
        ((_, event),) = cluster.events
    assert (len(account), len(event["message"])) == (128, 1024)
    assert plugin_remedy(account) in event["message"]


async def test_a_denied_binding_is_told_on_the_pod_that_it_names():
    cluster = Cluster()
    sent = {"metadata": {"name": "p", "uid": "u1", "annotations": {IDS: "GPU-0,NVIDIA,1,1:"}}, "target": {"name": "n1"}}
    asked = {"kind": {"version": "v1", "kind": "Binding"}, "subResource": "binding", "operation": "CREATE"}
    async with telling(cluster) as reviewer:
        assert not forge(reviewer, **asked, object=sent, oldObject=None)["allowed"]
        await asyncio.sleep(1)
    ((namespace, event),) = cluster.events
    about = event["involvedObject"]
    assert (namespace, about["kind"], about["name"], about["uid"]) == ("n", "Pod", "p", "u1")
    assert f"{ACCOUNT} may not write assignments" in event["message"]
    assert event["message"].endswith(f"it tried to write annotation {IDS} of the Binding")


async def test_the_same_account_and_pod_are_told_of_again_only_after_a_while():
    cluster = Cluster()
    async with telling(cluster) as reviewer:
        for _ in range(50):
            forge(reviewer)
        await asyncio.sleep(299)
        forge(reviewer)
        assert len(cluster.events) == 1
        forge(reviewer, uid="u2")
        await asyncio.sleep(2)
        assert len(cluster.events) == 2
        forge(reviewer)
        await asyncio.sleep(2)
        assert len(cluster.events) == 3
        assert len({event["metadata"]["name"] for _, event in cluster.events}) == 3


@pytest.mark.parametrize(
    "fields",
    [{"user": "dana"}, {"dryRun": True}, {"user": "system:serviceaccount:kube-system:volcano-device-plugin"},
     {"keys": ("volcano.sh/vgpu-mode",)}],
    ids=["a person", "a dry run", "a trusted account", "another key"],
)  # fmt: skip
async def test_nobody_hears_of_anything_else(fields):
    cluster = Cluster()
    async with telling(cluster) as reviewer:
        forge(reviewer, **fields)
        await asyncio.sleep(5)
    assert (cluster.events, cluster.opened) == ([], 0)


async def test_a_flood_is_told_of_in_part_and_at_leisure():
    cluster = Cluster()
    async with telling(cluster) as reviewer:
        for i in range(100):
            forge(reviewer, uid=str(i))
        assert reviewer.metrics.events == {"dropped": 36}
        await asyncio.sleep(10.5)
        assert 10 <= len(cluster.events) <= 11
        await asyncio.sleep(60)
        assert (len(cluster.events), cluster.opened) == (64, 1)


@pytest.mark.parametrize(
    "error",
    [ApiUnreachableError(verb="POST", path="/x", message="down"), CredentialsError("no way"), RuntimeError("broken")],
    ids=["away", "nobody named", "our fault"],
)
async def test_what_cannot_be_written_is_counted_and_later_ones_are_written(error):
    cluster = Cluster()
    cluster.error = error
    with capture_logs() as logs:
        async with telling(cluster) as reviewer:
            forge(reviewer)
            forge(reviewer, uid="u2")
            await asyncio.sleep(5)
            assert reviewer.metrics.events == {"failed": 2}
            cluster.error = None
            forge(reviewer, uid="u3")
            await asyncio.sleep(2)
            assert reviewer.metrics.events == {"failed": 2, "written": 1}
    assert len([one for one in logs if one["event"] == "an event cannot be written"]) == 1
