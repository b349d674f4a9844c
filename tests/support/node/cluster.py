"""A Kubernetes of one node, with its real kubelet, containerd and kube-proxy, in namespaces of its own.

    with Cluster(binaries, tree, store, logs=folder) as cluster:
        cluster.kubectl("apply", "-f", "-", text=...)

Nothing of it listens outside; `tests.support.node.namespaces` ends and removes it, also when the tests are killed.
"""

import base64
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import issue, new_authority
from sandbox.cluster import API_SERVER
from tests.support.node.api import Api, RefusedError
from tests.support.node.images import BUSYBOX
from tests.support.node.namespaces import PATIENCE_S, ROOT, CommandFailedError, Namespaces
from tests.support.servers.realapi import admission_configuration, webhook_kubeconfig
from tests.support.servers.realapi_binaries import Binaries
from tests.support.worlds.processes import Child, until

Json = dict[str, Any]

NODE: Final = "node-a"
_ADDRESS: Final = "10.90.0.1"
_PODS: Final = "10.91.0.0/24"
_SERVICES: Final = "10.92.0.0/24"
_API_SERVICE: Final = "10.92.0.1"
_SOCKET: Final = "/run/containerd/containerd.sock"
_ETCD: Final = "http://127.0.0.1:2379"
_URL: Final = f"https://{_ADDRESS}:6443"
# user: groups; each has a token and a kubeconfig of its own.
_USERS: Final[Mapping[str, str]] = {
    "admin": "system:masters",
    f"system:node:{NODE}": "system:nodes",
    "system:kube-proxy": "",
}


class Cluster:
    """The cluster. Use it as a context manager; it is ready inside."""

    def __init__(
        self,
        binaries: Binaries,
        tree: Path,
        store: Path,
        *,
        logs: Path,
        programs: Mapping[str, Path] | None = None,
        kubelet_gates: Mapping[str, bool] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            binaries: the programs of Kubernetes.
            tree: the node's file system.
            store: containerd's folder with the images; it is written to.
            logs: where all logs go.
            programs: further programs, by name.
            kubelet_gates: the kubelet's feature gates.
        """
        kubernetes = {name.replace("_", "-"): getattr(binaries, name) for name in binaries.__slots__}
        binds = {
            **{f"/opt/kubernetes/{name}": (path, "ro") for name, path in {**kubernetes, **(programs or {})}.items()},
            "/checkout": (ROOT, "ro"),
            "/var/lib/containerd": (store, "rw"),
        }
        logs.mkdir(parents=True, exist_ok=True)
        self.there = Namespaces(tree, logs=logs, binds=binds, address=_ADDRESS)
        self.programs = frozenset(programs or {})
        self.kubelet_gates = dict(kubelet_gates or {})
        self.took_s: dict[str, float] = {}
        self._tokens = {user: secrets.token_hex(16) for user in _USERS}
        self._kubelet: Child | None = None
        self._containerd: Child | None = None

    def __enter__(self) -> Self:
        begun_s = time.monotonic()
        self.there.__enter__()
        try:
            self._start(begun_s)
        except BaseException:
            self.there.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.there.close()

    @property
    def api(self) -> Api:
        """The API server, as an administrator sees it from outside the namespaces."""
        return Api(self.there.share / "api.sock")

    def kubectl(self, *words: str | Path, text: str | None = None) -> str:
        """What kubectl says, as an administrator."""
        return self.there.run("kubectl", "--kubeconfig=/share/admin.kubeconfig", *words, text=text)

    def doctor(self) -> str:
        """What `kubectl cards doctor` of this checkout says, in the node's network."""
        return self.there.run_in_network(
            sys.executable, "-m", "cli", "doctor", "--kubeconfig", self.there.share / "admin.kubeconfig"
        )

    def kubelet_log(self) -> str:
        """All that kubelets have written so far."""
        return (self.there.logs / "kubelet.log").read_text(encoding="utf-8", errors="replace")

    def node_not_ready(self) -> str:
        """Why the node is not ready, or ""."""
        try:
            node = self.api.get(f"/api/v1/nodes/{NODE}")
            self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except (OSError, RefusedError) as e:
            return str(e)
        ready = [one for one in node["status"].get("conditions", []) if one["type"] == "Ready"]
        return "" if ready and ready[0]["status"] == "True" else f"Ready: {ready}"

    @contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """Kill the kubelet, and start it afterwards; containers go on meanwhile."""
        self._kill_kubelet()
        try:
            yield
        finally:
            self._start_kubelet()

    def _kill_kubelet(self) -> None:
        assert self._kubelet is not None, "no kubelet runs"
        self.there.children.stop(self._kubelet, grace_s=0)
        self._kubelet = None

    def _start_kubelet(self) -> None:
        self._write_kubelet_configuration()
        # As systemd does: a kubelet that finds containerd not ready yet ends, and is started again.
        self._kubelet = self.there.start(
            "kubelet",
            *("sh", "-c", 'while :; do kubelet "$@"; sleep 0.2; done', "kubelet"),
            "--config=/share/kubelet.json",
            f"--kubeconfig={_kubeconfig_path(f'system:node:{NODE}')}",
            f"--hostname-override={NODE}",
            f"--node-ip={_ADDRESS}",
            "--v=2",
        )

    def restart_without_containers(self) -> None:
        """With no kubelet, end containerd and every container at once, as a loss of power does; start containerd."""
        assert self._containerd is not None, "no containerd runs"
        self.there.children.stop(self._containerd, grace_s=0)
        self.there.kill_all("containerd-shim")
        self.there.run("sh", "-c", _FORGET_RUNNING)
        self._start_containerd()

    def _start(self, begun_s: float) -> None:
        self._write_credentials()
        self.there.start("etcd", "etcd", *_etcd_flags())
        self._start_containerd()
        self.there.start("kube-apiserver", "kube-apiserver", *_apiserver_flags())
        until("kube-apiserver", self._apiserver_not_ready, deadline_s=PATIENCE_S, pause_s=0.2)
        self.took_s["API server"] = time.monotonic() - begun_s
        own = "--kubeconfig=/share/admin.kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"
        keys = "--root-ca-file=/share/ca.crt", "--service-account-private-key-file=/share/sa.key"
        self.there.start("kube-controller-manager", "kube-controller-manager", *own, *keys)
        self.there.start("kube-scheduler", "kube-scheduler", *own)
        self.there.start("kubectl-proxy", "kubectl", own[0], "proxy", "--unix-socket=/share/api.sock")
        # For the logs of containers.
        role = ("--clusterrole=system:kubelet-api-admin", f"--user={API_SERVER}")
        self.kubectl("create", "clusterrolebinding", "kubelet-api", *role)
        self._start_proxy()
        self._start_kubelet()
        until("the node", self.node_not_ready, deadline_s=PATIENCE_S, pause_s=0.2, children=self._running())
        self.took_s["node"] = time.monotonic() - begun_s

    def _running(self) -> tuple[Child, ...]:
        return tuple(child for child in (self._kubelet, self._containerd) if child is not None)

    def _apiserver_not_ready(self) -> str:
        try:
            self.kubectl("get", "--raw", "/readyz")
            self.kubectl("get", "--raw", "/api/v1/namespaces/default/services/kubernetes")
        except CommandFailedError as e:
            return e.said
        return ""

    def _start_containerd(self) -> None:
        share = self.there.share
        (share / "containerd.toml").write_text(_CONTAINERD, encoding="utf-8")
        network = self.there.share / "10-bridge.conflist"
        network.write_text(json.dumps(_NETWORK), encoding="utf-8")
        self.there.run("mkdir", "-p", "/etc/cni/net.d")
        self.there.run("cp", "/share/10-bridge.conflist", "/etc/cni/net.d/")
        self._containerd = self.there.start("containerd", "containerd", "--config=/share/containerd.toml")
        until("containerd", self._containerd_not_ready, deadline_s=PATIENCE_S, children=self._running())

    def _containerd_not_ready(self) -> str:
        try:
            self.there.run("ctr", "version")
        except CommandFailedError as e:
            return e.said
        return ""

    def _start_proxy(self) -> None:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": _kubeconfig_path("system:kube-proxy")},
            "mode": "iptables",
            "clusterCIDR": _PODS,
            # What it would set for the whole kernel.
            "conntrack": {"maxPerCore": 0},
        }
        self._write("proxy.json", configuration)
        # As its DaemonSet does: it ends when its Node is deleted, and is started again.
        self.there.start(
            "kube-proxy",
            *("sh", "-c", 'while :; do kube-proxy "$@"; sleep 0.2; done', "kube-proxy"),
            "--config=/share/proxy.json",
            f"--hostname-override={NODE}",
        )

    def _write_kubelet_configuration(self) -> None:
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.there.name}",
            # The older kind, on machines that have no other.
            "failCgroupV1": False,
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": "/share/ca.crt"}},
            "authorization": {"mode": "Webhook"},
            "clusterDomain": "cluster.local",
            "resolvConf": "/share/resolv.conf",
            "maxPods": 200,
            # Schedulers hear of devices by it; the default of 10 s only makes tests slow.
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "10s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "featureGates": self.kubelet_gates,
        }
        self._write("kubelet.json", configuration)
        (self.there.share / "resolv.conf").write_text("nameserver 127.0.0.1\n", encoding="ascii")

    def _write_credentials(self) -> None:
        share, now = self.there.share, datetime.now(UTC)
        authority = new_authority("cardshare test authority", 2, now)
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        leaf = issue(authority, names, ("127.0.0.1", _ADDRESS, _API_SERVICE), 2, now)
        client = issue(authority, (API_SERVER,), (), 2, now, for_client=True)
        signing_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        lines = [f'{self._tokens[user]},{user},{user},"{groups}"\n' for user, groups in _USERS.items()]
        files = {
            "ca.crt": authority.cert_pem,
            "tls.crt": leaf.cert_pem,
            "tls.key": leaf.key_pem,
            "sa.key": signing_key,
            "client.crt": client.cert_pem,
            "client.key": client.key_pem,
            "tokens.csv": "".join(lines).encode(),
        }
        for name, content in files.items():
            (share / name).write_bytes(content)
        shown = webhook_kubeconfig(*(base64.b64encode(pem).decode() for pem in (client.cert_pem, client.key_pem)))
        self._write("webhooks.kubeconfig", shown)
        self._write("admission.json", admission_configuration("/share/webhooks.kubeconfig"))
        for user, token in self._tokens.items():
            self._write(Path(_kubeconfig_path(user)).name, _kubeconfig(authority.cert_pem, token))

    def _write(self, name: str, document: Json) -> None:
        (self.there.share / name).write_text(json.dumps(document), encoding="utf-8")


def _kubeconfig_path(user: str) -> str:
    return f"/share/{user.rpartition(':')[2]}.kubeconfig"


def _kubeconfig(ca_pem: bytes, token: str) -> Json:
    cluster = {"server": _URL, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "clusters": [{"name": "node", "cluster": cluster}],
        "users": [{"name": "node", "user": {"token": token}}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
    }


def _etcd_flags() -> tuple[str, ...]:
    peer = "http://127.0.0.1:2380"
    return (
        "--name=node",
        "--data-dir=/var/lib/etcd/data",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=node={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    )


def _apiserver_flags() -> tuple[str, ...]:
    return (
        f"--etcd-servers={_ETCD}",
        f"--advertise-address={_ADDRESS}",
        "--secure-port=6443",
        "--tls-cert-file=/share/tls.crt",
        "--tls-private-key-file=/share/tls.key",
        "--client-ca-file=/share/ca.crt",
        "--kubelet-client-certificate=/share/client.crt",
        "--kubelet-client-key=/share/client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--cert-dir=/run/kubernetes",
        "--token-auth-file=/share/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        f"--service-cluster-ip-range={_SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=/share/sa.key",
        "--service-account-signing-key-file=/share/sa.key",
        "--admission-control-config-file=/share/admission.json",
    )


_NETWORK: Final = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni",
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
# Without CAP_SYS_RESOURCE nobody may lower an oom_score_adj, and runc ends; hence the first restriction.
_CONTAINERD: Final = f"""\
version = 2
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{BUSYBOX}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
# What is in /run does not outlive a reboot.
_FORGET_RUNNING: Final = (
    "for one in $(grep -oE ' /run/(containerd|netns)/[^ ]*' /proc/mounts | sort -r); do umount -l $one; done; "
    "rm -rf /run/containerd /run/netns /run/cni"
)
