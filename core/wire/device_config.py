"""device-config.yaml, the configuration that device plugins and schedulers share, to sections of tables.

The dialects read its sections; sections and parts that cardshare does not use are skipped. Source: protocol reference,
nvidia 1.7, ascend 6.3 and hami 1.7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.tables import Section
from core.wire import yaml_text
from core.wire.checked import Checks, same_word
from core.wire.vocabulary import DeviceSection, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """The sections in a device-config.yaml that dialects read.

    wrong: those that concern one dialect alone and cannot be read, with the problems. notes: unknown or ineffective
    parts; configurations that differ only in notes are equal.
    """

    found: tuple[tuple[DeviceSection, Section], ...] = ()
    wrong: tuple[tuple[DeviceSection, tuple[str, ...]], ...] = ()
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
        else:
            wrong.append((one, own.problems))
    checks.raise_all()
    return DeviceConfig(found=tuple(read), wrong=tuple(wrong), notes=checks.notes)
