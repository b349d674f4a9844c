"""The files of the configuration, and a one-time read of them."""

from dataclasses import dataclass
from os.path import exists, isdir
from pathlib import Path
from typing import Final

from core.catalog import Catalog
from core.configuration import (
    DEVICE_KEY,
    OWN_MAP,
    SCHEDULER_KEY,
    SETTINGS_KEY,
    Configuration,
    Decoded,
    Source,
    Text,
    decode,
    merge,
    usable,
)
from core.errors import ConfigError

# A ConfigMap holds at most 1 MiB in total.
_MAX_FILE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Locations of the files; a directory stands for a mounted ConfigMap.

    settings: cardshare.yaml, or a directory with it and volcano-scheduler.conf. devices: device-config.yaml, or a
    directory with it.
    last_good: directory of the texts last in force, for a start with refused texts.
    """

    settings: Path | None = None
    devices: Path | None = None
    last_good: Path | None = None

    def read(self) -> tuple[Text, ...]:
        """Read every text that exists; a text that cannot be read carries its problems."""
        found: list[Text] = []
        own = self.settings
        if own is not None and isdir(own):
            found.append(_text(Source.OWN, own / SETTINGS_KEY, OWN_MAP, optional=True))
            found.append(_text(Source.SCHEDULER_FILE, own / SCHEDULER_KEY, OWN_MAP, optional=True))
        elif own is not None:
            found.append(_text(Source.OWN, own))
        devices = self.devices
        if devices is not None:
            mounted = isdir(devices)
            found.append(_text(Source.DEVICE_FILE, devices / DEVICE_KEY if mounted else devices, optional=mounted))
        return tuple(found)

    def kept(self, catalog: Catalog) -> dict[Source, Decoded]:
        """Return the saved version of each source, if it exists and is still usable."""
        folder = self.last_good
        paths = {source: folder / source for source in Source} if folder is not None else {}
        return usable([_text(source, path) for source, path in paths.items() if exists(path)], catalog)

    @property
    def lacks_settings(self) -> bool:
        """Whether the settings are a directory without cardshare.yaml."""
        own = self.settings
        return own is not None and isdir(own) and not exists(own / SETTINGS_KEY)


def read_once(files: Files, catalog: Catalog) -> Configuration:
    """Return the configuration that *files* define.

    Raises:
        ConfigError: lists every problem of every file.
    """
    found = [decode(text, catalog) for text in files.read()]
    if problems := [problem for one in found for problem in one.problems]:
        raise ConfigError(problems)
    return merge({one.text.source: one for one in found}, catalog)


def _text(source: Source, path: Path, config_map: str = "", *, optional: bool = False) -> Text:
    """Read the file at *path*, which may be missing if it is *optional*."""
    content, problem = "", ""
    try:
        with path.open("rb") as file:
            found = file.read(_MAX_FILE_BYTES + 1)
        content = found.decode()
        if len(found) > _MAX_FILE_BYTES:
            problem = f"it is longer than {_MAX_FILE_BYTES} bytes"
    except FileNotFoundError:
        problem = "" if optional else "there is no such file"
    except OSError as e:
        problem = f"it cannot be read: {e.strerror or e}"
    except UnicodeDecodeError:
        problem = "it is not UTF-8 text"
    problems = (problem,) if problem else ()
    return Text(source=source, config_map=config_map, path=str(path), content=content, problems=problems)
