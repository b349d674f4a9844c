"""cardshare.yaml: cardshare's own settings, validated as a whole; docs/settings.md has the table.

The keys are the names of the fields of `core.settings.Settings`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from core.errors import InvalidRequestError
from core.names import DEFAULT_SCHEDULER_NAME, is_annotation_key, is_label_key, is_label_value
from core.settings import (
    ALLOWABLE,
    EVERY_NAMESPACE,
    NOT_OWNED,
    SCHEDULER_NAME_REMEDY,
    SERVICE_ACCOUNT,
    DialectName,
    NeverFits,
    NodeKind,
    OnOtherNodes,
    Policy,
    Settings,
    is_scheduler_name,
)
from core.units import parse_amount
from core.wire import yaml_text
from core.wire.checked import Checks
from core.wire.vocabulary import Vocabulary

# The word for upstream's order, which applies without a policy.
_INDEX_WORD: Final = "index"
# A service account's user name, and what people write instead; a trailing ``*`` makes a prefix.
_SERVICE_ACCOUNT: Final = re.compile(rf"{SERVICE_ACCOUNT}[-a-z0-9]+:(?:[-.a-z0-9]+\*?|\*)")
_SHORT_ACCOUNT: Final = re.compile(r"[-a-z0-9]+[/:][-.a-z0-9]+\*?")
_FLAT: Final = (
    "scheduler_names",
    "policy",
    "schedule_weight",
    "dialects",
    "turn_wait_max_s",
    "handoff_timeout_s",
    "bind_in_flight_max",
    "refused_retry_s",
    "keep_free_after_s",
    "keep_free_for_s",
    "preemption",
    "reclaim",
    "preemption_delay_s",
    "preemption_wait_s",
    "volume_wait_max_s",
    "new_node_s",
    "removed_pod_hold_s",
    "audit_round_s",
    "node_lock",
    "mode_preference",
    "mps_several_gpus",
    "node_kinds",
    "network_tiers",
    "device_config_name",
    "device_config_namespace",
    "hami_config_name",
    "hami_config_namespace",
)
_MAX_KINDS: Final = 64
_MAX_TIERS: Final = 16
_DAY_S: Final = 86_400.0
_LABEL_KEY: Final = "write a label's key such as topology.kubernetes.io/zone: letters, digits, '-', '_' and '.'"
_ANNOTATION_KEY: Final = (
    "write an annotation's key such as volcano.sh/node-vgpu-register: letters, digits, '-', '_' and '.'"
)
_LABEL_VALUE: Final = "write a label's value: at most 63 letters, digits, '-', '_' and '.'"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """The content of cardshare.yaml, by the fields of `Settings` and of its `AdmissionSettings`."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    admission: Mapping[str, Any] = field(default_factory=dict)

    def over(self, base: Settings) -> Settings:
        """Return *base* with the values set here."""
        return replace(base, **self.fields, admission=replace(base.admission, **self.admission))

    @property
    def names_dialects(self) -> bool:
        """Return whether the enabled dialects are listed here."""
        return "dialects" in self.fields


def decode_own_settings(text: str, words: Vocabulary) -> OwnSettings:
    """Read cardshare.yaml; *words* are those of the existing dialects.

    Raises:
        ConfigError: lists every problem, including unknown keys.
    """
    checks = Checks()
    found = checks.mapping(yaml_text.load(text, "cardshare.yaml", strict=True), "cardshare.yaml")
    checks.unknown(found, (*_FLAT, "admission", "metrics"), "")
    settings = OwnSettings(
        fields=_flat(checks, found, words) | _metrics(checks, found.get("metrics")),
        admission=_admission(checks, checks.mapping(found.get("admission"), "admission"), words),
    )
    checks.raise_all()
    return settings


_DEFAULT: Final = Settings()


def _flat(checks: Checks, found: Mapping[str, Any], words: Vocabulary) -> dict[str, Any]:
    readers: dict[str, Callable[[Any, str], Any]] = {
        "scheduler_names": lambda value, key: _scheduler_names(checks, value, key),
        "policy": lambda value, key: policy(checks, value, key),
        "schedule_weight": lambda value, key: checks.whole(value, key, 0, 1_000_000, _DEFAULT.schedule_weight),
        "dialects": lambda value, key: frozenset(
            DialectName(checks.word(name, f"{key}[{i}]", words.dialects, ""))
            for i, name in enumerate(checks.items(value, key))
        ),
        "turn_wait_max_s": lambda value, key: checks.seconds(value, key, 0, _DAY_S, _DEFAULT.turn_wait_max_s),
        "handoff_timeout_s": lambda value, key: checks.seconds(value, key, 1, _DAY_S, _DEFAULT.handoff_timeout_s),
        "bind_in_flight_max": lambda value, key: checks.whole(value, key, 1, 1024, _DEFAULT.bind_in_flight_max),
        "audit_round_s": lambda value, key: checks.seconds(value, key, 0, _DAY_S, _DEFAULT.audit_round_s),
        "refused_retry_s": lambda value, key: checks.seconds(value, key, 1, _DAY_S, _DEFAULT.refused_retry_s),
        "keep_free_after_s": lambda value, key: checks.seconds(value, key, 1, _DAY_S, _DEFAULT.keep_free_after_s),
        "keep_free_for_s": lambda value, key: checks.seconds(value, key, 0, _DAY_S, _DEFAULT.keep_free_for_s),
        "preemption": checks.switch,
        "reclaim": checks.switch,
        "preemption_delay_s": lambda value, key: checks.seconds(value, key, 0, _DAY_S, _DEFAULT.preemption_delay_s),
        "preemption_wait_s": lambda value, key: checks.seconds(value, key, 10, _DAY_S, _DEFAULT.preemption_wait_s),
        "volume_wait_max_s": lambda value, key: checks.seconds(value, key, 1, _DAY_S, _DEFAULT.volume_wait_max_s),
        "new_node_s": lambda value, key: checks.seconds(value, key, 0, _DAY_S, _DEFAULT.new_node_s),
        "removed_pod_hold_s": lambda value, key: checks.seconds(value, key, 0, 600, _DEFAULT.removed_pod_hold_s),
        "node_lock": checks.switch,
        "mode_preference": lambda value, key: tuple(
            checks.word(mode, f"{key}[{i}]", words.modes, "") for i, mode in enumerate(checks.items(value, key))
        ),
        "mps_several_gpus": checks.switch,
        "node_kinds": lambda value, key: _node_kinds(checks, value, key),
        "network_tiers": lambda value, key: _network_tiers(checks, value, key),
        "device_config_name": checks.config_map,
        "device_config_namespace": checks.namespace,
        "hami_config_name": checks.config_map,
        "hami_config_namespace": checks.namespace,
    }
    return {key: readers[key](found[key], key) for key in _FLAT if key in found}


def policy(checks: Checks, found: object, place: str) -> Policy:
    """Read a policy; ``index`` is upstream's order."""
    word = checks.word(found, place, (Policy.BINPACK, Policy.PACK, Policy.SPREAD, _INDEX_WORD), Policy.BINPACK)
    return Policy.INDEX if word == _INDEX_WORD else Policy(word)


def _network_tiers(checks: Checks, found: object, place: str) -> tuple[str, ...]:
    """Read distinct node labels."""
    labels = checks.texts(found, place)
    if len(labels) > _MAX_TIERS:
        checks.wrong(place, f"{len(labels)} of them", f"name no more than {_MAX_TIERS}")
    for at, label in enumerate(labels):
        if not is_label_key(label):
            checks.wrong(f"{place}[{at}]", label, _LABEL_KEY)
        if label in labels[:at]:
            checks.wrong(f"{place}[{at}]", label, "name each node label once")
    return labels[:_MAX_TIERS]


def _node_kinds(checks: Checks, found: object, place: str) -> tuple[NodeKind, ...]:
    """Read, by name, the properties of nodes that define their cards: labels, annotations and capacity."""
    kinds = checks.mapping(found, place)
    if len(kinds) > _MAX_KINDS:
        checks.wrong(place, f"{len(kinds)} of them", f"describe no more than {_MAX_KINDS}")
        return ()
    return tuple(_node_kind(checks, name, one, f"{place}.{name}") for name, one in kinds.items())


def _node_kind(checks: Checks, name: str, found: object, place: str) -> NodeKind:
    parts = checks.mapping(found, place)
    checks.unknown(parts, ("labels", "annotations", "capacity"), f"{place}.")
    capacity = _texts(checks, parts.get("capacity"), f"{place}.capacity")
    if not capacity:
        checks.wrong(
            f"{place}.capacity", parts.get("capacity"), "write what such a node has, as in its status.capacity"
        )
    for resource, text in capacity:
        try:
            parse_amount(text, f"{place}.capacity.{resource}")
        except InvalidRequestError as error:
            checks.wrong(error.field, text, error.remedy)
    labels = _texts(checks, parts.get("labels"), f"{place}.labels")
    for key, value in labels:
        if not is_label_key(key):
            checks.wrong(f"{place}.labels", key, _LABEL_KEY)
        if not is_label_value(value):
            checks.wrong(f"{place}.labels.{key}", value, _LABEL_VALUE)
    annotations = _texts(checks, parts.get("annotations"), f"{place}.annotations")
    for key, _ in annotations:
        if not is_annotation_key(key):
            checks.wrong(f"{place}.annotations", key, _ANNOTATION_KEY)
    return NodeKind(
        name=name,
        labels=labels,
        annotations=annotations,
        capacity=capacity,
    )


def _texts(checks: Checks, found: object, place: str) -> tuple[tuple[str, str], ...]:
    """Read keys and values as text; a whole number is accepted without quotes."""
    values = checks.mapping(found, place)
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            checks.wrong(f"{place}.{key}", value, "write a text, in quotes")
    return tuple((key, str(value)) for key, value in values.items() if isinstance(value, str | int))


def _metrics(checks: Checks, found: object) -> dict[str, Any]:
    metrics = checks.mapping(found, "metrics")
    checks.unknown(metrics, ("per_pod",), "metrics.")
    return {"metrics_per_pod": checks.switch(metrics["per_pod"], "metrics.per_pod")} if "per_pod" in metrics else {}


def _admission(checks: Checks, found: Mapping[str, Any], words: Vocabulary) -> dict[str, Any]:
    readers: dict[str, Callable[[Any, str], Any]] = {
        "allow_privileged": checks.switch,
        "allow_limit_overrides": checks.switch,
        "admit_on_failure": checks.switch,
        "hide_devices": checks.switch,
        "allow_variables": checks.texts,
        "known_schedulers": checks.texts,
        "trusted_accounts": lambda value, key: _accounts(checks, value, key),
        "plugin_accounts": lambda value, key: _plugin_accounts(checks, value, key),
        "other_schedulers": lambda value, key: _other_schedulers(checks, value, key),
        "plugins_on_other_nodes": lambda value, key: OnOtherNodes(
            checks.word(value, key, OnOtherNodes, OnOtherNodes.WARN)
        ),
        "default_mode": lambda value, key: {
            namespace: checks.word(mode, f"{key}.{namespace}", words.modes, "")
            for namespace, mode in _by_namespace(checks, value, key, has_every=False).items()
        },
        "never_fits": lambda value, key: _never_fits(checks, value, key),
        "allow": lambda value, key: _allowed(checks, value, key),
        "memory_required": lambda value, key: frozenset(
            one if one == EVERY_NAMESPACE else checks.namespace(one, f"{key}[{i}]")
            for i, one in enumerate(checks.items(value, key))
        ),
    }
    checks.unknown(found, readers, "admission.")
    return {key: read(found[key], f"admission.{key}") for key, read in readers.items() if key in found}


def _never_fits(checks: Checks, found: object, place: str) -> dict[str, NeverFits]:
    return {
        # YAML reads an unquoted ``off`` as a boolean.
        namespace: NeverFits.OFF
        if word is False
        else NeverFits(checks.word(word, f"{place}.{namespace}", NeverFits, NeverFits.WARN))
        for namespace, word in _by_namespace(checks, found, place).items()
    }


def _allowed(checks: Checks, found: object, place: str) -> dict[str, frozenset[str]]:
    codes = sorted(ALLOWABLE)
    return {
        namespace: frozenset(
            checks.word(code, f"{place}.{namespace}[{i}]", codes, codes[0])
            for i, code in enumerate(checks.items(listed, f"{place}.{namespace}"))
        )
        for namespace, listed in _by_namespace(checks, found, place).items()
    }


def _by_namespace(checks: Checks, found: object, place: str, *, has_every: bool = True) -> Mapping[str, Any]:
    """Read values by the names of namespaces; ``*`` stands for all of them if *has_every*."""
    values = checks.mapping(found, place)
    for name in values:
        if not (has_every and name == EVERY_NAMESPACE):
            checks.namespace(name, place)
    return values


def _accounts(checks: Checks, found: object, place: str) -> tuple[str, ...]:
    accounts = checks.texts(found, place)
    for i, account in enumerate(accounts):
        # Every authenticated account of a cluster starts with one of these; a shorter prefix would trust all of them.
        if account.endswith("*") and len(account) < len("system:serviceaccount:x:y*"):
            checks.wrong(f"{place}[{i}]", account, "write at least namespace and beginning of the account before '*'")
    return accounts


def _plugin_accounts(checks: Checks, found: object, place: str) -> tuple[str, ...]:
    """Read service accounts: the node of a device plugin is that of its token."""
    accounts = checks.texts(found, place)
    for i, account in enumerate(accounts):
        if not _SERVICE_ACCOUNT.fullmatch(account):
            named = account.replace("/", ":") if _SHORT_ACCOUNT.fullmatch(account) else "NAMESPACE:NAME"
            checks.wrong(f"{place}[{i}]", account, f"write a service account as '{SERVICE_ACCOUNT}{named}'")
    return accounts


def _other_schedulers(checks: Checks, found: object, place: str) -> dict[str, str]:
    """Read accounts by scheduler name; a prefix is invalid, because a scheduler has one account."""
    accounts = {}
    for name, value in checks.mapping(found, place).items():
        if not is_scheduler_name(name):
            checks.wrong(place, name, SCHEDULER_NAME_REMEDY)
        accounts[name] = account = checks.text(value, f"{place}.{name}")
        if account.endswith("*"):
            checks.wrong(f"{place}.{name}", account, "write one account's whole name")
    return accounts


def _scheduler_names(checks: Checks, found: object, place: str) -> tuple[str, ...]:
    if not found and isinstance(found, list | None):
        checks.wrong(place, found, "write a list of at least one")
    for i, name in enumerate(found if isinstance(found, list) else ()):
        if isinstance(name, str) and name.strip() and not is_scheduler_name(name):
            checks.wrong(f"{place}[{i}]", name, SCHEDULER_NAME_REMEDY)
        if name == DEFAULT_SCHEDULER_NAME:
            checks.wrong(f"{place}[{i}]", name, NOT_OWNED)
    return checks.texts(found, place)
