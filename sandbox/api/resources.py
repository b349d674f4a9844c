"""The resources that the API server double serves, and additions by CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

ALL_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of kubectl's table; *path* is a dotted path, and a *priority* above 0 requires ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One resource in one version. *virtual* ones are queries that are answered and not stored."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    virtual: bool = False
    custom: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods`` or ``deployments.apps``: the common key of all versions in the store."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """The path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("create",) if self.virtual else ALL_VERBS

    @property
    def has_status(self) -> bool:
        """Whether status is a separate subresource."""
        return "status" in self.subresources


# apiVersion, kind (* = in no namespace, ? = a query that is not stored), plural, short names, subresources.
# Policies are stored and not evaluated: none denies anything here.
_SERVED: Final = """
v1 Pod pods po status,binding,eviction
v1 Node* nodes no status
v1 Namespace* namespaces ns status
v1 ConfigMap configmaps cm -
v1 Secret secrets - -
v1 Event events ev -
v1 ServiceAccount serviceaccounts sa token
v1 Service services svc status
v1 ResourceQuota resourcequotas quota status
v1 PersistentVolumeClaim persistentvolumeclaims pvc status
v1 PersistentVolume* persistentvolumes pv status
v1 Binding? bindings - -
apps/v1 Deployment deployments deploy status
apps/v1 ReplicaSet replicasets rs status
apps/v1 StatefulSet statefulsets sts status
apps/v1 DaemonSet daemonsets ds status
batch/v1 Job jobs - status
batch/v1 CronJob cronjobs cj status
coordination.k8s.io/v1 Lease leases - -
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration* mutatingwebhookconfigurations - -
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration* validatingwebhookconfigurations - -
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy* validatingadmissionpolicies - status
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding* validatingadmissionpolicybindings - -
rbac.authorization.k8s.io/v1 Role roles - -
rbac.authorization.k8s.io/v1 RoleBinding rolebindings - -
rbac.authorization.k8s.io/v1 ClusterRole* clusterroles - -
rbac.authorization.k8s.io/v1 ClusterRoleBinding* clusterrolebindings - -
policy/v1 PodDisruptionBudget poddisruptionbudgets pdb status
scheduling.k8s.io/v1 PriorityClass* priorityclasses pc -
node.k8s.io/v1 RuntimeClass* runtimeclasses - -
storage.k8s.io/v1 StorageClass* storageclasses sc -
storage.k8s.io/v1 CSINode* csinodes - -
storage.k8s.io/v1 CSIDriver* csidrivers - -
storage.k8s.io/v1 CSIStorageCapacity csistoragecapacities - -
storage.k8s.io/v1 VolumeAttachment* volumeattachments - status
resource.k8s.io/v1 ResourceClaim resourceclaims - status
resource.k8s.io/v1 ResourceSlice* resourceslices - -
apiextensions.k8s.io/v1 CustomResourceDefinition* customresourcedefinitions crd,crds status
authentication.k8s.io/v1 TokenReview*? tokenreviews - -
authentication.k8s.io/v1 SelfSubjectReview*? selfsubjectreviews - -
authorization.k8s.io/v1 SubjectAccessReview*? subjectaccessreviews - -
authorization.k8s.io/v1 SelfSubjectAccessReview*? selfsubjectaccessreviews - -
"""


def _builtin() -> Iterator[ResourceType]:
    for line in _SERVED.strip().splitlines():
        api, word, plural, short, sub = line.split()
        group, _, version = api.rpartition("/")
        kind = word.rstrip("*?")
        yield ResourceType(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            namespaced="*" not in word,
            singular=kind.lower(),
            short_names=() if short == "-" else tuple(short.split(",")),
            subresources=() if sub == "-" else tuple(sub.split(",")),
            virtual=word.endswith("?"),
        )


def custom_types(definition: Mapping[str, Any]) -> tuple[ResourceType, ...]:
    """Return the resource types of a CustomResourceDefinition, one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    return tuple(
        ResourceType(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            singular=names.get("singular", names["kind"].lower()),
            short_names=tuple(names.get("shortNames") or ()),
            subresources=tuple(version.get("subresources") or ()),
            custom=True,
            columns=tuple(
                Column(
                    name=column["name"],
                    path=column["jsonPath"].lstrip("."),
                    type=column.get("type", "string"),
                    priority=column.get("priority", 0),
                )
                for column in version.get("additionalPrinterColumns") or ()
            ),
        )
        for version in spec["versions"]
        if version.get("served", True)
    )


@dataclass(slots=True, kw_only=True)
class Catalogue:
    """The resource types that are currently served."""

    _types: dict[tuple[str, str, str], ResourceType] = field(
        default_factory=lambda: {(t.group, t.version, t.plural): t for t in _builtin()}
    )

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the type served under that name, if any."""
        return self._types.get((group, version, plural))

    def add(self, definition: Mapping[str, Any]) -> None:
        """Serve the types of a CustomResourceDefinition instead of its earlier ones."""
        self.discard(definition)
        for added in custom_types(definition):
            self._types[added.group, added.version, added.plural] = added

    def discard(self, definition: Mapping[str, Any]) -> None:
        """Stop serving the types of a CustomResourceDefinition."""
        spec = definition["spec"]
        gone = [
            key
            for key, t in self._types.items()
            if t.custom and t.group == spec["group"] and t.plural == spec["names"]["plural"]
        ]
        for key in gone:
            del self._types[key]
