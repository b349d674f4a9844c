"""What users should know of the labels by which a pod chooses a template, and what a slice is without them.

Source: protocol reference, ascend 3.3, 3.4, 4.11.
"""

from collections.abc import Iterator

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.requests import Request
from core.dialects.mindcluster.templates import DECISIONS, HIGH, LOW, NULL
from core.model import AnyPod, Pod
from core.warnings import AdmissionWarning, no_effect


def completed(pod: Pod, request: Request) -> Pod:
    """CS118: with what a slice is without the labels that choose it, written out."""
    defaults = {keys.LEVEL: LOW, keys.DVPP: NULL}
    if request.choice is None or defaults.keys() <= pod.labels.keys():
        return pod
    return pod._replace(labels={**defaults, **pod.labels})


def of(pod: AnyPod, request: Request) -> Iterator[AdmissionWarning]:
    """CS116: labels where there is no template to choose, or the choice is the same."""
    cores, choice = request
    level, dvpp = pod.labels.get(keys.LEVEL, LOW), pod.labels.get(keys.DVPP, NULL)
    if choice is None:
        for key, found, usual in ((keys.LEVEL, level, LOW), (keys.DVPP, dvpp, NULL)):
            if found != usual:
                yield no_effect(f"label {key}", found, f"{cores} AI cores are whole chips", "leave it out")
    elif level not in (LOW, HIGH):
        yield no_effect(f"label {keys.LEVEL}", level, f"it is read as {LOW}", f"write {LOW} or {HIGH}")
    elif level == HIGH and choice == DECISIONS[cores, dvpp, False]:
        why = f"{keys.CORES}: {cores} with {keys.DVPP} {dvpp} is {choice.template.name} at any level"
        yield no_effect(f"label {keys.LEVEL}", level, why, "leave it out")
