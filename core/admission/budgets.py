"""What is left of a namespace's ResourceQuotas for the cards that a pod or a workload asks for: told, never judged.

``requests.NAME`` is counted and held by the API server itself, as containers write it: it alone refuses. HAMi's
``limits.NAME``, and NAME alone, are held by no API server; of these so much is asked as there are cards times what is
asked of each (`core.placing.fairness`). Pods beyond ``limits.`` of memory and cores wait: the controller sees to it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from core import nodefit
from core.admission.defaulting import complete_resources
from core.admission.rulebook import Rulebook
from core.errors import InvalidRequestError
from core.model import ReviewedPod
from core.units import counted, parse_amount
from core.warnings import AdmissionWarning
from core.wire.quotas import ResourceQuota
from core.wire.reviewed_pods import pod_of
from core.wire.templates import Template, Workload

CODE: Final = "CS317"
_COUNTED: Final = "requests."
_UNCOUNTED: Final = "limits."


class Made(NamedTuple):
    """So many pods of one kind are to be made."""

    pod: ReviewedPod
    replicas: int = 1


def made_by(found: Workload, namespace: str) -> tuple[Made, ...]:
    """The pods that *found* makes which it did not make before; none where it is going, or a controller made it."""
    if found.deleting or found.made:
        return ()
    before = {one.field: one for one in found.before}
    return tuple(
        Made(pod_of(one.pod, namespace)._replace(namespace=namespace), replicas)
        for one in found.templates
        if (replicas := _more(one, before.get(one.field))) > 0
    )


def _more(template: Template, before: Template | None) -> int:
    """How many pods of *template* are new; of an edited one its old pods make room only after new ones were made."""
    is_same = before is not None and before.pod == template.pod
    return template.replicas - before.replicas if is_same and before is not None else template.replicas


def left(made: Iterable[Made], quotas: Iterable[ResourceQuota], book: Rulebook) -> tuple[AdmissionWarning, ...]:
    """What *quotas*, of the namespace of *made*, leave of the cards that are asked; of several the least.

    Quotas with scopes are passed over: which pods they count is the API server's to say.
    """
    pods = tuple(one._replace(pod=complete_resources(one.pod, book)[0]) for one in made)
    keys = {key for quota in quotas for key in quota.hard if _resource(key) in book.resources}
    told = (_of_key(key, pods, [one for one in quotas if key in one.hard and not one.scoped], book) for key in keys)
    return tuple(sorted((one for one in told if one is not None), key=lambda one: one.text))


def _of_key(key: str, made: tuple[Made, ...], quotas: list[ResourceQuota], book: Rulebook) -> AdmissionWarning | None:
    resource = _resource(key)
    is_counted = key.startswith(_COUNTED)
    try:
        asked = sum(one.replicas * _asked(one.pod, resource, book, each=not is_counted) for one in made)
    except InvalidRequestError:
        return None  # said where the pod is judged
    if not asked or not quotas:
        return None
    if not is_counted:
        quota = min(quotas, key=lambda one: (one.hard[key], one.name))
        said = f"{key}: {asked} asked of the {quota.hard[key]} of ResourceQuota {quota.name}"
        if key.startswith(_UNCOUNTED) and resource in book.budgeted:
            return AdmissionWarning(CODE, f"{said}; the namespace's pods that are beyond it wait")
        return AdmissionWarning(CODE, f"{said}, which no API server counts; write {_COUNTED}{resource} there")
    quota = min(quotas, key=lambda one: (one.hard[key] - one.used.get(key, 0), one.name))
    limit = quota.hard[key]
    free = max(limit - quota.used.get(key, 0), 0)
    said = f"{key}: {asked} asked, {free} of {limit} left in ResourceQuota {quota.name}"
    if asked <= free:
        return AdmissionWarning(CODE, f"{said}, {free - asked} with {_these(made)}")
    return AdmissionWarning(CODE, f"{said}; the API server refuses what is beyond it")


def _these(made: tuple[Made, ...]) -> str:
    count = sum(one.replicas for one in made)
    return "this pod" if count == 1 else f"these {counted(count, 'pods')}"


def _asked(pod: ReviewedPod, resource: str, book: Rulebook, *, each: bool) -> int:
    """What *pod* asks of *resource*; *each*: on each of its cards, so that as often as there are cards."""
    if each and resource in book.counts:
        count = book.counts[resource]
        return max(
            sum(_times(one.limits, count, resource) for one in pod.containers),
            max((_times(one.limits, count, resource) for one in pod.init_containers), default=0),
        )
    return dict(nodefit.amounts_of(pod.as_pod())).get(resource, 0)


def _times(limits: Mapping[str, str], count: str, resource: str) -> int:
    return parse_amount(limits.get(count, "0"), count) * parse_amount(limits.get(resource, "0"), resource)


def _resource(key: str) -> str:
    return key.removeprefix(_COUNTED).removeprefix(_UNCOUNTED)
