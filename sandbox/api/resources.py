"""The resources that the API server double serves, and additions by CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


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
        if self.group == "events.k8s.io":
            return self.plural
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """The path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs in discovery."""
        return ("create",) if self.virtual else ALL_VERBS

    @property
    def has_status(self) -> bool:
        """Whether status is a separate subresource."""
        return "status" in self.subresources


def _core(kind: str, plural: str, *short: str, namespaced: bool = True, sub: tuple[str, ...] = ()) -> ResourceType:
    return _of("", "v1", kind, plural, *short, namespaced=namespaced, sub=sub)


def _of(
    group: str, version: str, kind: str, plural: str, *short: str, namespaced: bool = True, sub: tuple[str, ...] = ()
) -> ResourceType:
    return ResourceType(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        singular=kind.lower(),
        short_names=short,
        subresources=sub,
    )


def _question(group: str, kind: str, plural: str, *, namespaced: bool = False) -> ResourceType:
    return ResourceType(
        group=group, version="v1", kind=kind, plural=plural, namespaced=namespaced, singular=kind.lower(), virtual=True
    )


_STATUS: Final = ("status",)

BUILTIN: Final[tuple[ResourceType, ...]] = (
    _core("Pod", "pods", "po", sub=("status", "binding", "eviction", "ephemeralcontainers", "resize")),
    _core("Node", "nodes", "no", namespaced=False, sub=_STATUS),
    _core("Namespace", "namespaces", "ns", namespaced=False, sub=_STATUS),
    _core("ConfigMap", "configmaps", "cm"),
    _core("Secret", "secrets"),
    _core("Event", "events", "ev"),
    _core("ServiceAccount", "serviceaccounts", "sa", sub=("token",)),
    _core("Service", "services", "svc", sub=_STATUS),
    _core("ResourceQuota", "resourcequotas", "quota", sub=_STATUS),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", sub=_STATUS),
    _core("PersistentVolume", "persistentvolumes", "pv", namespaced=False, sub=_STATUS),
    ResourceType(group="", version="v1", kind="Binding", plural="bindings", singular="binding", virtual=True),
    _of("apps", "v1", "Deployment", "deployments", "deploy", sub=_STATUS),
    _of("apps", "v1", "ReplicaSet", "replicasets", "rs", sub=_STATUS),
    _of("apps", "v1", "StatefulSet", "statefulsets", "sts", sub=_STATUS),
    _of("apps", "v1", "DaemonSet", "daemonsets", "ds", sub=_STATUS),
    _of("batch", "v1", "Job", "jobs", sub=_STATUS),
    _of("batch", "v1", "CronJob", "cronjobs", "cj", sub=_STATUS),
    _of("coordination.k8s.io", "v1", "Lease", "leases"),
    _of("events.k8s.io", "v1", "Event", "events", "ev"),
    _of(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
    ),
    _of(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
    ),
    # Stored and not evaluated: no policy denies anything here.
    _of(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        sub=_STATUS,
    ),
    _of(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
    ),
    _of("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    _of("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    _of("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False),
    _of("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _of("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", sub=_STATUS),
    _of("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", namespaced=False),
    _of("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    _of("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", namespaced=False),
    _of("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False),
    _of("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    _of("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    _of("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False, sub=_STATUS),
    _of("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", sub=_STATUS),
    _of("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
    _of(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd",
        "crds",
        namespaced=False,
        sub=_STATUS,
    ),
    _question("authentication.k8s.io", "TokenReview", "tokenreviews"),
    _question("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
    _question("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
    _question("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    _question("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
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
        default_factory=lambda: {(t.group, t.version, t.plural): t for t in BUILTIN}
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
