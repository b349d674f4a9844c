"""The files that say how to judge: read whole, and read again when they change."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from core.admission.rulebook import Rulebook, rulebook
from core.catalog import Catalog
from core.errors import ConfigError
from core.wire.configuration import decode_settings
from core.wire.device_config import decode_device_config
from core.wire.scheduler_conf import decode_scheduler_conf

SETTINGS_KEY: Final = "cardshare.yaml"
SCHEDULER_KEY: Final = "volcano-scheduler.conf"
DEVICE_KEY: Final = "device-config.yaml"
# A ConfigMap holds no more than 1 MiB altogether.
_MAX_FILE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The configuration as written; empty where there is none. The places are for messages."""

    settings: str = ""
    scheduler: str = ""
    devices: str = ""
    settings_place: str = field(default=SETTINGS_KEY, compare=False)
    scheduler_place: str = field(default=SCHEDULER_KEY, compare=False)
    devices_place: str = field(default=DEVICE_KEY, compare=False)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rulebook of a configuration, and notes on what of it has no effect."""

    book: Rulebook
    notes: tuple[str, ...]


def read(settings: Path | None, device_config: Path | None) -> Texts:
    """Read the files named; a directory stands for the keys of a mounted ConfigMap.

    Raises:
        ConfigError: with every file that cannot be read.
    """
    problems: list[str] = []
    own, scheduler = settings, None
    if settings is not None and settings.is_dir():
        own, scheduler = settings / SETTINGS_KEY, settings / SCHEDULER_KEY
    mounted = device_config is not None and device_config.is_dir()
    if device_config is not None and mounted:
        device_config /= DEVICE_KEY
    texts = Texts(
        settings=_read(own, problems, required=scheduler is None),
        scheduler=_read(scheduler, problems, required=False),
        devices=_read(device_config, problems, required=not mounted),
        settings_place=str(own or SETTINGS_KEY),
        scheduler_place=str(scheduler or SCHEDULER_KEY),
        devices_place=str(device_config or DEVICE_KEY),
    )
    if problems:
        raise ConfigError(problems)
    return texts


def last_good(kept: Path | None, device_config: Path | None, catalog: Catalog) -> Judgement | None:
    """The judgement by the settings that were *kept*, None where there are none that can be used."""
    if kept is None or not (kept / SETTINGS_KEY).exists():
        return None
    try:
        return judge(read(kept, device_config), catalog, 0)
    except ConfigError:
        return None


def lacks_settings(settings: Path | None) -> bool:
    """Whether *settings* is a directory in which there is no cardshare.yaml."""
    return settings is not None and settings.is_dir() and not (settings / SETTINGS_KEY).exists()


def judge(texts: Texts, catalog: Catalog, version: int) -> Judgement:
    """The rulebook that *texts* make.

    Raises:
        ConfigError: with every problem of every text.
    """
    problems: list[str] = []
    try:
        conf = decode_scheduler_conf(texts.scheduler)
    except ConfigError as e:
        problems += _placed(texts.scheduler_place, SCHEDULER_KEY, e.problems)
        conf = decode_scheduler_conf("")
    settings = conf.settings
    try:
        settings = decode_settings(texts.settings, settings)
    except ConfigError as e:
        problems += _placed(texts.settings_place, SETTINGS_KEY, e.problems)
    try:
        devices = decode_device_config(texts.devices)
    except ConfigError as e:
        problems += _placed(texts.devices_place, DEVICE_KEY, e.problems)
        devices = decode_device_config("")
    if not problems:
        kinds = catalog.problems_of_kinds(conf.tables(devices, version), settings)
        problems += _placed(texts.settings_place, SETTINGS_KEY, kinds)
    if problems:
        raise ConfigError(problems)
    notes = (
        *_placed(texts.scheduler_place, SCHEDULER_KEY, conf.notes),
        *_placed(texts.devices_place, DEVICE_KEY, devices.notes),
    )
    return Judgement(rulebook(settings, conf.tables(devices, version), catalog), notes)


def _placed(place: str, key: str, found: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{place}: {one.removeprefix(f'{key}: ')}" for one in found)


def _read(path: Path | None, problems: list[str], *, required: bool) -> str:
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            problems.append(f"{path}: over {_MAX_FILE_BYTES} bytes")
            return ""
        return content.decode("utf-8")
    except FileNotFoundError:
        if required:
            problems.append(f"{path}: there is no such file")
    except UnicodeDecodeError:
        problems.append(f"{path}: it is not UTF-8 text")
    except OSError as e:
        problems.append(f"{path}: it cannot be read: {e.strerror or e}")
    return ""
