"""Storms of another kind, with all that the first ones have not: so the lives of those stay as they are.

Proxies answer in the API server's place, watches break within a line, nodes are made anew under their names, plugins
register other cards, PodGroups and queues are deleted and made anew, pods get namesakes at once, users edit wishes.
"""

from typing import Final

from tests.support.twin.api import Event, Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import NO_USE, accepts, group_of
from tests.support.twin.kueue import MANAGED
from tests.support.twin.machines import ENDED, Kind, Machine, shares_of
from tests.support.twin.storms import Fault, Storm
from tests.support.twin.world import GROUPS, World

_SOON: Final = (0.0, 0.3, 3.0, 12.0, 25.0)
_QUEUE: Final = Target("queues", "", "default", "")


class Gale(Storm):
    """One cluster's users and faults, and what must not come of what is new in it."""

    def __init__(self, world: World, without: tuple[str, ...] = ()) -> None:
        super().__init__(world, without)
        self._bound: set[str] = set()
        self._cards = 0
        world.api.listeners.append(self._heed)

    def _heed(self, resource: str, event: Event, pod: Json) -> None:
        """Look at a pod that was bound: on no card that is unhealthy for long, or that it does not accept."""
        uid = pod["metadata"]["uid"]
        if resource != "pods" or event.kind == "DELETED" or uid in self._bound or not pod["spec"].get("nodeName"):
            return
        self._bound.add(uid)
        machine = self._world.machines[pod["spec"]["nodeName"]]
        if not accepts(pod, machine):
            self._world.find("unwanted", f"{event.key} is on {machine.name}, whose cards it does not accept")
        for share in shares_of(pod, machine.kind.assigned):
            if CLOCK.now_s - machine.ill.get(share.card, CLOCK.now_s) > CLOCK.late_s:
                self._world.find("unhealthy", f"{event.key} is placed on {share.card} of {machine.name}")

    # ------------------------------------------------------------------ users

    def _act(self) -> None:
        draw = self._draw
        if draw.random() < 0.8:
            super()._act()
        else:
            draw.choice((self._succeed, self._refuse_cards, self._renew_group, self._renew_queue))()

    def _plain(self, *, waiting: bool) -> list[str]:
        """Pods of no group and not of Kueue, that wait or not."""
        return [
            key
            for key, pod in self._world.api.objects["pods"].items()
            if pod["status"].get("phase") not in ENDED
            and bool(pod["spec"].get("nodeName")) is not waiting
            and not group_of(pod)
            and MANAGED not in pod["metadata"].get("labels", {})
        ]

    def _succeed(self) -> None:
        """A pod is removed by force, and another of its name is there in the same moment."""
        keys = self._plain(waiting=self._draw.random() < 0.5)
        if keys:
            key = self._draw.choice(keys)
            self._force(key)
            if self._world.pod(key) is None:
                kind, asks = self._asked()
                self._world.add_pod(kind, asks, name=key.partition("/")[2])

    def _refuse_cards(self) -> None:
        """A user says that a waiting pod does not accept the type of all cards; perhaps only for a while."""
        keys = self._plain(waiting=True)
        if keys:
            key = self._draw.choice(keys)
            self._annotate(key, "T4")
            if self._draw.random() < 0.7:
                self._world.at(self._draw.choice(_SOON), lambda: self._annotate(key, None))

    def _annotate(self, key: str, text: str | None) -> None:
        pod = self._world.pod(key)
        if pod is not None and not pod["spec"].get("nodeName"):
            self._world.api.write("pods", key, {"metadata": {"annotations": {NO_USE: text}}})

    def _renew_group(self) -> None:
        """A PodGroup is deleted, and made anew, perhaps for fewer members."""
        world, draw = self._world, self._draw
        names = [key.partition("/")[2] for key in world.api.objects[GROUPS]]
        if not names:
            return
        name = draw.choice(names)
        world.api.delete(Target(GROUPS, "default", name, ""), {})
        world.groups[name] = draw.randint(1, world.groups[name])
        spec = {"minMember": world.groups[name], "queue": "default"}
        body = {"metadata": {"name": name}, "spec": spec, "status": {}}

        def create() -> None:
            if f"default/{name}" not in world.api.objects[GROUPS]:
                world.api.create(GROUPS, body, "default")

        world.at(draw.choice(_SOON), create)

    def _renew_queue(self) -> None:
        """The queue is closed, or deleted and made anew."""
        world, draw = self._world, self._draw
        there = world.api.objects["queues"]
        if "default" not in there:
            return
        if draw.random() < 0.5:
            world.api.write("queues", "default", {"status": {"state": draw.choice(("Closed", "Closing"))}})
        else:
            world.api.delete(_QUEUE, {})
        world.at(draw.choice(_SOON), self._open_queue)

    def _open_queue(self) -> None:
        world = self._world
        if "default" in world.api.objects["queues"]:
            world.api.write("queues", "default", {"status": {"state": "Open"}})
        else:
            state = {"spec": {"weight": 1}, "status": {"state": "Open"}}
            world.api.create("queues", {"metadata": {"name": "default"}, **state})

    # ------------------------------------------------------------------ faults

    def _more(self) -> list[Fault]:
        return [
            (6, self._proxy),
            (3, self._tear),
            (3, self._change_cards),
            (2, self._fail_card),
            (1, self._renew_node),
            (1, self._pack),
        ]

    def _proxy(self) -> None:
        self._line("pages", self._draw.choice((0.05, 0.3, 0.7)), self._draw.choice((5.0, 15.0, 30.0)))

    def _tear(self) -> None:
        seat, seconds = self._seat(), self._draw.choice((5.0, 20.0))
        seat.line.no_bookmarks = self._draw.random() < 0.5
        seat.line.tears = True
        for _ in range(self._draw.randint(1, 4)):
            self._world.at(seconds * self._draw.random(), lambda: self._break_of(seat))
        self._world.at(seconds, lambda: setattr(seat.line, "tears", False))

    @staticmethod
    def _break_of(seat) -> None:
        if seat.network is not None:
            seat.network.break_watches(0.5)

    def _card(self) -> str:
        self._cards += 1
        return f"NEW-{self._cards}"

    def _change_cards(self) -> None:
        """A plugin registers fewer cards, or more, or others, or other memory."""
        draw, machine = self._draw, self._machine()
        cards = dict(machine.cards)
        card = draw.choice(sorted(cards))
        way = draw.choice(("fewer", "more", "renamed", "memory"))
        if way == "memory" and machine.kind is not Kind.ASCEND and not machine.is_cut:
            cards[card] = draw.choice((6000, 8000, 16000, 32000))
        elif way == "more" and len(cards) < 4:
            cards[self._card()] = cards[card]
        elif way == "renamed":
            cards[self._card()] = cards.pop(card)
        elif len(cards) > 1:
            del cards[card]
        machine.reregister(cards, machine.ill.keys() & cards)

    def _fail_card(self) -> None:
        draw, machine = self._draw, self._machine()
        ill = set(machine.ill) ^ {draw.choice(sorted(machine.cards))}
        machine.reregister(machine.cards, ill)

    def _renew_node(self) -> None:
        draw, machine = self._draw, self._machine()
        cards = {self._card(): mib for mib in machine.cards.values()} if draw.random() < 0.5 else None
        machine.renew(draw.choice((0.2, 3.0, 15.0)), draw.choice((0.2, 2.0, 20.0)), cards)

    def _pack(self) -> None:
        self._world.set_up(self._settings + "policy: pack\n")

    # ------------------------------------------------------------------ calm

    def _calm(self) -> None:
        """Operators delete what holds cards that are gone, or more than they have now."""
        world = self._world
        self._open_queue()
        for machine in world.machines.values():
            self._tidy(machine)

    def _tidy(self, machine: Machine) -> None:
        for key, pod in list(self._world.api.objects["pods"].items()):
            if pod["spec"].get("nodeName") == machine.name and machine.changed_until_s:
                self._world.delete(key)
