"""Runs what the manifests of `deploy/` say on this machine: the processes, their arguments, files and accounts.

Everything is taken from the manifests as kustomize builds them and as the API server stores them. What is another here:
addresses (loopback and free ports, since no network of pods is here) and where mounted files lie.
"""

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.client import ApiClient, ApiStatusError
from sandbox.demo.processes import Processes, Running, free_port
from tests.support.servers.realapi import RealApi

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy"
NAMESPACE: Final = "cardshare-system"
WEBHOOK_SERVICE: Final = "cardshare-webhook"
_REGISTRATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_TOKEN_S: Final = 3600
_JOB_WITHIN_S: Final = 120

Json = dict[str, Any]


class KubectlFailedError(AssertionError):
    """kubectl ended with an error; the text holds what it said."""


async def kubectl(api: RealApi, *words: str, text: str = "") -> tuple[str, str]:
    """Run kubectl as an administrator of *api*: (what it said, what it complained of).

    Raises:
        KubectlFailedError: its exit code was not 0.
    """
    assert api.binaries.kubectl is not None, "kubectl not found; name it with KUBECTL or put it on the PATH"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        api.binaries.kubectl,
        *words,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={"KUBECONFIG": str(api.kubeconfig), "HOME": str(api.kubeconfig.parent), "PATH": ""},
    )
    async with asyncio.timeout(150):
        out, err = await process.communicate(text.encode())
    if process.returncode:
        raise KubectlFailedError(f"kubectl {' '.join(words)}: {err.decode()}{out.decode()}")
    return out.decode(), err.decode()


async def built(api: RealApi, overlay: str) -> tuple[Json, ...]:
    """What `kubectl kustomize` makes of an overlay."""
    text, _ = await kubectl(api, "kustomize", str(DEPLOY / "overlays" / overlay))
    return tuple(yaml.load_all(text, Loader=yaml.CSafeLoader))


def reached_at(documents: Sequence[Json], port: int) -> tuple[Json, ...]:
    """The same, with the webhook's Service leading to *port* of this machine: no proxy routes to pods here.

    An ExternalName Service has no port of its own, so that the port stands in the webhook entries.
    """
    return tuple(_reached_at(document, port) for document in documents)


def _reached_at(document: Json, port: int) -> Json:
    if document["kind"] == "Service" and document["metadata"]["name"] == WEBHOOK_SERVICE:
        ports = [{**each, "port": port, "targetPort": port} for each in document["spec"]["ports"]]
        return {**document, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports}}
    if document["kind"] not in _REGISTRATIONS:
        return document
    found: Json = json.loads(json.dumps(document))
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["service"]["port"] = port
    return found


def text_of(documents: Sequence[Json]) -> str:
    """Documents as kubectl reads them."""
    return "".join(f"---\n{yaml.safe_dump(document, sort_keys=False)}" for document in documents)


def find(documents: Sequence[Json], kind: str, name: str) -> Json:
    """The one object of that kind and name."""
    (found,) = [one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def daily(documents: Sequence[Json]) -> Json:
    """The Job that makes certificates every day, or at once."""
    cron_job = find(documents, "CronJob", "cardshare-certs")
    return {**cron_job["spec"]["jobTemplate"], "metadata": cron_job["metadata"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs the container of a workload as its kubelet would.

    folder: for kubeconfigs and mounted files. admin: reads what is mounted.
    """

    api: RealApi
    admin: ApiClient
    processes: Processes
    folder: Path

    async def start(
        self, name: str, workload: Json, more: Sequence[str] = (), instead: str = ""
    ) -> tuple[Running, Mapping[str, int]]:
        """Start it with its arguments and *more*: the process, and where each port of its container is here.

        *instead*: a module to run in place of its own.

        A token of its service account is given to it exactly if its manifest mounts one, and its pod is in the cluster
        exactly if its manifest has it told of that.
        """
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        python, flag, module = container["command"]
        assert (python, flag) == ("python", "-m")
        ports = {port["name"]: free_port() for port in container.get("ports", ())}
        by_number = {port["containerPort"]: ports[port["name"]] for port in container.get("ports", ())}
        mounts = await self._mounts(name, pod, container)
        arguments = [self._here(argument, by_number, mounts) for argument in container["args"]]
        if pod["automountServiceAccountToken"]:
            arguments.append(f"--kubeconfig={await self._kubeconfig(pod['serviceAccountName'])}")
        environ = await self._environ(f"{workload['metadata']['name']}-0", workload, container)
        return await self.processes.start(name, instead or module, (*arguments, *more), environ), ports

    async def finish(self, name: str, workload: Json, more: Sequence[str] = ()) -> str:
        """Run a Job to its end, with its arguments and *more*, and say what it wrote.

        Raises:
            AssertionError: it failed.
        """
        running, _ = await self.start(name, workload, more)
        async with asyncio.timeout(_JOB_WITHIN_S):
            code = await running.process.wait()
        assert code == 0, f"{name} ended with {code}:\n{running.log_tail()}"
        return running.log_tail()

    async def _environ(self, name: str, workload: Json, container: Json) -> Mapping[str, str]:
        """The variables of the container, with the downward API and references to others resolved."""
        downward = {"metadata.name": name, "metadata.namespace": NAMESPACE}
        found: dict[str, str] = {}
        is_told = False
        for one in container.get("env", ()):
            if "valueFrom" in one:
                is_told, value = True, downward[one["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                value = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], one["value"])
            found[one["name"]] = value
        if is_told:
            template = workload["spec"]["template"]
            pod = {"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
            try:
                await self.admin.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
            except ApiStatusError as e:
                if e.reason != "AlreadyExists":  # of a container that is started again
                    raise
        return found

    async def _kubeconfig(self, account: str) -> Path:
        token = await self.api.token_for(account, NAMESPACE, expiration_s=_TOKEN_S)
        return self.api.write_kubeconfig(self.folder / f"{account}.kubeconfig", token)

    async def _mounts(self, name: str, pod: Json, container: Json) -> Mapping[str, Path]:
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        mounts: dict[str, Path] = {}
        for mount in container.get("volumeMounts", ()):
            assert mount["readOnly"] is True
            place = self.folder / name / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            account = pod["serviceAccountName"]
            for key, content in (await self._files(volumes[mount["name"]], account)).items():
                path = place / key
                path.touch(mode=0o600)
                path.write_bytes(content)
            mounts[mount["mountPath"]] = place
        return mounts

    async def _files(self, volume: Json, account: str) -> Mapping[str, bytes]:
        core = f"/api/v1/namespaces/{NAMESPACE}"
        if "projected" in volume:
            found: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                wish = source["serviceAccountToken"]
                spec = {"audiences": [wish["audience"]], "expirationSeconds": wish["expirationSeconds"]}
                answer = await self.admin.create(f"{core}/serviceaccounts/{account}/token", {"spec": spec})
                found[wish["path"]] = answer["status"]["token"].encode()
            return found
        if "secret" in volume:
            data = (await self.admin.get(f"{core}/secrets/{volume['secret']['secretName']}"))["data"]
            return {item["path"]: base64.b64decode(data[item["key"]]) for item in volume["secret"]["items"]}
        named = await self.admin.list(
            f"{core}/configmaps", field_selector=f"metadata.name={volume['configMap']['name']}"
        )
        assert named or volume["configMap"].get("optional"), volume
        data = named[0].get("data", {}) if named else {}
        return {key: text.encode() for key, text in data.items()}

    @staticmethod
    def _here(argument: str, ports: Mapping[int, int], mounts: Mapping[str, Path]) -> str:
        """An argument with its port and its mounted path as they are on this machine."""
        flag, _, value = argument.partition("=")
        for mounted, place in mounts.items():
            if value == mounted or value.startswith(f"{mounted}/"):
                return f"{flag}={place}{value.removeprefix(mounted)}"
        host, colon, port = value.rpartition(":")
        if colon and host in {"", "0.0.0.0"} and port.isdigit():
            return f"{flag}=127.0.0.1:{ports[int(port)]}"
        return argument
