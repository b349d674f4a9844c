"""Describes shortages of queues and quotas."""

from typing import Final

from core import names
from core.placing.fairness import GUARANTEED, QUOTA, Over
from core.waiting import Cause, Wait

# Prefixes of the keys of ResourceQuotas; minResources of a Job also uses plain names.
QUOTA_WORDS: Final = ("requests.", "limits.", "count/")


def over_wait(over: tuple[Over, ...]) -> Wait:
    """Return why a pod waits whose queue or namespace has too little left, with the remainder."""
    first = over[0].account
    told = [
        f"{shown(one.resource, one.asked + one.beside)} {one.resource} requested, "
        f"{shown(one.resource, one.left + one.beside)} of {shown(one.resource, one.limit)} left"
        for one in over
        if one.account == first
    ]
    if first.kind == GUARANTEED:
        text = (
            f"waits because the free capacity is guaranteed to other queues: {'; '.join(told)}; ask for less, wait "
            "until pods end, or lower the spec.guarantee of a queue"
        )
    else:
        whose = f" of namespace {first.namespace}" if first.namespace else ""
        text = (
            f"waits because {first.kind} {first.name}{whose} has too little capacity: {'; '.join(told)}; "
            "ask for less, or wait until its pods end"
        )
    return Wait(Cause.WAITING_FOR_QUOTA if first.kind == QUOTA else Cause.WAITING_FOR_QUEUE, text)


def shown(name: str, amount: int) -> str:
    """Return an amount as Kubernetes writes it."""
    for word in QUOTA_WORDS:
        name = name.removeprefix(word)
    if name == names.CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20)):
        if name in (names.MEMORY, names.EPHEMERAL_STORAGE) and amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)
