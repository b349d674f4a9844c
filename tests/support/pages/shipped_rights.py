"""Which rights each account of deploy/base has, and which it should have."""

from collections.abc import Iterator

from tests.support.pages.shipped import NAMESPACE, OBJECTS, Json, one

STORAGE = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
DYNAMIC = ("resourceclaims", "resourceslices")
EXPECTED_RIGHTS = {
    "cardshare-controller": {
        ("", "nodes", "get"), ("", "nodes", "list"), ("", "nodes", "watch"), ("", "nodes", "patch"),
        ("", "pods", "get"), ("", "pods", "list"), ("", "pods", "watch"), ("", "pods", "patch"),
        ("", "pods/status", "patch"), ("", "pods/binding", "create"),
        ("", "namespaces", "list"), ("", "namespaces", "watch"),
        ("", "resourcequotas", "list"), ("", "resourcequotas", "watch"),
        ("", "persistentvolumeclaims", "list"), ("", "persistentvolumeclaims", "watch"),
        ("", "persistentvolumeclaims", "patch"), ("", "persistentvolumes", "patch"),
        ("", "persistentvolumes", "list"), ("", "persistentvolumes", "watch"),
        *(("storage.k8s.io", kind, verb) for kind in STORAGE for verb in ("list", "watch")),
        *(("resource.k8s.io", kind, verb) for kind in DYNAMIC for verb in ("list", "watch")),
        ("", "events", "get"), ("", "events", "create"), ("", "events", "patch"),
        ("", "configmaps", "list"), ("", "configmaps", "watch"), ("", "configmaps", "patch"),
        ("", "configmaps", "get"),
        ("scheduling.volcano.sh", "podgroups", "list"), ("scheduling.volcano.sh", "podgroups", "watch"),
        ("scheduling.volcano.sh", "queues", "list"), ("scheduling.volcano.sh", "queues", "watch"),
        ("scheduling.k8s.io", "podgroups", "list"), ("scheduling.k8s.io", "podgroups", "watch"),
        ("scheduling.k8s.io", "podgroups/status", "patch"),
        ("scheduling.k8s.io", "priorityclasses", "list"), ("scheduling.k8s.io", "priorityclasses", "watch"),
        ("scheduling.x-k8s.io", "podgroups", "list"), ("scheduling.x-k8s.io", "podgroups", "watch"),
        ("topology.volcano.sh", "hypernodes", "list"), ("topology.volcano.sh", "hypernodes", "watch"),
        ("coordination.k8s.io", "leases", "get"), ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    },
    # Only what it may ask of the controller, by URL.
    "cardshare-explain": set(),
    "cardshare-certs": {
        ("", "secrets", "get"), ("", "secrets", "create"), ("", "secrets", "patch"),
        ("", "pods", "get"), ("", "pods/status", "patch"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "patch"),
    },
    "cardshare-webhook": {
        ("", "nodes", "list"), ("", "nodes", "watch"), ("", "events", "create"),
        ("", "resourcequotas", "list"), ("", "resourcequotas", "watch"),
        ("", "configmaps", "list"), ("", "configmaps", "watch"),
    },
}  # fmt: skip


def rules_of(account: str) -> Iterator[tuple[str, Json]]:
    """(where: a namespace or "" for everywhere, rule) of *account*."""
    for binding in OBJECTS:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
            if subject["name"] == account:
                where = binding["metadata"].get("namespace", "")
                reference = binding["roleRef"]
                for rule in one(reference["kind"], reference["name"], where or None)["rules"]:
                    yield where, rule
