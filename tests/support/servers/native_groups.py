"""Groups of Kubernetes' own on a real API server: behind feature gates, in the version that it has (groups 7)."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple


class NativeGroups(NamedTuple):
    """How a server has them.

    condition: of a group whose members have their places. gates: the feature gates. is_for_every_indexed_job: whether
    the Job controller makes a gang of these; otherwise only if `spec.scheduling` of a Job asks for it. controllers: of
    kube-controller-manager, those without which no group is ever gone.
    """

    version: str
    condition: str
    gates: str
    is_for_every_indexed_job: bool
    controllers: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, str]:
        """What the server is started with to serve them."""
        return self.gates, f"--runtime-config=scheduling.k8s.io/{self.version}=true"


_GATES: Final = "--feature-gates=GenericWorkload=true"
_OF_1_36: Final = NativeGroups("v1alpha2", "PodGroupScheduled", f"{_GATES},GangScheduling=true", True)
_LATER: Final = NativeGroups(
    "v1beta1", "PodGroupInitiallyScheduled", _GATES, False, ("podgroup-protection-controller",)
)


def groups_of(server: Path) -> NativeGroups:
    """How the kube-apiserver *server* has them."""
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True, timeout=30.0).stdout
    return _OF_1_36 if said.startswith("Kubernetes v1.36.") else _LATER
