"""The remaining quota of a namespace for the cards that a pod or workload requests; warnings only.

The API server itself counts and enforces ``requests.NAME``, as containers write it, and only it rejects. No API server
enforces HAMi's ``limits.NAME`` or plain NAME; for these, the request is the number of cards times the amount per card
(`core.constraints.quota`). Pods beyond ``limits.`` of memory and cores wait, which the controller enforces.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from core import model
from core.admission.defaulting import complete_resources
from core.admission.rulebook import Rulebook
from core.constraints.quota import in_units
from core.errors import InvalidRequestError
from core.model import ReviewedPod
from core.units import BYTES_PER_MIB, counted, parse_amount
from core.warnings import AdmissionWarning
from core.wire.policies import ResourceQuota
from core.wire.reviewed_pods import pod_of
from core.wire.templates import ReviewedWorkload, Template

CODE: Final = "CS317"
_COUNTED: Final = "requests."
_UNCOUNTED: Final = "limits."


class Made(NamedTuple):
    """A number of equal pods that will be created."""

    pod: ReviewedPod
    replicas: int = 1


def made_by(found: ReviewedWorkload, namespace: str) -> tuple[Made, ...]:
    """Return the new pods that *found* creates; none if it is being deleted or was made by a controller."""
    if found.deleting or found.made:
        return ()
    before = {one.field: one for one in found.before}
    return tuple(
        Made(pod_of(one.pod, namespace)._replace(namespace=namespace), replicas)
        for one in found.templates
        if (replicas := _more(one, before.get(one.field))) > 0
    )


def _more(template: Template, before: Template | None) -> int:
    """Return how many pods of *template* are new; after an edit, old pods leave only after new ones were created."""
    is_same = before is not None and before.pod == template.pod
    return template.replicas - before.replicas if is_same and before is not None else template.replicas


def left(made: Iterable[Made], quotas: Iterable[ResourceQuota], book: Rulebook) -> tuple[AdmissionWarning, ...]:
    """Return what *quotas*, of the namespace of *made*, leave of the requested cards; of several quotas, the least.

    Quotas with scopes are skipped, because only the API server knows which pods they count.
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
        return None  # reported when the pod is judged
    if not asked or not quotas:
        return None
    if not is_counted:
        limit, name = min(
            (in_units(resource, one.hard[key], book, in_bytes=key in one.in_bytes), one.name) for one in quotas
        )
        said = f"{key}: {asked} requested of the {limit} of ResourceQuota {name}"
        if key.startswith(_UNCOUNTED) and resource in book.budgeted:
            return AdmissionWarning(CODE, f"{said}; pods of the namespace beyond it wait")
        return AdmissionWarning(
            CODE, f"{said}; the API server does not enforce this key; write {_COUNTED}{resource} there"
        )
    quota = min(quotas, key=lambda one: (one.hard[key] - one.used.get(key, 0), one.name))
    limit = quota.hard[key]
    if key in quota.in_bytes and resource in book.units and resource not in book.quantities:
        meant = in_units(resource, limit, book, in_bytes=True)
        return AdmissionWarning(
            CODE,
            f"{key}: write {meant} in ResourceQuota {quota.name}; the API server compares the numbers of units, so an "
            "amount in bytes limits nothing",
        )
    free = max(limit - quota.used.get(key, 0), 0)
    said = f"{key}: {asked} requested, {free} of {limit} left in ResourceQuota {quota.name}"
    if asked <= free:
        return AdmissionWarning(CODE, f"{said}, {free - asked} with {_these(made)}")
    return AdmissionWarning(CODE, f"{said}; the API server rejects pods beyond it")


def _these(made: tuple[Made, ...]) -> str:
    count = sum(one.replicas for one in made)
    return "this pod" if count == 1 else f"these {counted(count, 'pods')}"


def _asked(pod: ReviewedPod, resource: str, book: Rulebook, *, each: bool) -> int:
    """Return what *pod* requests of *resource*; *each*: what is per card is multiplied by the number of cards."""
    if each and resource in book.counts and resource not in book.totals:
        count = book.counts[resource]
        return max(
            sum(_times(one.limits, count, resource, book) for one in pod.containers),
            max((_times(one.limits, count, resource, book) for one in pod.init_containers), default=0),
        )
    return dict(model.amounts_of(pod.as_pod())).get(resource, 0)


def _times(limits: Mapping[str, str], count: str, resource: str, book: Rulebook) -> int:
    text = limits.get(resource, "0")
    amount = parse_amount(text, resource)
    if resource in book.quantities and not text.isdigit():
        # Bytes, while the quota is in units.
        amount = -(-amount // (book.quantities[resource] * BYTES_PER_MIB))
    return parse_amount(limits.get(count, "0"), count) * amount


def _resource(key: str) -> str:
    return key.removeprefix(_COUNTED).removeprefix(_UNCOUNTED)
