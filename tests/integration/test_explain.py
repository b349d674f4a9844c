"""Where a pod is or why it waits, asked of the controller over TLS by whoever may, and by ``kubectl cards explain``."""

import json
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from certs.files import ensure
from certs.pair import WantedPair
from cli.__main__ import run
from cli.options import parse
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import NODES, pod, share

AUDIENCE = "cardshare-controller"
# As deploy/base makes the certificate; who asks by way of a port-forward reaches it under another.
SERVED_AS = "cardshare-controller.cardshare-system.svc"


class Asked:
    """A controller that explains, and who asks it."""

    def __init__(self, world):
        self.world = world
        self.port = free_port()
        self.certs = world.folder / "certs"
        self.kubeconfig = str(world.write_admins_kubeconfig())
        ensure(self.certs, WantedPair(dns_names=(SERVED_AS,), days=2, ca_days=9), datetime.now(UTC))

    async def start(self, *more):
        flags = ("--preview-listen", f"127.0.0.1:{self.port}", "--cert-dir", str(self.certs))
        await self.world.controller(*flags, *more)
        self.token = await self.world.token("cardshare-explain", audiences=(AUDIENCE,))

        async def served():
            try:
                return (await self.get("/v1/explain/default/nobody"))[0] == 404
            except aiohttp.ClientError:
                return False

        await self.world.until(served)

    async def get(self, path, token=None):
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        context = ssl.create_default_context(cafile=self.certs / "ca.crt")
        url = f"https://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=context, server_hostname=SERVED_AS) as answer,
        ):
            return answer.status, await answer.json()

    async def cards(self, *words, **changes):
        """``kubectl cards`` as docs/operators/kubectl-cards.md has it; *changes* to its flags."""
        (self.world.folder / "token").write_text(f"{self.token}\n")
        flags = {
            "controller": f"https://127.0.0.1:{self.port}",
            "token-file": self.world.folder / "token",
            "controller-ca": self.certs / "ca.crt",
            "tls-server-name": SERVED_AS,
        } | {key.replace("_", "-"): value for key, value in changes.items()}
        more = [word for flag, value in flags.items() if value for word in (f"--{flag}", str(value))]
        return await run(parse([*words, *more, "--kubeconfig", self.kubeconfig], {}), {})


@asynccontextmanager
async def asked(rig, nodes=NODES[:1]):
    async with rig(nodes=nodes) as world:
        found = Asked(world)
        await found.start()
        yield world, found


async def grant(world, name, urls, account):
    """Let *account* of namespace default ask for *urls*."""
    group = "rbac.authorization.k8s.io"
    rules = [{"nonResourceURLs": urls, "verbs": ["get"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
    }
    await world.apply([role, binding])


async def waits(world):
    await world.add(pod("a", share(15000)), pod("b", share(15000)))
    await world.phase("a")
    await world.phase("b")
    await world.add(pod("late", share(4000)))
    await world.waits("late", "360 of 4000 MiB free")


async def test_why_a_pod_waits_is_told_node_by_node_and_by_kubectl_cards(rig, capsys):
    async with asked(rig) as (world, found):
        await waits(world)
        status, answer = await found.get("/v1/explain/default/late")
        assert (status, answer["state"], answer["nodes"]) == (200, "refused", 1)
        assert [one["node"] for one in answer["nearest"]] == ["t4-a"]
        assert await found.cards("explain", "late") == 0
        told = capsys.readouterr()
        assert told.out.startswith("default/late: ")
        assert "360 of 4000 MiB free" in told.out
        assert told.err == ""
        assert await found.cards("explain", "late", "-o", "json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["state"], said["reason"], said["controller"]["state"]) == ("waits", "Unschedulable", "refused")


async def test_by_a_port_forward_the_note_says_which_name_the_certificate_has(rig, capsys):
    async with asked(rig) as (world, found):
        await waits(world)
        assert await found.cards("explain", "late", tls_server_name="") == 0
        told = capsys.readouterr()
        assert f"; give the name in it, such as --tls-server-name {SERVED_AS}" in told.err
        assert "360 of 4000 MiB free" in told.out


async def test_where_a_pod_is_is_told_and_that_another_is_not_known(rig):
    async with asked(rig) as (world, found):
        await world.add(pod("p", share(3000)))
        await world.phase("p")
        status, answer = await found.get("/v1/explain/default/p")
        assert (status, answer["node"], answer["cards"][0]["share"]) == (200, "t4-a", "3000 MiB")
        assert await found.get("/v1/explain/default/x%0A") == (
            404,
            {
                "pod": "default/x\n",
                "state": "unknown",
                "text": "pod 'default/x\\n' is unknown here, or neither requests nor holds cards",
            },
        )


HAMI = {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028}


def hami_share(memory):
    return {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": "30"}


async def test_shares_of_hami_are_told_as_others_are(rig, capsys):
    async with asked(rig, ({"name": "hami-a", "plugin": {**HAMI, "count": 2}},)) as (world, found):
        await world.add(pod("a", hami_share(20000)))
        await world.phase("a")
        await world.add(pod("b", hami_share(22000)))
        await world.phase("b")
        await world.add(pod("late", hami_share(4000)))
        await world.waits("late", "MiB free")
        assert await found.cards("explain", "late") == 0
        told = capsys.readouterr().out
        assert "GPU-hami-a-0: 1028 of 4000 MiB free" in told
        assert "Ask for at most 3028 MiB of memory" in told
        assert await found.cards("explain", "a") == 0
        assert capsys.readouterr().out == "default/a is bound to hami-a: GPU-hami-a-1 (20000 MiB, 30 % cores)\n"
        assert await run(parse(["get", "-o", "json", "--kubeconfig", found.kubeconfig], {}), {}) == 0
        (node,) = json.loads(capsys.readouterr().out)["nodes"]
        assert [(one["protocol"], one["mode"], one["used"], one["cores_pct"]) for one in node["cards"]] == [
            ("hami", "hami-core", 22000, 30),
            ("hami", "hami-core", 20000, 30),
        ]
        assert [one["held_by"][0]["pod"] for one in node["cards"]] == ["default/b", "default/a"]


@pytest.mark.parametrize("who", ["nobody", "audience", "account", "unknown"])
async def test_explanations_are_for_accounts_that_may_ask_with_tokens_made_for_it(rig, who):
    async with asked(rig) as (world, found):
        token, status = {
            "nobody": ("", 401),
            "audience": (await world.token("cardshare-explain"), 401),
            "account": (await world.token("other", "default", audiences=(AUDIENCE,)), 403),
            "unknown": ("x" * 40, 401),
        }[who]
        answered, told = await found.get("/v1/explain/default/p", token)
        assert answered == status
        assert told["text"]


async def test_the_right_may_be_given_for_one_namespace(rig):
    async with asked(rig) as (world, found):
        token = await world.token("reader", "default", audiences=(AUDIENCE,))
        await grant(world, "explain-default", ["/v1/explain/default/*"], "reader")
        assert (await found.get("/v1/explain/default/p", token))[0] == 404
        for path in ("/v1/explain/kube-system/p", "/v1/explain/default%2Fp/q/../../kube-system/p"):
            assert (await found.get(path, token))[0] in {403, 404}
        assert (await found.get("/v1/explain/kube-system/p", token))[0] == 403


async def test_the_plain_port_tells_nothing_of_pods(rig):
    async with asked(rig) as (world, _):
        for path in ("/v1/explain/default/p", "/v1/preview"):
            assert (await world.http(path))[0] == 404


async def test_without_an_answer_of_the_controller_the_api_tells_and_the_reason_is_noted(rig, capsys):
    async with asked(rig) as (world, found):
        await waits(world)
        (world.folder / "other.crt").write_text("no certificate")
        for changes, words in (
            ({"token_file": ""}, "note: the controller answers 401: send a token for audience"),
            ({"token_file": world.folder / "none"}, "none: no such file or directory"),
            ({"controller_ca": world.folder / "other.crt"}, "other.crt: it holds no certificate"),
            ({"tls_server_name": ""}, f"127.0.0.1:{found.port}: its certificate is not trusted: IP address mismatch"),
            ({"controller": f"https://127.0.0.1:{free_port()}"}, "does not answer: 127.0.0.1:"),
        ):
            assert await found.cards("explain", "late", **changes) == 0
            told = capsys.readouterr()
            assert words in told.err
            assert told.err.count("\n") == 1
            assert "object at" not in told.err
            assert told.out.startswith("default/late waits (Unschedulable): ")


async def test_shadow_names_the_flag_that_the_controller_runs_without(rig, capsys):
    async with asked(rig) as (_, found):
        assert await found.cards("shadow") == 1
        said = capsys.readouterr().err
        url = f"https://127.0.0.1:{found.port}"
        assert said == f"kubectl cards: ask a controller that runs with --shadow; the one at {url} runs without it\n"
