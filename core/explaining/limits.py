"""What queues and quotas have too little of, in words."""

from typing import Final

from core import names
from core.placing.fairness import GUARANTEED, QUOTA, Over
from core.waiting import Cause, Wait

# How the keys of ResourceQuotas begin; minResources of a Job have them beside the plain names.
QUOTA_WORDS: Final = ("requests.", "limits.", "count/")


def over_wait(over: tuple[Over, ...]) -> Wait:
    """Why a pod waits of which its queue or namespace has too little left, with the remainder."""
    first = over[0].account
    told = [
        f"{shown(one.resource, one.asked + one.beside)} {one.resource} asked, "
        f"{shown(one.resource, one.left + one.beside)} of {shown(one.resource, one.limit)} left"
        for one in over
        if one.account == first
    ]
    if first.kind == GUARANTEED:
        text = (
            f"waits because what is free is guaranteed to other queues: {'; '.join(told)}; ask for less, wait until "
            "pods end, or lower the spec.guarantee of a queue"
        )
    else:
        whose = f" of namespace {first.namespace}" if first.namespace else ""
        text = (
            f"waits because {first.kind} {first.name}{whose} has no room for it: {'; '.join(told)}; "
            "ask for less, or wait until its pods end"
        )
    return Wait(Cause.WAITING_FOR_QUOTA if first.kind == QUOTA else Cause.WAITING_FOR_QUEUE, text)


def shown(name: str, amount: int) -> str:
    """An amount as Kubernetes writes it."""
    for word in QUOTA_WORDS:
        name = name.removeprefix(word)
    if name == names.CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20)):
        if name in (names.MEMORY, names.EPHEMERAL_STORAGE) and amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)
