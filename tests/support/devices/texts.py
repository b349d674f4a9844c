"""A configuration's texts, read with the words of the dialects that there are."""

from typing import Final

from core.catalog import standard_catalog
from core.settings import CONTROLLER_ACCOUNT, Settings, Tables
from core.wire import configuration, device_config, scheduler_conf
from core.wire.configuration import OwnSettings
from core.wire.device_config import DeviceConfig
from core.wire.scheduler_conf import SchedulerConf

WORDS: Final = standard_catalog().vocabulary
ALL_DIALECTS: Final = frozenset(WORDS.dialects)
PLUGIN_ACCOUNTS: Final = standard_catalog().plugin_accounts
TRUSTED_ACCOUNTS: Final = (CONTROLLER_ACCOUNT, *PLUGIN_ACCOUNTS)


def decode_settings(text: str) -> Settings:
    return decode_own_settings(text).over(Settings())


def decode_own_settings(text: str) -> OwnSettings:
    return configuration.decode_own_settings(text, WORDS)


def decode_scheduler_conf(text: str) -> SchedulerConf:
    return scheduler_conf.decode_scheduler_conf(text, WORDS)


def decode_device_config(text: str, *, is_hamis: bool = False) -> DeviceConfig:
    return device_config.decode_device_config(text, WORDS, is_hamis=is_hamis)


def device_tables(text: str, *, is_hamis: bool = False) -> Tables:
    """The tables of a device-config.yaml alone."""
    return Tables(sections=tuple(table for _, table in decode_device_config(text, is_hamis=is_hamis).found))
