"""``kubectl cards snapshot``: all scheduling input in one compressed file, on request with replaced names.

A file holds the objects as the API server lists them, by the path of their list. Fields that never affect a decision,
such as commands and environments of containers, are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from cli.cluster import CLAIMS, NODES, PODS, SLICES, Reads, answered, fetch_parts, list_objects
from cli.waiting import CLASSES
from core import names
from core.catalog import standard_catalog
from core.configuration import OWN_MAP
from core.errors import ConfigError
from core.waiting import code_in
from core.wire.config_maps import decode_config_map
from kube.calls import Calls
from kube.errors import ApiError, ApiForbiddenError, from_event
from kube.kinds import APIS, HYPER_NODES_PATH, PODGROUPS, QUEUES_PATH, STORAGE
from kube.transport import Response

Json = dict[str, Any]

VERSION: Final = 1
CONFIG_MAPS: Final = "/api/v1/configmaps"
_LISTS: Final = (
    NODES,
    PODS,
    "/api/v1/resourcequotas",
    CLASSES,
    CLAIMS,
    SLICES,
    QUEUES_PATH,
    *(f"{api}/{PODGROUPS}" for apis in APIS.values() for api in apis),
    HYPER_NODES_PATH,
    "/api/v1/namespaces",
    "/apis/policy/v1/poddisruptionbudgets",
    *(path for path, _ in STORAGE.values()),
)
# Fields that never affect a decision, at any depth; some may hold secrets.
_DROPPED: Final = frozenset(
    {
        *("managedFields", "command", "args", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe"),
        *("startupProbe", "volumeMounts", "volumeDevices", "imagePullSecrets", "image", "imageID", "containerID"),
        *("images", "nodeInfo", "hostIP", "hostIPs", "podIP", "podIPs", "securityContext", "selfLink", "workingDir"),
        *("hostAliases", "dnsConfig", "terminationMessagePath", "daemonEndpoints", "volumesAttached", "volumesInUse"),
        # A state of a container: why kubelet does not start it, with the name of its image.
        "waiting",
        *("ephemeralContainers", "addresses", "podCIDR", "podCIDRs", "providerID"),
        *("parameters", "volumeAttributes", "mountOptions", "nodeID", "nfs", "hostPath", "glusterfs", "cephfs"),
        *("local", "flexVolume", "attachmentMetadata"),
        *("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"),
        *("controllerPublishSecretRef", "controllerExpandSecretRef"),
    }
)
# Their keys are names that people choose, such as "env".
_CHOSEN: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


async def take(reads: Reads, own_map: str = OWN_MAP) -> Json:
    """Return the part of the cluster that the user may see; a refused list or ConfigMap is recorded with its status.

    Of a list that is forbidden, the objects of the user's namespace are taken.
    own_map: the ConfigMap of cardshare's own settings, NAMESPACE/NAME.

    Raises:
        ApiError: the server does not answer, or pods may not be listed; no command could answer without them.
    """
    collections: Json = {path: await _collection(reads, path) for path in _LISTS}
    collections[CONFIG_MAPS] = await _config_maps(reads, own_map)
    return {
        "version": VERSION,
        "cardshare": names.VERSION,
        "taken": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "namespace": _namespace(reads),
        "redacted": False,
        "collections": collections,
    }


async def _collection(reads: Reads, path: str) -> Json:
    try:
        return {"items": [*await list_objects(reads, path, _read)]}
    except ApiError as e:
        found: Json = {"status": answered(e).status, "items": []}
        if isinstance(e, ApiForbiddenError) and (own := await _of_namespace(reads, path)) is not None:
            return {**found, "items": own, "only": _namespace(reads)}
        if path == PODS:
            raise
        return found


async def _of_namespace(reads: Reads, path: str) -> list[Json] | None:
    """Return the objects of the list *path* in the user's namespace; None if these may not be listed either."""
    api, _, kind = path.rpartition("/")
    try:
        return [*await list_objects(reads, f"{api}/namespaces/{quote(_namespace(reads), safe='')}/{kind}", _read)]
    except ApiError as e:
        answered(e)
        return None


def _namespace(reads: Reads) -> str:
    return reads.namespace or "default"


async def _config_maps(reads: Reads, own_map: str) -> Json:
    """Return the ConfigMaps of the configuration; refused: the status by NAMESPACE/NAME."""
    calls, found, refused = Calls(reads), list[Json](), dict[str, int]()

    async def texts(config_map: str) -> Mapping[str, str]:
        namespace, _, name = config_map.partition("/")
        try:
            text = await calls.get_config_map(namespace, name)
        except ApiError as e:
            refused[config_map] = answered(e).status
            return {}
        found.append(_read(text))
        try:
            return decode_config_map(text).texts
        except ConfigError:
            return {}

    await fetch_parts(texts, standard_catalog(), own_map)
    return {"items": found, "refused": refused}


def _read(text: bytes) -> Any:
    return _trimmed(json.loads(text))


def _trimmed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: one if key in _CHOSEN else _trimmed(one) for key, one in value.items() if not _is_dropped(key, value)
        }
    return [_trimmed(one) for one in value] if isinstance(value, list) else value


def _is_dropped(key: str, within: Json) -> bool:
    return key in _DROPPED or key == _LAST_APPLIED or (key == "message" and "exitCode" in within)


def packed(snapshot: Json) -> bytes:
    """Return *snapshot* as the bytes of its file."""
    return gzip.compress(json.dumps(snapshot, separators=(",", ":")).encode(), mtime=0)


class UnusableSnapshotError(Exception):
    """The file is not a readable snapshot; the text is one line with the reason."""


class _Versioned(msgspec.Struct, frozen=True):
    version: int


class _Collection(msgspec.Struct, frozen=True):
    items: list[Json] = []
    status: int = 0
    refused: dict[str, int] = {}
    # The namespace whose objects there are, although *status* refused all.
    only: str = ""


class _File(msgspec.Struct, frozen=True):
    taken: str
    namespace: str
    collections: dict[str, _Collection]


class SnapshotReads:
    """A `Reads` that answers from a snapshot, as the API server would have when it was taken.

    Attributes:
        taken: the time of the snapshot, RFC 3339.
    """

    def __init__(self, text: bytes) -> None:
        """Read the bytes of a file.

        Raises:
            UnusableSnapshotError: they are not a snapshot, or one of another version.
        """
        try:
            content = gzip.decompress(text)
            version = msgspec.json.decode(content, type=_Versioned).version
            if version != VERSION:
                raise UnusableSnapshotError(f"its version is {version}, and this command reads version {VERSION}")
            found = msgspec.json.decode(content, type=_File)
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise UnusableSnapshotError(
                f"it is not a snapshot, or it is damaged; take one with kubectl cards snapshot: {e}"
            ) from e
        self.taken, self._namespace, self._collections = found.taken, found.namespace, found.collections

    @property
    def taken_s(self) -> float:
        """Return the time of the snapshot in Unix seconds.

        Raises:
            UnusableSnapshotError: it has none.
        """
        try:
            return datetime.fromisoformat(self.taken).timestamp()
        except ValueError as e:
            raise UnusableSnapshotError(f"its time is unreadable: {e}") from e

    @property
    def namespace(self) -> str:
        """Return the namespace of the kubeconfig with which the snapshot was taken."""
        return self._namespace

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        **sending: Any,
    ) -> Response:
        """Answer a GET; *sending*: how it would travel.

        Raises:
            ApiError: the server refused the list then; `ApiNotFoundError` for an object that is not in the snapshot.
        """
        collection, namespace, name = _split(path)
        found = self._collections.get(collection)
        if found is None and collection.endswith("/events"):
            found = _Collection()
        status = 404 if found is None else found.status or found.refused.get(f"{namespace}/{name}", 0)
        if found is not None and found.only and found.only == namespace:
            status = 0
        if found is None or status:
            raise from_event(verb, path, status, "", "the server gave this answer when the snapshot was taken")
        wanted = [*_wanted(params or {})]
        items = [one for one in found.items if _is_at(one, namespace, name) and all(fits(one) for fits in wanted)]
        if not name:
            return _answer({"metadata": {"resourceVersion": "1"}, "items": items})
        if not items:
            raise from_event(verb, path, 404, "NotFound", "it is not in the snapshot")
        # As the API server answers; in a list, objects have no kind.
        return _answer({"kind": collection.rpartition("/")[2], **items[0]})


def _answer(value: Json) -> Response:
    return Response(status=200, headers={}, body=json.dumps(value).encode())


_PATH: Final = re.compile(
    r"(?P<api>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?"
)


def _split(path: str) -> tuple[str, str, str]:
    """Return the list with the object at *path*, and the object's namespace and name, "" for any."""
    found = _PATH.fullmatch(path)
    if found is None:
        return path, "", ""
    return f"{found['api']}/{found['kind']}", unquote(found["namespace"] or ""), unquote(found["name"] or "")


def _is_at(one: Json, namespace: str, name: str) -> bool:
    wanted = {"namespace": namespace, "name": name}
    return all(_has(("metadata", key), value, True, one) for key, value in wanted.items() if value)


def _wanted(params: Mapping[str, str]) -> Iterator[Callable[[Json], bool]]:
    """Yield the conditions of selectors; only ``=`` and ``!=`` are supported, because commands use no others."""
    for name, root in (("fieldSelector", ()), ("labelSelector", ("metadata", "labels"))):
        for term in filter(None, params.get(name, "").split(",")):
            key, operator, value = [*re.split(r"(!=|==?)", term, maxsplit=1), "", ""][:3]
            if not operator:
                raise from_event("GET", name, 400, "", "use KEY=VALUE or KEY!=VALUE; a snapshot has no others")
            keys = (*root, key) if root else tuple(key.split("."))
            yield partial(_has, keys, value, operator != "!=")


def _has(keys: tuple[str, ...], value: str, equal: bool, one: Json) -> bool:
    found: Any = one
    for key in keys:
        found = (found.get(key) or "") if isinstance(found, dict) else ""
    return (str(found) == value) is equal


# ---------------------------------------------------------------------- replaced names

# Labels and annotations under these domains describe cards and nodes; others contain names that owners chose.
_VENDORS: Final = re.compile(r"(^|\.)(nvidia\.com|volcano\.sh|huawei\.com|hami\.io|cardshare\.io)/")
# Annotations that affect decisions, besides vendors'.
_DECISIVE: Final = re.compile(
    r"scheduling\.k8s\.io/|(pv|volume|volume\.beta)\.kubernetes\.io/|scheduling\.x-k8s\.io/|cluster-autoscaler\.kubernetes\.io/|karpenter\.sh/"
    r"|(baseDeviceInfos|hami-vnpu-core|predicate-time)$"
)
# Labels without such a domain that affect node selection or the partitioning of a card; some are MindCluster's.
_PLAIN_LABELS: Final = frozenset(
    {
        *("kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os"),
        *("accelerator", "servertype", "host-arch", "node.kubernetes.io/npu.chip.name", "ring-controller.atlas"),
        *("vnpu-level", "vnpu-dvpp"),
    }
)
# Names that are common to clusters.
_COMMON: Final = frozenset(
    {"default", "root", "kube-system", "volcano", "volcano-system", "cardshare", "cardshare-system"}
)
_NAMED: Final = frozenset(
    {
        *("name", "namespace", "uid", "nodeName", "generateName", "serviceAccountName", "serviceAccount", "queue"),
        *("claimName", "hostname", "subdomain", "priorityClassName", "nominatedNodeName", "parent", "host", "node"),
        *("storageClassName", "volumeName", "volumeHandle", "volumeID", "pdName", "diskURI", "volumePath", "driver"),
        *("provisioner", "attacher", "iqn", "pool", "targetPortal", "secretName", "shareName", "pattern"),
        "volume.kubernetes.io/selected-node",
    }
)
_ADDRESS: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,7}\b")
_CARD: Final = re.compile(r"\b(GPU|MIG|NPU)-[0-9A-Za-z][0-9A-Za-z-]*")
_SHORT: Final = 3
_LEFT_OUT: Final = "(left out: it may name nodes or pods that were not listed)"
_TOKEN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


def redacted(snapshot: Json, salt: bytes) -> Json:
    """Return *snapshot* with consistently replaced names of nodes, pods, namespaces, cards, label values and addresses.

    Numbers, names that are common to clusters, and the values of vendors' labels stay. Unless all nodes and pods are
    listed, of messages only the code stays, because they may have names that cannot be known.

    Args:
        snapshot: the result of `take`.
        salt: part of the hash of each name; without it, nobody can confirm a guessed name.
    """
    listed = (snapshot["collections"].get(path, {}) for path in (NODES, PODS))
    redactor = _Redactor(salt, knows_all=not any(one.get("status") for one in listed))
    redactor.learn({"namespace": snapshot["namespace"]})
    for path, found in snapshot["collections"].items():
        # Names of ConfigMaps stay, because commands look ConfigMaps up by name.
        redactor.learn(found["items"] if path != CONFIG_MAPS else [one.get("data") for one in found["items"]])
    maps = snapshot["collections"].get(CONFIG_MAPS, {"items": []})["items"]
    redactor.keep_words_of(text for one in maps for text in (one.get("data") or {}).values())
    collections = {
        path: {
            **found,
            "items": [redactor.of(one) for one in found["items"]],
            "refused": {redactor.text(name): status for name, status in found.get("refused", {}).items()},
            "only": redactor.text(found.get("only", "")),
        }
        for path, found in snapshot["collections"].items()
    }
    namespace = redactor.text(snapshot["namespace"])
    return {**snapshot, "redacted": True, "namespace": namespace, "collections": collections}


def _is_plain(label: str) -> bool:
    """Return whether the value of *label* describes a card or a node, and is not a name that its owner chose."""
    return label in _PLAIN_LABELS or _VENDORS.search(label) is not None


def _decisive(annotations: Any) -> Any:
    """Return the *annotations* that affect decisions; others may contain any text."""
    if not isinstance(annotations, dict):
        return annotations
    return {key: one for key, one in annotations.items() if _VENDORS.search(key) or _DECISIVE.match(key)}


class _Redactor:
    def __init__(self, salt: bytes, *, knows_all: bool) -> None:
        """*knows_all*: all nodes and pods are listed, so that their names are known where a message has them."""
        self._salt: Final = salt
        self._knows_all: Final = knows_all
        self._names: Final[set[str]] = set()
        self._values: Final[set[str]] = set()

    def learn(self, value: Any, *, in_labels: bool = False) -> None:
        """Collect the names in *value*."""
        if isinstance(value, list):
            for one in value:
                self.learn(one, in_labels=in_labels)
        elif isinstance(value, dict):
            for key, one in value.items():
                is_label = in_labels and not _is_plain(key)
                if isinstance(one, str) and (is_label or (key in _NAMED and not in_labels)):
                    self._add(one, self._values if is_label else self._names)
                elif key == "values" and isinstance(one, list) and not _is_plain(str(value.get("key", ""))):
                    for each in one:
                        self._add(str(each), self._values)
                self.learn(one, in_labels=key in ("labels", "matchLabels", "nodeSelector"))

    def _add(self, name: str, to: set[str]) -> None:
        name = name.rstrip("-")
        if name and name not in _COMMON and not name.isdigit():
            to.add(name)

    def keep_words_of(self, texts: Iterable[str]) -> None:
        """Keep label values that are words of the device plugins' configuration, such as a card's type."""
        for text in texts:
            self._values.difference_update(_TOKEN.findall(text))

    def of(self, value: Any) -> Any:
        """Return *value* with replaced names."""
        if isinstance(value, dict):
            return {key: self.of(self._kept(key, one)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        return self.text(value) if isinstance(value, str) else value

    def _kept(self, key: str, value: Any) -> Any:
        if key == "message" and isinstance(value, str) and value and not self._knows_all:
            return f"{code_in(value)} {_LEFT_OUT}".lstrip()
        return _decisive(value) if key == "annotations" else value

    def text(self, text: str) -> str:
        """Return *text* with replaced names."""
        if text in self._names or text in self._values:
            return self._other(text)
        text = _CARD.sub(lambda found: f"{found[1]}-{self._other(found[0])}", text)
        text = _ADDRESS.sub(lambda found: self._other(found[0]), text)
        return _TOKEN.sub(lambda found: self._other(found[0]) if self._is_secret(found[0]) else found[0], text)

    def _is_secret(self, word: str) -> bool:
        # A short value such as "no" also occurs as an ordinary word.
        return word in self._names or (word in self._values and len(word) > _SHORT)

    def _other(self, name: str) -> str:
        return "r" + hashlib.sha256(self._salt + name.encode()).hexdigest()[:12]
