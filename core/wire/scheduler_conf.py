"""volcano-scheduler.conf, to settings and notes on its ineffective parts.

Source: protocol reference, nvidia 1.7 and ascend 6.1, 6.2; Volcano v1.8 to v1.14.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from core.errors import escaped, quoted
from core.settings import DialectName, GroupSettings, NodeWeights, Policy, Section, Settings
from core.wire import yaml_text
from core.wire.checked import Checks, same_word
from core.wire.configuration import policy
from core.wire.vocabulary import Vocabulary
from core.wire.volcano_parts import (
    ACTIONS,
    ARGUMENTS,
    EVICTING,
    FLAGS,
    INIT_PARAMETERS,
    OTHER_ACTIONS,
    PLUGINS,
    Effect,
    Part,
    is_argument,
    overcommit_pct,
)

_WHAT: Final = "volcano-scheduler.conf"
_SCORING_PLUGINS: Final = frozenset({"binpack", "nodeorder"})
_KNOWN_PLUGINS: Final = (
    PLUGINS.keys()
    | _SCORING_PLUGINS
    | {
        "capacity-card", "cdp", "deviceshare", "extender", "network-topology-aware", "nodegroup", "numaaware",
        "pdb", "rescheduling", "resource-strategy-fit", "resourcequota", "task-topology", "tdm", "usage",
    }
)  # fmt: skip
_TOP: Final = ("actions", "tiers", "configurations", "metrics")
_INIT_PARAMS: Final = "init-params"
_TIER: Final = ("plugins",)
_PLUGIN: Final = ("name", "arguments", *FLAGS)
_CONFIGURATION: Final = ("name", "arguments")
_HIERARCHY: Final = "enableHierarchy"
_LEVELS: Final = (
    (_TOP, "at the top"),
    (_TIER, "in an item of tiers"),
    (_PLUGIN, "in an item of plugins"),
)
_NO_PART: Final = Part(Effect.NONE, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConf:
    """The meaning of a scheduler's configuration here; notes list unknown or ineffective parts, once each.

    sections: what dialects read of it. switches: the argument that enables each dialect with a switch, as this text
    would write it.
    """

    settings: Settings = field(default_factory=Settings)
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    switches: Mapping[DialectName, str] = field(default_factory=dict)


def decode_scheduler_conf(text: str, words: Vocabulary) -> SchedulerConf:
    """Read volcano-scheduler.conf over the defaults; *words* are those of the existing dialects.

    A configuration without ``deviceshare`` arguments and ``predicate.*`` switches sets nothing for cards.

    Raises:
        ConfigError: lists every problem; the text must be refused as a whole.
    """
    reading = _Reading(Checks(partial(_elsewhere, words)), words)
    found = reading.checks.mapping(yaml_text.load(text, _WHAT), _WHAT)
    reading.top(found)
    arguments, plugins = reading.plugins(found.get("tiers"))
    groups = reading.groups(found, plugins)
    base = Settings(groups=groups, node_weights=reading.preferences(plugins))
    conf = _conf(reading, arguments, base, reading.init_params(found.get("configurations")))
    reading.checks.raise_all()
    return conf


@dataclass(frozen=True, slots=True)
class _Reading:
    checks: Checks
    words: Vocabulary

    def note(self, text: str) -> None:
        self.checks.note(text)

    def top(self, found: Mapping[str, Any]) -> None:
        self.checks.note_unknown(found, _TOP, "")
        if found.get("actions") is not None and not isinstance(found["actions"], str):
            self.note("actions: has no effect: write them as one text, such as 'enqueue, allocate'")
        if found.get("metrics") is not None:
            self.note("metrics: has no effect here")
        for action in _actions(found):
            if action in ACTIONS or action in OTHER_ACTIONS:
                self.note_part(f"action {quoted(action)}", ACTIONS.get(action, _NO_PART))
            else:
                self.checks.note_unknown((action,), (*ACTIONS, *OTHER_ACTIONS), "action ")

    def note_part(self, what: str, part: Part) -> None:
        """Note the effect of *part*, unless it is fully supported."""
        if part.effect is not Effect.DONE:
            self.note(f"{what}: {part.effect.value}{': ' if part.here else ''}{part.here}")

    def groups(self, found: Mapping[str, Any], plugins: Mapping[str, Mapping[str, Any]]) -> GroupSettings:
        """Return the settings for groups; a text without actions or without plugins sets nothing for them."""
        actions, known = _actions(found), GroupSettings()
        enqueue = "enqueue" in actions or not actions
        gang = "gang" in plugins or not plugins
        if not enqueue:
            self.note(f"action 'enqueue' is left out: {ACTIONS['enqueue'].without}")
        if not gang:
            self.note(f"plugin gang is left out: {PLUGINS['gang'].without}")
        factor = plugins.get("overcommit", {}).get("overcommit-factor")
        pct = overcommit_pct(plugins, factor) if plugins else known.overcommit_pct
        return GroupSettings(enqueue=enqueue, gang=gang, overcommit_pct=pct)

    def preferences(self, plugins: Mapping[str, Mapping[str, Any]]) -> NodeWeights:
        """Return default weights of pods' preferences; all 0 if the text omits the plugin for them."""
        if "nodeorder" in plugins or not plugins:
            return NodeWeights()
        self.note("plugin nodeorder is left out: what pods prefer of nodes and of other pods orders no nodes")
        return NodeWeights(node_affinity=0, pod_affinity=0, pod_topology_spread=0, taint_toleration=0)

    def plugins(self, tiers: object) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """Return every argument by its full name (later ones win), and the arguments of each plugin."""
        arguments: dict[str, Any] = {}
        named: dict[str, Mapping[str, Any]] = {}
        for i, tier in enumerate(self.checks.items(tiers, "tiers")):
            place = f"tiers[{i}]"
            items = self.checks.mapping(tier, place)
            self.checks.note_unknown(items, _TIER, f"{place}.")
            for j, plugin in enumerate(self.checks.items(items.get("plugins"), f"{place}.plugins")):
                where = f"{place}.plugins[{j}]"
                entry = self.checks.mapping(plugin, where)
                self.checks.note_unknown(entry, _PLUGIN, f"{where}.")
                if entry.get("name") is None:
                    self.note(f"{where}: has no effect without a name")
                    continue
                name = self.checks.text(entry["name"], f"{where}.name", "?")
                self._flags(name, entry)
                named[name] = given = self._given(name, entry.get("arguments"), f"{where}.arguments")
                arguments |= self._arguments(name, given)
        return arguments, named

    def _flags(self, plugin: str, entry: Mapping[str, Any]) -> None:
        """Note the functions of *plugin* whose state is not the default, except for evictions."""
        for key in FLAGS:
            if key in entry and key not in EVICTING and entry[key] is (key == _HIERARCHY):
                self.note(f"plugin {escaped(plugin)}: {key}: has no effect here")

    def _given(self, plugin: str, found: object, place: str) -> Mapping[str, Any]:
        """Return the arguments of *plugin*; for a plugin without arguments here, they may be anything."""
        is_read = plugin in _SCORING_PLUGINS or plugin in _READ_HERE
        if is_read:
            return self.checks.mapping(found, place)
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}

    def _arguments(self, plugin: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
        if plugin not in _KNOWN_PLUGINS:
            self.checks.note_unknown((plugin,), _KNOWN_PLUGINS, "plugin ")
            return {}
        if plugin not in _SCORING_PLUGINS and plugin != "deviceshare":
            self.note_part(f"plugin {plugin}", PLUGINS.get(plugin, _NO_PART))
        taken = {key: value for key, value in found.items() if self._is_ours(plugin, key)}
        if plugin == "binpack" and not taken:
            self.note("plugin binpack: partly honoured: it weighs nothing without arguments")
        if plugin == "nodeorder" and not taken.keys() & _NODEORDER.keys():
            self.note("plugin nodeorder: partly honoured: cpu and memory weigh nothing without arguments")
        for key in found:
            if key not in taken and is_argument(plugin, key) and plugin in PLUGINS.keys() | _SCORING_PLUGINS:
                self.note(f"plugin {plugin}: {escaped(key)}: has no effect here")
        unknown = [key for key in found if key not in taken and not is_argument(plugin, key)]
        known = (*_known(self.words, plugin), *ARGUMENTS.get(plugin, ()))
        self.checks.note_unknown(unknown, known, f"plugin {plugin}: ")
        return taken

    def _is_ours(self, plugin: str, key: str) -> bool:
        if plugin == "binpack":
            return key in _BINPACK or key.startswith(_BINPACK_RESOURCE)
        return plugin in _READ_HERE and key in _known(self.words, plugin)

    def init_params(self, found: object) -> Mapping[str, bool]:
        said: dict[str, bool] = {}
        read = [name for one in self.words.arguments for name in one.init_params]
        for i, one in enumerate(self.checks.items(found, "configurations")):
            place = f"configurations[{i}]"
            entry = self.checks.mapping(one, place)
            self.checks.note_unknown(entry, _CONFIGURATION, f"{place}.")
            name = None if entry.get("name") is None else str(entry["name"])
            if name == _INIT_PARAMS:
                arguments = self.checks.mapping(entry.get("arguments"), f"{place}.arguments")
                for key in arguments:
                    if key in INIT_PARAMETERS:
                        self.note(f"configuration {_INIT_PARAMS}: {key}: has no effect here")
                self.checks.note_unknown(arguments, (*read, *INIT_PARAMETERS), f"configuration {_INIT_PARAMS}: ")
                # Compared as text upstream: only "true" is true (ascend 6.2). Upstream reads the first existing one.
                said = said or {key: str(arguments[key]).lower() == "true" for key in read if key in arguments}
            elif name is None:
                self.note(f"{place}: has no effect without a name")
            elif name in ACTIONS or name in OTHER_ACTIONS:
                self.note(f"configuration {name}: has no effect here")
            else:
                self.checks.note_unknown((name,), (_INIT_PARAMS, *ACTIONS, *OTHER_ACTIONS), "configuration ")
        return said


def _known(words: Vocabulary, plugin: str) -> Iterable[str]:
    """Return the arguments of *plugin* that are read here."""
    if plugin == "deviceshare":
        read = [name for one in words.arguments for name in one.deviceshare]
        return tuple(f"deviceshare.{name}" for name in (*words.switches, *_DEVICESHARE, *read))
    if plugin == "predicates":
        return tuple(f"predicate.{name}" for name in (*words.old_switches, _NODE_LOCK))
    if plugin == "nodeorder":
        return (*_NODEORDER, *_PREFERENCES)
    return _BINPACK if plugin == "binpack" else ("overcommit-factor",) if plugin == "overcommit" else ()


def _elsewhere(words: Vocabulary, key: str) -> str:
    """Return what to write where if *key* has a meaning at another place."""
    for plugin in ("deviceshare", "predicates", "binpack", "nodeorder", "overcommit"):
        if same := same_word(key, _known(words, plugin)):
            return f"'{same}' in the arguments of plugin {plugin}"
    parameters = (*[name for one in words.arguments for name in one.init_params], *INIT_PARAMETERS)
    for names, where in (*_LEVELS, (parameters, f"in the arguments of configuration {_INIT_PARAMS}")):
        if same := same_word(key, names):
            return f"'{same}' {where}"
    return ""


def _actions(found: Mapping[str, Any]) -> list[str]:
    actions = found.get("actions")
    return [one.strip() for one in actions.split(",") if one.strip()] if isinstance(actions, str) else []


_NODE_LOCK: Final = "NodeLockEnable"
# Arguments besides those of the dialects.
_DEVICESHARE: Final = (
    _NODE_LOCK, "SchedulePolicy", "ScheduleWeight", "KnownGeometriesCMName", "KnownGeometriesCMNamespace",
)  # fmt: skip
_READ_HERE: Final = frozenset({"deviceshare", "nodeorder", "overcommit", "predicates"})
_BINPACK: Final = frozenset({"binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources"})
_BINPACK_RESOURCE: Final = "binpack.resources."
_NODEORDER: Final = {
    "leastrequested.weight": "least_requested",
    "mostrequested.weight": "most_requested",
    "balancedresource.weight": "balanced",
}
# Preferences of pods count if the plugin is enabled, with its default weights unless the text sets others.
_PREFERENCES: Final = {
    "nodeaffinity.weight": "node_affinity",
    "podaffinity.weight": "pod_affinity",
    "podtopologyspread.weight": "pod_topology_spread",
    "tainttoleration.weight": "taint_toleration",
    "imagelocality.weight": "image_locality",
}


def _conf(reading: _Reading, arguments: Mapping[str, Any], base: Settings, init: Mapping[str, bool]) -> SchedulerConf:
    given = {
        name.removeprefix("deviceshare."): value for name, value in arguments.items() if name.startswith("deviceshare.")
    }
    sections = tuple([one.read(reading.checks, given, init) for one in reading.words.arguments])
    return SchedulerConf(
        settings=replace(
            _settings(reading, arguments, base) if _speaks_of_cards(arguments) else base,
            node_weights=_node_weights(reading.checks, arguments, base.node_weights),
        ),
        sections=sections,
        notes=reading.checks.notes,
        switches={dialect: _switch(name, arguments, reading.words) for name, dialect in reading.words.switches.items()},
    )


def _switch(name: str, arguments: Mapping[str, Any], words: Vocabulary) -> str:
    """Return the argument *name* of the plugin to which this text adds switches."""
    is_old = name in words.old_switches and not any(key.startswith("deviceshare.") for key in arguments)
    return f"{'predicate' if is_old else 'deviceshare'}.{name}"


def _speaks_of_cards(arguments: Mapping[str, Any]) -> bool:
    return any(key.startswith(("deviceshare.", "predicate.")) for key in arguments)


def _switched(checks: Checks, arguments: Mapping[str, Any], name: str) -> bool | None:
    """Return the state of the switch *name*; None if the text does not write it."""
    written = [key for key in (f"deviceshare.{name}", f"predicate.{name}") if key in arguments]
    return any(checks.switch(arguments[key], key) for key in written) if written else None


def _settings(reading: _Reading, arguments: Mapping[str, Any], base: Settings) -> Settings:
    checks = reading.checks
    switched = {dialect: _switched(checks, arguments, name) for name, dialect in reading.words.switches.items()}
    is_any_on = any(switched.values())
    # A text that enables nothing, such as MindCluster's with two switches that are false, disables only what it names.
    off = {dialect for dialect, is_on in switched.items() if not is_on and (is_any_on or is_on is not None)}
    is_of_cards = is_any_on or any(key.startswith("deviceshare.") for key in arguments)

    def named_by(name: str, read: Callable[[object, str, str], str], default: str) -> str:
        key = f"deviceshare.{name}"
        return read(arguments[key], key, default) if key in arguments else default

    weight = arguments.get("deviceshare.ScheduleWeight", 1)
    return replace(
        base,
        policy=_policy(checks, arguments) if is_of_cards else base.policy,
        # Upstream's default of 0 would disable the policy that the guides' examples set without a weight.
        schedule_weight=checks.whole(weight, "deviceshare.ScheduleWeight", 0, 1_000_000, 1),
        # Dialects without a switch upstream are enabled: whole cards, which kube-scheduler's own counting serves.
        dialects=frozenset(reading.words.dialects) - off if off else None,
        node_lock=bool(_switched(checks, arguments, _NODE_LOCK)),
        device_config_name=named_by("KnownGeometriesCMName", checks.config_map, base.device_config_name),
        device_config_namespace=named_by("KnownGeometriesCMNamespace", checks.namespace, base.device_config_namespace),
    )


def _policy(checks: Checks, arguments: Mapping[str, Any]) -> Policy:
    named = arguments.get("deviceshare.SchedulePolicy")
    return Policy.INDEX if named in (None, Policy.INDEX) else policy(checks, named, "deviceshare.SchedulePolicy")


def _node_weights(checks: Checks, arguments: Mapping[str, Any], base: NodeWeights) -> NodeWeights:
    """Return the weights besides cards: of nodes' resources only those in the text; of preferences, else *base*'s."""

    def weight(key: str, default: int) -> int:
        return checks.whole(arguments[key], key, 0, 1_000_000, default) if key in arguments else default

    key = "binpack.resources"
    named = checks.text(arguments[key], key, "") if key in arguments else ""
    resources = [("cpu", weight("binpack.cpu", 1)), ("memory", weight("binpack.memory", 1))]
    resources += [
        (name, weight(_BINPACK_RESOURCE + name, 1)) for name in (part.strip() for part in named.split(",")) if name
    ]
    spoken = any(key.startswith("binpack.") for key in arguments)
    return NodeWeights(
        binpack=weight("binpack.weight", 1 if spoken else 0),
        resources=tuple(resources),
        **{field: weight(key, 0) for key, field in _NODEORDER.items()},
        **{field: weight(key, getattr(base, field)) for key, field in _PREFERENCES.items()},
    )
