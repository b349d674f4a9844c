"""Which configuration is in force: that of files, and of ConfigMaps as the mirror shows them.

A text that cannot be used is refused whole, and what it last said well stays in force: that is told once in the log and
in an event on the ConfigMap, and stands in a metric and in a condition of the controller's pod. So does what of a text
has no effect.

- volcano-scheduler.conf beside cardshare.yaml wins; where there is none, the ConfigMap of Volcano's scheduler is read.
- device-config.yaml of the vGPU plugin is the ConfigMap that settings name. Its section of Ascend chips wins over that
  of the Ascend plugin's own ConfigMap; the latter's ``nvidia`` section is taken only where the former does not exist
  and it names Volcano's resources (HAMi's own names others).
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from controller.condition import Reason, Verdict
from controller.config import (
    CLUSTER_CONF,
    SCHEDULER_KEY,
    SCHEDULER_MAP,
    Config,
    Texts,
    decode_settings_of,
    lacks_settings,
    read_last_good,
    read_texts,
)
from controller.deeds import Announce, Subject
from controller.documents import PLACES
from core.errors import ConfigError
from core.settings import AscendTable, Settings, Tables
from core.wire.config_maps import ConfigMap
from core.wire.device_config import DeviceConfig, decode_device_config
from core.wire.scheduler_conf import SchedulerConf

_log: Final = structlog.get_logger()

CHIPS_MAP: Final = ("kube-system", "hami-scheduler-device")
_OWN_MAP: Final = ("cardshare-system", "cardshare-settings")
# Namespaces that somebody else would make, or has, and of which objects are known by name.
_OF_OTHERS: Final = frozenset({SCHEDULER_MAP[0], CHIPS_MAP[0], *(place.namespace for place in PLACES)})
_DEVICE_KEY: Final = "device-config.yaml"
_LAST_GOOD: Final = "the last good configuration stays in force"
_VOLCANO: Final = "volcano.sh/"
_MESSAGE_MAX: Final = 900


class Standing:
    """What is in force, and what is not and why.

    Attributes:
        conf: the scheduler's configuration with our own settings over it.
        refused: by the name of what was edited, why that is not in force.
        version: another one with every change.
    """

    def __init__(self, config: Config, tell: Callable[[Announce], None]) -> None:
        """Read the files.

        Raises:
            ConfigError: with every problem of every file.
        """
        self._config: Final = config
        self._tell: Final = tell
        self.refused: Final[dict[str, str]] = {}
        # Whether these are settings of an earlier process, because those of now were refused from the start.
        self.from_before = False
        self._texts: Texts | None = None
        # What of files is in force, to be kept for a start at which it is not any more.
        self.good: Texts | None = None
        self._scheduler_text = ""
        self.conf: SchedulerConf = self._begin(config)
        self._named: DeviceConfig | None = None
        self._chips: DeviceConfig | None = None
        self._named_map = self._device_map
        self._noted: Final[set[str]] = set()
        self.version = 0
        if lacks_settings(config):
            _log.warning("no cardshare.yaml there; its defaults are in force", directory=config.settings_file)
        self._note()

    def _begin(self, config: Config) -> SchedulerConf:
        """Take the files, or what was in force before this process, where these cannot be used."""
        try:
            texts = read_texts(config)
            conf = decode_settings_of(config, texts, "")
        except ConfigError as e:
            found = read_last_good(config)
            if found is None:
                raise
            self.from_before = True
            self.refused["/".join(_OWN_MAP)] = "; ".join(e.problems)
            _log.error(
                "SETTINGS REFUSED; this process runs on the last good ones, which were kept",
                kept=config.last_good,
                reason=str(e),
            )
            self._texts, conf = found
            return conf
        self._texts = self.good = texts
        return conf

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.conf.settings

    @property
    def tables(self) -> Tables:
        """The device configuration in force."""
        return self.conf.tables(self.devices, self.version)

    @property
    def devices(self) -> DeviceConfig:
        """Both device plugins' sections together."""
        named, chips = self._named, self._chips
        if chips is None:
            return named or DeviceConfig()
        if named is None:
            ours = chips.vgpu.number_resource.startswith(_VOLCANO)
            return DeviceConfig(vgpu=chips.vgpu, ascend=chips.ascend) if ours else DeviceConfig(ascend=chips.ascend)
        return named if named.ascend != AscendTable() else DeviceConfig(vgpu=named.vgpu, ascend=chips.ascend)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the configuration in force is unknown or has no effect here, each with its place."""
        found = [f"{SCHEDULER_KEY}: {note}" for note in self.conf.notes]
        in_force = self.devices
        for where, one in ((self._named_map, self._named), (CHIPS_MAP, self._chips)):
            if one is not None:
                # A section that another text stands in for is nobody's mistake.
                silent: tuple[str, ...] = ("nvidia.",) if one.vgpu is not in_force.vgpu else ()
                silent += ("vnpus",) if one.ascend is not in_force.ascend else ()
                found += [f"{'/'.join(where)}: {note}" for note in one.notes if not note.startswith(silent)]
        return tuple(found)

    @property
    def verdict(self) -> Verdict:
        """Whether all that was written is in force."""
        if self.refused:
            told = "; ".join(f"{name}: {why}" for name, why in sorted(self.refused.items()))
            since = ", from before this process began" if self.from_before else ""
            return Verdict(reason=Reason.REFUSED, message=f"{told}; {_LAST_GOOD}{since}")
        if self.notes:
            return Verdict(reason=Reason.ACCEPTED_WITH_NOTES, message="in force; " + "; ".join(self.notes))
        return Verdict(reason=Reason.ACCEPTED, message="the whole configuration is in force")

    def announcements(self) -> list[Announce]:
        """What is refused now, whether or not it was told."""
        return [self._announcement(name, why) for name, why in self.refused.items()]

    # Each answers whether something else is in force now.

    def take_files(self, texts: Texts) -> bool:
        """The files were read again."""
        if texts == self._texts:
            return False
        self._texts = texts
        before, self.from_before = self.from_before, False
        changed = self._decide_settings()
        self.from_before = before and bool(self.refused.get("/".join(_OWN_MAP)))
        return changed

    def refuse_files(self, error: ConfigError) -> None:
        """The files cannot be read; once they can, they are judged anew, also if they say the same."""
        self._texts = None
        self._settle(_OWN_MAP, error.problems)

    def take_scheduler(self, found: ConfigMap | None) -> bool:
        """The ConfigMap of Volcano's scheduler, or that there is none."""
        self._scheduler_text = found.texts.get(SCHEDULER_KEY, "") if found is not None else ""
        return self._decide_settings() if self._texts is not None else False

    def take_devices(self, found: ConfigMap | None) -> bool:
        """The vGPU plugin's ConfigMap, or that there is none."""
        before, where = self.devices, self._device_map
        if where != self._named_map:
            self._settle(self._named_map, ())
            self._named_map = where
        try:
            self._named = _decoded(found)
        except ConfigError as e:
            self._settle(where, e.problems)
            return False
        return self._took(where, before)

    def take_chips(self, found: ConfigMap | None) -> bool:
        """The Ascend plugin's ConfigMap, or that there is none."""
        before = self.devices
        try:
            self._chips = _decoded(found)
        except ConfigError as e:
            self._settle(CHIPS_MAP, e.problems)
            return False
        return self._took(CHIPS_MAP, before)

    def believes(self, namespace: str) -> bool:
        """Whether ConfigMaps of *namespace* are believed, which whoever makes such a namespace could write.

        Another one than is known by default was named by the operator.
        """
        return namespace in self._config.trusted or namespace not in _OF_OTHERS

    @property
    def _device_map(self) -> tuple[str, str]:
        return self.settings.device_config_namespace, self.settings.device_config_name

    def _took(self, where: tuple[str, str], before: DeviceConfig) -> bool:
        self._settle(where, ())
        self._note()
        return self._changed(self.devices != before)

    def _decide_settings(self) -> bool:
        try:
            conf = decode_settings_of(self._config, self._texts or Texts(), self._scheduler_text)
        except ConfigError as e:
            self._settle(_OWN_MAP, [problem for problem in e.problems if not problem.startswith(CLUSTER_CONF)])
            theirs = [problem for problem in e.problems if problem.startswith(CLUSTER_CONF)]
            self._settle(SCHEDULER_MAP, [problem.removeprefix(CLUSTER_CONF) for problem in theirs])
            return False
        if not self.from_before:
            self._settle(_OWN_MAP, ())
            self.good = self._texts
        self._settle(SCHEDULER_MAP, ())
        changed = conf != self.conf
        self.conf = conf
        self._note()
        return self._changed(changed)

    def _changed(self, changed: bool) -> bool:
        self.version += changed
        return changed

    def _settle(self, where: tuple[str, str], problems: Sequence[str]) -> None:
        """What stands at *where* is refused for *problems*; for none, it is in force."""
        name, why = "/".join(where), "; ".join(problems)
        if self.refused.get(name, "") == why:
            return
        if not why:
            del self.refused[name]
            _log.info("configuration is in force again", source=name)
            return
        self.refused[name] = why
        _log.warning("configuration refused; the last good one stays in force", source=name, reason=why)
        self._tell(self._announcement(name, why))

    @staticmethod
    def _announcement(source: str, why: str) -> Announce:
        namespace, _, name = source.partition("/")
        return Announce(
            about=Subject(kind="ConfigMap", namespace=namespace, name=name, uid=""),
            reason="ConfigurationRefused",
            message=f"not taken, {_LAST_GOOD}: {why}"[:_MESSAGE_MAX],
        )

    def _note(self) -> None:
        """Name once what has no effect; what is gone may be named again when it comes back."""
        notes = self.notes
        for note in notes:
            if note not in self._noted:
                _log.warning("configuration has no effect", note=note)
        self._noted.clear()
        self._noted.update(notes)


def _decoded(found: ConfigMap | None) -> DeviceConfig | None:
    text = found.texts.get(_DEVICE_KEY, "") if found is not None else ""
    return decode_device_config(text) if text.strip() else None
