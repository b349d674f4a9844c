"""device-config.yaml, the configuration that device plugins and schedulers share, to sections of tables.

The dialects read its sections; sections and parts that cardshare does not use are skipped. Source: protocol reference,
nvidia 1.7, ascend 6.3 and hami 1.7. Sections that concern one dialect alone have a format of their own, in which they
are saved.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from core.errors import ConfigError
from core.settings import Section
from core.wire import yaml_text
from core.wire.checked import Checks, same_word
from core.wire.vocabulary import DeviceSection, Vocabulary

_SAVED_VERSION: Final = 1
# How the keys begin under which HAMi's sections have names of resources.
_RESOURCE: Final = "resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """The sections in a device-config.yaml that dialects read.

    wrong: those that concern one dialect alone and cannot be read, with the problems. texts: YAML of those that concern
    one dialect alone and can. resources: all that HAMi's sections name. notes: unknown or ineffective parts;
    configurations that differ only in notes are equal.
    """

    found: tuple[tuple[DeviceSection, Section], ...] = ()
    wrong: tuple[tuple[DeviceSection, tuple[str, ...]], ...] = ()
    texts: Mapping[DeviceSection, str] = field(default_factory=dict, compare=False)
    resources: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def sections(self) -> Mapping[DeviceSection, Section]:
        """The sections by who reads them."""
        return dict(self.found)


def decode_device_config(text: str, words: Vocabulary, *, is_hamis: bool = False) -> DeviceConfig:
    """Read device-config.yaml; *is_hamis*: whether it is in HAMi's ConfigMap.

    Raises:
        ConfigError: lists every problem, except those of sections that concern one dialect alone.
    """
    keys = list(dict.fromkeys([one.key for one in words.sections]))
    levels = ((keys, "at the top"), *dict.fromkeys(level for one in words.sections for level in one.levels))

    def elsewhere(key: str) -> str:
        found = ((same_word(key, names), where) for names, where in levels)
        return next((f"'{same}' {where}" for same, where in found if same), "")

    checks = Checks(elsewhere)
    found = checks.mapping(yaml_text.load(text, "device-config.yaml"), "device-config.yaml")
    if found.get("kind") == "ConfigMap":
        checks.wrong("kind", "ConfigMap", "give the text of its key device-config.yaml, not the whole object")
        checks.raise_all()
    checks.note_unknown(found, keys, "")
    read: list[tuple[DeviceSection, Section]] = []
    wrong: list[tuple[DeviceSection, tuple[str, ...]]] = []
    texts: dict[DeviceSection, str] = {}
    for one in words.sections:
        if found.get(one.key) is None:
            continue
        one.note(checks, found[one.key])
        if not one.means(found[one.key], is_hamis=is_hamis):
            continue
        own = Checks(elsewhere) if one.alone else checks
        section = one.read(own, found[one.key])
        if own is checks or not own.problems:
            read.append((one, section))
            if one.alone:
                texts[one] = yaml_text.dump(found[one.key])
        else:
            wrong.append((one, own.problems))
    checks.raise_all()
    resources = frozenset(_resources(found) if is_hamis else ())
    return DeviceConfig(found=tuple(read), wrong=tuple(wrong), texts=texts, resources=resources, notes=checks.notes)


def _resources(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield every resource that a section of HAMi's names, whether or not a dialect reads that section."""
    for section in found.values():
        for one in section if isinstance(section, list) else [section]:
            for key, name in one.items() if isinstance(one, dict) else ():
                if str(key).startswith(_RESOURCE) and isinstance(name, str) and "/" in name:
                    yield name


def encode_saved_sections(texts: Mapping[str, str]) -> str:
    """Return the text that saves sections; *texts*: their YAML, by the dialect that each concerns alone."""
    return json.dumps({"version": _SAVED_VERSION, "sections": texts}, sort_keys=True)


def decode_saved_sections(text: str, words: Vocabulary) -> DeviceConfig:
    """Read what `encode_saved_sections` wrote; a section that is no longer usable is left out.

    Raises:
        ConfigError: it is no such text, or one of another version.
    """
    saved = yaml_text.load(text, "the saved sections")
    if not isinstance(saved, dict) or saved.keys() != {"version", "sections"} or saved["version"] != _SAVED_VERSION:
        raise ConfigError([f"the saved sections: their version is not {_SAVED_VERSION}"])
    checks = Checks()
    found = checks.mapping(saved["sections"], "sections")
    texts = {one: checks.text(found[one.alone], one.alone) for one in words.sections if one.alone in found}
    checks.raise_all()
    read: list[tuple[DeviceSection, Section]] = []
    for one, written in texts.items():
        own = Checks()
        try:
            section = one.read(own, yaml_text.load(written, one.alone))
        except ConfigError:
            continue
        if not own.problems:
            read.append((one, section))
    return DeviceConfig(found=tuple(read), texts=texts)
