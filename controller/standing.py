"""Which configuration is in force: that of files, and of ConfigMaps as the mirror shows them.

A text that cannot be used is refused whole, and what it last said well stays in force: that is told once in the log, in
an event on the ConfigMap and in a metric. What of a text has no effect is named once as well.

- volcano-scheduler.conf beside cardshare.yaml wins; where there is none, the ConfigMap of Volcano's scheduler is read.
- device-config.yaml of the vGPU plugin is the ConfigMap that settings name. Its section of Ascend chips wins over that
  of the Ascend plugin's own ConfigMap; the latter's ``nvidia`` section is taken only where the former does not exist
  and it names Volcano's resources (HAMi's own names others).
"""

from collections.abc import Callable
from typing import Final

import structlog

from controller.config import SCHEDULER_KEY, Config, Texts, decode_settings_of, read_texts
from controller.deeds import Announce, Subject
from core.errors import ConfigError
from core.settings import AscendTable, Settings, Tables
from core.wire.config_maps import ConfigMap
from core.wire.device_config import DeviceConfig, decode_device_config
from core.wire.scheduler_conf import SchedulerConf

_log: Final = structlog.get_logger()

SCHEDULER_MAP: Final = ("volcano-system", "volcano-scheduler-configmap")
CHIPS_MAP: Final = ("kube-system", "hami-scheduler-device")
_OWN_MAP: Final = ("cardshare-system", "cardshare-settings")
_DEVICE_KEY: Final = "device-config.yaml"
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
        self._texts = read_texts(config)
        self._scheduler_text = ""
        self.conf: SchedulerConf = decode_settings_of(config, self._texts, "")
        self._named: DeviceConfig | None = None
        self._chips: DeviceConfig | None = None
        self.refused: Final[dict[str, str]] = {}
        self._noted: Final[set[str]] = set()
        self.version = 0
        self._note()

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

    # Each answers whether something else is in force now.

    def take_files(self, texts: Texts) -> bool:
        """The files were read again."""
        if texts == self._texts:
            return False
        self._texts = texts
        return self._decide_settings(_OWN_MAP)

    def refuse_files(self, error: ConfigError) -> None:
        """The files cannot be read."""
        self._refuse(_OWN_MAP, error)

    def take_scheduler(self, found: ConfigMap | None) -> bool:
        """The ConfigMap of Volcano's scheduler, or that there is none."""
        self._scheduler_text = found.texts.get(SCHEDULER_KEY, "") if found is not None else ""
        return self._decide_settings(SCHEDULER_MAP)

    def take_devices(self, found: ConfigMap | None) -> bool:
        """The vGPU plugin's ConfigMap, or that there is none."""
        before = self.devices
        where = (self.settings.device_config_namespace, self.settings.device_config_name)
        try:
            self._named = _decoded(found)
        except ConfigError as e:
            self._refuse(where, e)
            return False
        self.refused.pop("/".join(where), None)
        return self._changed(self.devices != before)

    def take_chips(self, found: ConfigMap | None) -> bool:
        """The Ascend plugin's ConfigMap, or that there is none."""
        before = self.devices
        try:
            self._chips = _decoded(found)
        except ConfigError as e:
            self._refuse(CHIPS_MAP, e)
            return False
        self.refused.pop("/".join(CHIPS_MAP), None)
        return self._changed(self.devices != before)

    def _decide_settings(self, where: tuple[str, str]) -> bool:
        try:
            conf = decode_settings_of(self._config, self._texts, self._scheduler_text)
        except ConfigError as e:
            self._refuse(where, e)
            return False
        for source in (_OWN_MAP, SCHEDULER_MAP):
            self.refused.pop("/".join(source), None)
        changed = conf != self.conf
        self.conf = conf
        self._note()
        return self._changed(changed)

    def _changed(self, changed: bool) -> bool:
        self.version += changed
        return changed

    def _refuse(self, where: tuple[str, str], error: ConfigError) -> None:
        name, why = "/".join(where), str(error)
        if self.refused.get(name) == why:
            return
        self.refused[name] = why
        _log.warning("configuration refused; the last good one stays in force", source=name, reason=why)
        message = f"not taken, the last good configuration stays in force: {why}"
        self._tell(
            Announce(
                about=Subject(kind="ConfigMap", namespace=where[0], name=where[1], uid=""),
                reason="ConfigurationRefused",
                message=message[:_MESSAGE_MAX],
            )
        )

    def _note(self) -> None:
        """Name once what has no effect; what is gone may be named again when it comes back."""
        for note in self.conf.notes:
            if note not in self._noted:
                _log.warning("configuration has no effect", note=note)
        self._noted.clear()
        self._noted.update(self.conf.notes)


def _decoded(found: ConfigMap | None) -> DeviceConfig | None:
    text = found.texts.get(_DEVICE_KEY, "") if found is not None else ""
    return decode_device_config(text) if text.strip() else None
