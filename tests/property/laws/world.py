"""Nodes of one mode, filled by chance: what every law starts from."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model import Node, NodeName, Pod
from core.port.cards import Offer, Placed
from core.port.handoff import Stamp
from core.settings import CARD_POLICIES, Policy
from tests.property.laws.modes import MODES, Mode

STAMP: Final = Stamp(node=NodeName("node-a"), now_s=1787303731, order=1787303732)

# How many pods came or left before, at most.
_STEPS: Final = 14


def law(
    where: Callable[[Mode], Any] = lambda mode: True, *, of: st.SearchStrategy[Any] | None = None, cases: int = 30
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test of every mode *where* it has a meaning, with so many seeds, and as many values *of* something or steps."""

    def drawn(check: Callable[..., None]) -> Callable[..., None]:
        modes = [mode for mode in MODES if where(mode)]
        tried = (
            _tried(check, cases)
            if of is None
            else settings(max_examples=cases)(given(st.integers(0, 2**40), of)(check))
        )
        found: Callable[..., None] = pytest.mark.parametrize("mode", modes, ids=lambda mode: mode.name)(tried)
        return found

    return drawn


def _tried(check: Callable[..., None], cases: int) -> Callable[[Mode], None]:
    """*check* of so many cases, few steps first; pytest-randomly's seed says which.

    Of a seed hypothesis can make nothing smaller, and it takes as long as the check itself.
    """

    def tried(mode: Mode) -> None:
        chance = Random(f"{check.__name__} {mode.name} {random.getrandbits(40)}")
        for case in range(cases):
            seed, steps = chance.getrandbits(40), case * (_STEPS + 1) // cases
            try:
                check(mode, seed, steps)
            except BaseException as e:
                e.add_note(f"seed {seed}, {steps} steps")
                raise

    return tried


@dataclass
class World:
    """One node of *mode*, and who holds what there."""

    mode: Mode
    chance: Random
    node: Node
    empty: tuple[Any, ...]
    cards: tuple[Any, ...]
    held: list[tuple[Pod, Any]] = field(default_factory=list)

    @property
    def policy(self) -> Policy:
        """One of all."""
        return self.chance.choice(CARD_POLICIES)

    def asked(self, pod: Pod) -> Any | None:
        """What *pod* asks; None if it may not be asked so."""
        found = self.mode.port.request(pod, self.mode.tables)
        assert found is not None
        return None if isinstance(found, tuple) and not hasattr(found, "_fields") else found

    def plain(self) -> tuple[Pod, Any]:
        """Another pod that wishes nothing and has no init containers, and what it asks."""
        while True:
            pod = self.mode.pod(self.chance)
            request = self.asked(pod)
            if request is not None:
                return pod, request

    def single(self) -> tuple[Pod, Any]:
        """Another pod with one container, which may wish something, and what it asks."""
        while True:
            pod = self.mode.pod(self.chance)
            pod = self._wishing(pod._replace(containers=pod.containers[:1]))
            request = self.asked(pod)
            if request is not None:
                return pod, request

    def wanting(self) -> tuple[Pod, Any]:
        """Another pod of any kind, and what it asks."""
        pod, request = self.plain()
        more = self._wishing(pod)
        if self.chance.random() < 0.3:
            more = self.beginning(more, self.chance.randint(1, 3))
        asked = self.asked(more)
        return (pod, request) if asked is None else (more, asked)

    def beginning(self, pod: Pod, count: int) -> Pod:
        """*pod* with so many init containers before it, of which some are sidecars.

        Where amounts do not add up on a card, they are like the pod's first container, or those of one sidecar.
        """
        first, chance = pod.containers[0], self.chance
        some = [self.mode.pod(chance).containers[0] for _ in range(count)]
        sidecars = [chance.random() < 0.4 for _ in some]
        if not self.mode.adds_up:
            is_first = chance.random() < 0.5
            some = [first if is_first else some[0]] * count
            sidecars = sidecars if is_first else [at == count - 1 for at in range(count)]
        inits = [
            one._replace(name=f"i{at}", sidecar=stays)
            for at, (one, stays) in enumerate(zip(some, sidecars, strict=True))
            if one.limits.keys() & first.limits.keys()
        ]
        return pod._replace(init_containers=tuple(inits))

    def _wishing(self, pod: Pod) -> Pod:
        if not self.mode.wishes or self.chance.random() < 0.6:
            return pod
        return pod._replace(annotations={**pod.annotations, **self.chance.choice(self.mode.wishes)})

    def place(self, request: Any, policy: Policy | None = None) -> Placed[Any] | None:
        """What *request* gets now."""
        found: Placed[Any] | None = self.mode.port.place(self.cards, request, self.policy if policy is None else policy)
        return found

    def take(self, pod: Pod, placed: Placed[Any]) -> None:
        self.cards = self.mode.port.take(self.cards, placed.assignment)
        self.held.append((pod, placed.assignment))

    def give_back(self) -> None:
        """Somebody leaves."""
        _, assignment = self.held.pop(self.chance.randrange(len(self.held)))
        self.cards = self.mode.port.give_back(self.cards, assignment)

    def step(self) -> None:
        """A pod comes, leaves, or is served."""
        if self.held and self.chance.random() < 0.25:
            self.give_back()
        elif self.held and self.mode.served is not None and self.chance.random() < 0.5:
            self._serve(self.mode.served)
        else:
            pod, request = self.wanting()
            placed = self.place(request)
            if placed is not None:
                self.take(pod, placed)

    def _serve(self, served: Callable[[Random, Mapping[str, str]], Mapping[str, str]]) -> None:
        pod, assignment = self.held.pop(self.chance.randrange(len(self.held)))
        bound = self.bound(pod, assignment)
        told = {**bound.annotations, **served(self.chance, bound.annotations)}
        seen = self.mode.port.held(bound._replace(annotations=told), self.cards, self.mode.tables)
        self.cards = self.mode.port.take(self.mode.port.give_back(self.cards, assignment), seen.assignment)
        self.held.append((pod, seen.assignment))

    def bound(self, pod: Pod, assignment: Any, **fields: Any) -> Pod:
        """*pod* as its Binding leaves it."""
        written = self.mode.port.annotations(assignment, STAMP, self.mode.tables)
        return pod._replace(node_name=self.node.name, annotations={**pod.annotations, **written}, **fields)


def cards_of(mode: Mode, node: Node) -> tuple[Any, ...]:
    """The cards that *node* offers."""
    offer = mode.port.offer(node, mode.tables)
    assert isinstance(offer, Offer), offer
    return offer.cards


def new(mode: Mode, chance: Random) -> World:
    """A node with nobody on it."""
    node = mode.node(chance)
    cards = cards_of(mode, node)
    return World(mode, chance, node, cards, cards)


def filled(mode: Mode, chance: Random, steps: int) -> World:
    """A node to which pods came, and which some left, in so many *steps*."""
    world = new(mode, chance)
    for _ in range(steps):
        world.step()
    return world


def named(node: Node, number: int) -> Node:
    """*node* as one of several."""
    return replace(node, name=NodeName(f"n{number}"))
