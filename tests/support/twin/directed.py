"""Schedules that broke a promise once, or break one as soon as the product does: each is a short life of its own."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.support.twin.api import Json, RefusedError, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import told
from tests.support.twin.kueue import Kueue
from tests.support.twin.machines import ASCEND_MIB, Kind, Steps
from tests.support.twin.templates import Templates
from tests.support.twin.units import Units
from tests.support.twin.world import TOLD_S, World, spec_of

_CARD: Final = {"GPU-1": 16000}
_ASKS: Final = [(1, 12000, 0)]
_FOREVER_S: Final = 1e9


def _begin(world: World) -> None:
    world.lifetime_s = lambda key: _FOREVER_S  # type: ignore[method-assign]
    for seat in world.seats:
        seat.start()
    world.run(60.0, lambda: world.leader is not None)


def late_binding(world: World, *, gently: bool) -> None:
    """A Binding is stuck on the way; its sender dies, or ends; the next leader gives the room to another."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    first = world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    late = world.add_pod(Kind.VGPU, _ASKS)
    world.run(8.0)
    leader, sent = world.leader, []
    assert leader is not None

    def stick(verb: str, path: str) -> float:
        if not path.partition("?")[0].endswith(f"{late}/binding".replace("default/", "/")):
            return 0.0
        sent.append(path)
        world.at(0.01, leader.terminate if gently else leader.kill)
        return 60.0

    leader.line.stick = stick
    world.end_pod(first)
    world.run(5.0, lambda: bool(sent))
    # No other write of this process arrives either, until it is gone.
    leader.line.cut_until_s = float("inf") if not gently else 0.0
    world.run(1.0)
    leader.line.calm()
    world.add_pod(Kind.VGPU, _ASKS, priority=100)
    world.run(90.0)


def removed_by_force(world: World, *, silent: bool) -> None:
    """A running pod's object is removed; its processes run on, and another waits for its cards."""
    machine = world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    first = world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(8.0)
    if silent:
        machine.cut(110.0)
        world.run(50.0)
    world.delete(first, force=True)
    world.run(100.0)


def removed_while_it_starts(world: World) -> None:
    """A pod is removed by force when its processes run, and kubelet has not told so yet."""
    machine = world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    first = world.add_pod(Kind.VGPU, _ASKS)
    world.run(1.0, lambda: bool(world.node_of(first)))
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0, lambda: any(proc.runs for proc in machine.procs.values()))
    world.delete(first, force=True)
    world.settle()


def removed_half_served(world: World, *, successor: bool) -> None:
    """A pod is removed by force between its containers, whose plugin goes by the lock; perhaps a namesake comes."""
    world.add_node("n1", Kind.ASCEND, {"A-1": 21527, "A-2": 21527}, blind_release=True)
    _begin(world)
    asks = [(1, 3072, 0), (1, 3072, 0)]
    for _ in range(8):
        key = world.add_pod(Kind.ASCEND, asks)
        for phase in ("allocating", "success"):
            world.run(20.0, lambda key=key, phase=phase: _phase(world, key) == phase)  # type: ignore[misc]
        world.run(0.4 * world.draw.random())
        world.delete(key, force=True)
        world.add_pod(Kind.ASCEND, asks, name=key.partition("/")[2] if successor else "")
        world.run(20.0)
        for key in list(world.api.objects["pods"]):
            world.delete(key)
        world.run(10.0)
    world.settle()


def removed_between_leaders(world: World) -> None:
    """A running pod is removed by force after one leader ended, and just before the next lists the pods."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    first = world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(8.0)
    leader = world.leader
    assert leader is not None
    for seat in world.seats:
        if seat is not leader:
            seat.kill(_FOREVER_S)
    leader.terminate()
    world.run(30.0, lambda: not leader.alive)
    world.delete(first, force=True)
    leader.start()
    world.run(20.0)
    world.settle()


def _phase(world: World, key: str) -> str:
    pod = world.pod(key)
    return str(pod["metadata"].get("annotations", {}).get(Kind.ASCEND.phase, "")) if pod is not None else ""


def restored(world: World, *, bump: bool) -> None:
    """Etcd goes back to before a pod was bound."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    world.add_pod(Kind.VGPU, [(1, 6000, 0)])
    world.run(2.0)
    for seat in world.seats:
        seat.line.cut_until_s = 1e9
    world.add_pod(Kind.VGPU, [(1, 6000, 0)])
    backup = world.api.snapshot()
    for seat in world.seats:
        seat.line.calm()
    world.run(60.0)
    world.restore(backup, bump=bump)
    world.settle()


def restored_and_changed(world: World) -> None:
    """Etcd goes back to before a pod was made; until controllers are connected again, as much is changed as before."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    backup = world.api.snapshot()
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(20.0)
    reached = world.api.revision
    for seat in world.seats:
        seat.line.cut_until_s = 1e9
    world.restore(backup, bump=False)
    while world.api.revision < reached + 10:
        world.api.write("nodes", "n1", {"metadata": {"annotations": {"note": str(world.api.revision)}}})
    for seat in world.seats:
        seat.line.calm()
    key = world.add_pod(Kind.VGPU, _ASKS)
    world.run(60.0)
    if not world.node_of(key):
        world.find("forgotten", f"{key} waits for the card of a pod that is in no object")
    world.settle()


def quota_restored(world: World) -> None:
    """Etcd goes back to before a quota was lowered, and nobody changes the quota afterwards."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    world.limit_memory(16000)
    world.run(10.0)
    backup = world.api.snapshot()
    world.limit_memory(9600)
    world.run(60.0)
    world.restore(backup, bump=False)
    world.add_pod(Kind.VGPU, _ASKS)
    world.settle()


def crowd(world: World, *, kind: Kind) -> None:
    """Many pods of one plugin that goes by the lock, and retries its release without asking whose it is."""
    cards = {f"GPU-{at}": 16000 for at in range(6)} if kind is Kind.HAMI else {f"A-{at}": 21527 for at in range(10)}
    machine = world.add_node("n1", kind, cards, blind_release=True)
    machine.slow_images_s = 4.0
    _begin(world)

    def heartbeats() -> Steps:
        for _ in range(2000):
            yield 0.1 + 0.3 * world.draw.random()
            world.api.write("nodes", "n1", {"metadata": {"annotations": {"beat": world.now_text()}}})

    world.spawn(heartbeats())
    for _ in range(30):
        for _ in range(2):
            world.add_pod(kind, [(1, 500 if kind is Kind.HAMI else 3072, 0)])
        # So that the plugin has rested, and asks at once.
        world.run(5.0)
    world.run(60.0)


def plugin_ends(world: World) -> None:
    """A plugin's process ends; users try again and again, and everybody is told within a second."""
    machine = world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    world.add_pod(Kind.VGPU, [(1, 1000, 0)])
    world.run(10.0)
    machine.stop_plugin(60.0)
    for _ in range(16):
        key = world.add_pod(Kind.VGPU, [(1, 1000, 0)])
        world.run(TOLD_S)
        if not world.node_of(key) and not told(world.api.objects["pods"][key]):
            world.find("untold", f"{key} waits after its plugin ended, and has no condition after {TOLD_S} s")
    world.settle()


def too_few(world: World) -> None:
    """Fewer members of a group are created than it wants; there is room for all."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    group = world.add_group(3)
    for _ in range(2):
        world.add_pod(Kind.VGPU, [(1, 1000, 0)], group=group)
    world.settle()


def answer_lost(world: World) -> None:
    """Kueue asks for a Workload that fits nowhere; the refusal is lost on its way, and nobody says so."""
    world.add_node("n1", Kind.VGPU, _CARD)
    world.kueue = Kueue(world, quota=10)
    world.kueue.is_calm = True
    _begin(world)
    first = world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    world.kueue.submit(spec_of(Kind.VGPU, _ASKS), 1, is_job=False)
    lost: list[str] = []

    def lose(verb: str, path: str) -> float:
        if "/workloads/" not in path or lost:
            return 0.0
        lost.append(path)
        return _FOREVER_S

    for seat in world.seats:
        seat.line.stick = lose
    world.run(20.0, lambda: bool(lost))
    world.run(60.0)
    world.end_pod(first)
    world.settle()


def proxy_answers(world: World) -> None:
    """For a while a proxy answers every request of the leader, a Binding too, with a page of its own."""
    world.add_node("n1", Kind.VGPU, {"GPU-1": 16000, "GPU-2": 16000})
    _begin(world)
    leader = world.leader
    assert leader is not None
    keys = []
    for _ in range(16):
        leader.line.pages = 1.0
        keys.append(world.add_pod(Kind.VGPU, [(1, 1000, 0)]))
        world.run(0.5)
        leader.line.pages = 0.0
        world.run(20.0)
    for key in keys:
        if not world.node_of(key):
            world.find("forgotten", f"{key} waits, although the API server answers the leader again")
    world.settle()


def registers_again(world: World) -> None:
    """A plugin names its cards in another order, then one of them not for a while, and then for fewer pods each."""
    cards, small = {"GPU-1": 16000, "GPU-2": 16000}, []
    machine = world.add_node("n1", Kind.VGPU, cards)
    _begin(world)
    for _ in range(2):
        world.add_pod(Kind.VGPU, _ASKS)
    world.run(20.0)
    world.add_pod(Kind.VGPU, _ASKS)
    for names in (["GPU-2", "GPU-1"], ["GPU-1"], ["GPU-1", "GPU-2"]):
        machine.reregister({name: cards[name] for name in names})
        world.run(100.0)
        small.append(world.add_pod(Kind.VGPU, [(1, 1000, 0)]))
        world.run(20.0)
    machine.reregister(cards, slots=2)
    world.run(100.0)
    for key in small[1:]:
        world.end_pod(key)
    world.run(10.0)
    world.add_pod(Kind.VGPU, [(1, 500, 0)])
    world.settle()


def binding_refused(world: World) -> None:
    """A policy refuses Bindings for a while, and nothing else happens after it was repaired."""
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    until_s = CLOCK.now_s + 20.0

    def may(verb: str, what: Target, given: Json) -> None:
        if (verb, what.sub) == ("POST", "binding") and CLOCK.now_s < until_s:
            raise RefusedError(422, "Invalid", "ValidatingAdmissionPolicy 'nowhere' denied request: no")

    world.api.may = may
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(25.0)
    world.settle()


def card_replaced(world: World) -> None:
    """A card is unhealthy for long, then another one is put in its place; each is asked for by a pod of its own."""
    machine = world.add_node("n1", Kind.VGPU, {"GPU-1": 16000, "GPU-2": 16000})
    _begin(world)
    machine.reregister(machine.cards, ["GPU-1"])
    world.run(100.0)
    for _ in range(2):
        world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    for key, pod in world.api.objects["pods"].items():
        for share in machine.shares(pod):
            if share.card in machine.ill:
                world.find("unhealthy", f"{key} is placed on {share.card}")
    machine.reregister({"GPU-3": 16000, "GPU-2": 16000})
    world.run(100.0)
    world.settle()


def nobody_leaves(world: World, *, is_on: bool) -> None:
    """A pod of a higher priority waits that may not have others evicted, or preemption is off."""
    world.set_up(f"keep_free_for_s: 0\npreemption: {str(is_on).lower()}\npreemption_delay_s: 2\n")
    world.api.on_evicted = lambda key, pod: world.find("unjust", f"{key} was evicted")
    world.add_node("n1", Kind.VGPU, _CARD)
    _begin(world)
    world.add_pod(Kind.VGPU, _ASKS)
    world.run(10.0)
    spec = spec_of(Kind.VGPU, _ASKS, priority=100)
    world.create_pod("high", {**spec, "preemptionPolicy": "Never"} if is_on else spec)
    world.run(30.0)


def templates_edited(world: World) -> None:
    """A template is taken out of the table while a pod has it, and another pod wants the rest of the chip."""
    machine = world.add_node("n1", Kind.ASCEND, {"A-1": ASCEND_MIB})
    templates = Templates(world)
    _begin(world)
    world.add_pod(Kind.ASCEND, [(1, 6144, 0)])
    world.run(10.0, lambda: any(proc.runs for proc in machine.procs.values()))
    templates.edit(("vir01", "vir04"))
    world.run(10.0)
    world.add_pod(Kind.ASCEND, [(1, 12288, 0)])
    world.settle()


def unit_edited(world: World) -> None:
    """A pod has half of a card, and then a unit of memory is another one; its namesakes ask for as many units."""
    machine = world.add_node("n1", Kind.VGPU, _CARD)
    units = Units(world)
    world.sides.append(units)
    units.edit(4)
    _begin(world)
    asks = [(1, 3000, 0)]
    world.add_pod(Kind.VGPU, asks)
    world.run(10.0, lambda: any(proc.runs for proc in machine.procs.values()))
    units.edit(1)
    world.run(60.0)
    for _ in range(3):
        world.add_pod(Kind.VGPU, asks)
    world.run(30.0)
    world.settle()


SCHEDULES: Final[dict[str, Callable[[World], None]]] = {
    "a late Binding of a killed leader": partial(late_binding, gently=False),
    "a late Binding of a leader that ended": partial(late_binding, gently=True),
    "removed by force": partial(removed_by_force, silent=False),
    "removed by force, its kubelet silent": partial(removed_by_force, silent=True),
    "removed by force while it starts": removed_while_it_starts,
    "removed by force between two leaders": removed_between_leaders,
    "removed by force, half served": partial(removed_half_served, successor=False),
    "removed by force, half served, a namesake comes": partial(removed_half_served, successor=True),
    "etcd restored": partial(restored, bump=False),
    "etcd restored, revisions go on": partial(restored, bump=True),
    "etcd restored, and as much changed again": restored_and_changed,
    "etcd restored, with another quota": quota_restored,
    "a plugin ends": plugin_ends,
    "a group lacks a member": too_few,
    "an answer to Kueue is lost": answer_lost,
    "a proxy answers": proxy_answers,
    "a plugin registers otherwise": registers_again,
    "a Binding is refused": binding_refused,
    "a card is replaced": card_replaced,
    "templates are edited": templates_edited,
    "the unit of memory is edited": unit_edited,
    "preemption is off": partial(nobody_leaves, is_on=False),
    "a pod of a higher priority does not preempt": partial(nobody_leaves, is_on=True),
    "a crowd of HAMi's": partial(crowd, kind=Kind.HAMI),
    "a crowd of HAMi's for Ascend": partial(crowd, kind=Kind.ASCEND),
}
