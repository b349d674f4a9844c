"""Merges the configuration from several texts: their content, their precedence, and their ineffective parts.

Both processes merge the same texts by the same precedence:
- cardshare.yaml, cardshare's own settings, overrides volcano-scheduler.conf.
- volcano-scheduler.conf beside it overrides the one in the ConfigMap of Volcano's scheduler.
- device-config.yaml of a file overrides ConfigMaps. Of these, the one that settings name for Volcano overrides HAMi's,
  section by section: ``nvidia`` in the form of Volcano's vGPU plugin, and the chips. HAMi's own ``nvidia`` section is
  taken from HAMi's ConfigMap first, and never replaces Volcano's.

Each text is accepted or refused as a whole, and no text blocks another. Only a section of device-config.yaml that
concerns one dialect alone does not block the others: if it is wrong, the one that was read before stays in force.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from core.catalog import Catalog, Words
from core.errors import ConfigError
from core.settings import DialectName, Section, Settings, Tables
from core.wire.configuration import OwnSettings, decode_own_settings
from core.wire.device_config import (
    DeviceConfig,
    decode_device_config,
    decode_saved_sections,
    encode_saved_sections,
)
from core.wire.scheduler_conf import SchedulerConf, decode_scheduler_conf
from core.wire.vocabulary import DeviceSection, Vocabulary

_P = TypeVar("_P")

SETTINGS_KEY: Final = "cardshare.yaml"
SCHEDULER_KEY: Final = "volcano-scheduler.conf"
DEVICE_KEY: Final = "device-config.yaml"

LAST_GOOD: Final = "the last good configuration stays in force"

OWN_MAP: Final = "cardshare-system/cardshare-settings"
# The ConfigMap of Volcano's scheduler, in a namespace that may not exist; settings name the other two.
SCHEDULER_MAP: Final = "volcano-system/volcano-scheduler-configmap"
# Anyone who may create such a namespace can write ConfigMaps with known names, so they are not trusted by default.
NAMESPACES_OF_OTHERS: Final = frozenset({"volcano-system", "kube-system", "mindx-dl"})


class Source(StrEnum):
    """A text of the configuration, and the key under which it is saved for a later start.

    SECTIONS: only saved: the sections in force that concern one dialect alone, from whichever texts.
    """

    OWN = SETTINGS_KEY
    SCHEDULER_FILE = SCHEDULER_KEY
    DEVICE_FILE = f"mounted.{DEVICE_KEY}"
    SCHEDULER_MAP = f"volcano.{SCHEDULER_KEY}"
    CHIPS_MAP = f"chips.{DEVICE_KEY}"
    DEVICE_MAP = DEVICE_KEY
    SECTIONS = f"sections.{DEVICE_KEY}"

    @property
    def key(self) -> str:
        """The key or file name of such a text."""
        keys = (SETTINGS_KEY, SCHEDULER_KEY, DEVICE_KEY)
        return next(key for key in keys if self.endswith(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text as found.

    config_map: the ConfigMap that holds it, NAMESPACE/NAME, "" for none; path: its file, if any.
    problems: why it could not be read.
    """

    source: Source
    config_map: str = ""
    path: str = ""
    content: str = ""
    problems: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The object to edit for a correction; cardshare's own ConfigMap if a file may be mounted from it."""
        is_own = self.source in {Source.OWN, Source.SCHEDULER_FILE}
        return self.config_map or (OWN_MAP if is_own else self.path)


# The decoded content; None if the text is empty.
Part = OwnSettings | SchedulerConf | DeviceConfig | None


class Decoded(NamedTuple):
    """The content of *text*, or the problems for which it is refused."""

    text: Text
    part: Part
    problems: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of it can be in force: neither it nor a section that concerns one dialect alone is wrong."""
        return not (self.problems or (isinstance(self.part, DeviceConfig) and self.part.wrong))


def usable(saved: Iterable[Text], catalog: Catalog) -> dict[Source, Decoded]:
    """Return those of the *saved* texts that can still be decoded, by source."""
    found = [decode(text, catalog) for text in saved]
    return {one.text.source: one for one in found if not one.problems}


def decode(text: Text, catalog: Catalog) -> Decoded:
    """Decode *text* by the grammar of its source; dialects decode their parts."""
    problems: Sequence[str] = text.problems
    if not problems:
        try:
            return Decoded(
                text, _DECODERS[text.source](text.content, catalog.vocabulary) if text.content.strip() else None
            )
        except ConfigError as e:
            problems = e.problems
    if text.path:
        problems = [f"{text.path}: {one.removeprefix(f'{text.source.key}: ')}" for one in problems]
    return Decoded(text, None, tuple(problems))


_DECODERS: Final[Mapping[Source, Callable[[str, Vocabulary], Part]]] = {
    Source.OWN: decode_own_settings,
    Source.SCHEDULER_FILE: decode_scheduler_conf,
    Source.SCHEDULER_MAP: decode_scheduler_conf,
    Source.DEVICE_FILE: decode_device_config,
    Source.DEVICE_MAP: decode_device_config,
    Source.CHIPS_MAP: partial(decode_device_config, is_hamis=True),
    Source.SECTIONS: decode_saved_sections,
}


@dataclass(frozen=True, slots=True)
class _Part(Generic[_P]):
    """The content of a text."""

    text: Text
    part: _P


class ReadSection(NamedTuple):
    """A section of device-config.yaml that is in force, and the text that has it now.

    text: its YAML, if it concerns one dialect alone.
    """

    source: Source
    section: Section
    text: str = ""


ReadSections: TypeAlias = Mapping[DeviceSection, ReadSection]
_NONE_READ: Final[ReadSections] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration in force, from all texts.

    sections: of device-config.yaml. notes: unknown or ineffective parts of the texts, each with its location.
    """

    settings: Settings
    tables: Tables
    sections: ReadSections = field(default_factory=dict, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)


def merge(
    parts: Mapping[Source, Decoded],
    catalog: Catalog,
    scheduler_names: tuple[str, ...] = (),
    hami_config: str = "",
    before: ReadSections | None = None,
) -> Configuration:
    """Merge *parts* into a configuration.

    Args:
        parts: the decoded texts.
        catalog: the dialects.
        scheduler_names: if not empty, they override those of all texts.
        hami_config: HAMi's ConfigMap as NAMESPACE/NAME; it overrides the one that the texts name, unless it is "".
        before: the sections that were in force before, None if that is not known; they replace wrong ones.
    """
    own, conf = _own(parts), _scheduler(parts)
    said = own.part if own is not None else OwnSettings()
    spoken = conf.part if conf is not None else SchedulerConf()
    settings = said.over(spoken.settings)
    off = tuple((name, _switch(name, own, conf)) for name in sorted(catalog.dialects) if not settings.has_on(name))
    settings = replace(settings, scheduler_names=scheduler_names or settings.scheduler_names, switched_off=off)
    if hami_config:
        namespace, _, name = hami_config.partition("/")
        settings = replace(settings, hami_config_namespace=namespace, hami_config_name=name)
    is_known, before = before is not None, before or _NONE_READ
    in_force = _in_force(parts, catalog.vocabulary.sections, before)
    read = {one: found.part.sections.get(one) for one, found in in_force.items()}
    devices = {one: section or before[one].section for one, section in read.items()}
    clashing = _without_clashes(devices, spoken.sections, catalog, before)
    notes = [*_notes(conf, spoken.notes), *_device_notes(parts, in_force, is_known=is_known)]
    for one, problem in clashing.items():
        notes += _notes(in_force[one], (one.unused(problem, is_kept=one in devices if is_known else None),))
    sections: dict[DeviceSection, ReadSection] = {}
    for one, section in devices.items():
        found = in_force[one]
        text = found.part.texts.get(one, "") if section is read[one] else before[one].text
        sections[one] = ReadSection(found.text.source, section, text)
    # Without those that say what holds anyway, equal configurations are equal.
    tables = Tables(
        sections=tuple([one for one in (*devices.values(), *spoken.sections) if one != type(one)()]),
        lost=_lost(parts, catalog.vocabulary.sections, devices),
        mps_several_gpus=settings.mps_several_gpus,
    )
    tables = replace(tables, foreign=_foreign(parts, catalog.words(tables)))
    # Whether a kind of nodes is readable depends on all texts, so it is not an error of the text that describes it.
    notes += _notes(own, catalog.problems_of_kinds(tables, settings))
    return Configuration(settings=settings, tables=tables, sections=sections, notes=tuple(notes))


def _without_clashes(
    devices: dict[DeviceSection, Section], others: Iterable[Section], catalog: Catalog, before: ReadSections
) -> Mapping[DeviceSection, str]:
    """Replace *devices* that clash by those *before*, and remove what then still clashes: new ones first.

    Returns the problems.
    """
    problems: dict[DeviceSection, str] = {}
    while clashes := catalog.clashes((*devices.values(), *others)):
        known = [one for one in clashes if one in before and one not in problems]
        edited = {one: before[one].section for one in known if before[one].section != devices[one]}
        new = [one for one in clashes if one not in before]
        for one in edited or new or clashes:
            problems.setdefault(one, clashes[one])
            if edited:
                devices[one] = edited[one]
            else:
                del devices[one]
    return problems


def saved_sections(
    saved: Mapping[Source, Decoded], catalog: Catalog, scheduler_names: tuple[str, ...] = (), hami_config: str = ""
) -> ReadSections:
    """Return the sections that were in force when *saved* was; the other arguments are those of `merge`."""
    part, before = saved[Source.SECTIONS].part if Source.SECTIONS in saved else None, dict[DeviceSection, ReadSection]()
    if isinstance(part, DeviceConfig):
        before = {one: ReadSection(Source.SECTIONS, section, part.texts[one]) for one, section in part.found}
    return merge(saved, catalog, scheduler_names, hami_config, before).sections


def sections_to_save(sections: ReadSections) -> str:
    """Return the text of `Source.SECTIONS` for *sections*; "" if none concerns one dialect alone."""
    texts = {one.alone: found.text for one, found in sections.items() if one.alone}
    return encode_saved_sections(texts) if texts else ""


def believes(namespace: str, trusted: frozenset[str]) -> bool:
    """Return whether ConfigMaps of *namespace* are trusted; the creator of an unused namespace can write them.

    Namespaces outside the default list are trusted because the operator named them.
    """
    return namespace in trusted or namespace not in NAMESPACES_OF_OTHERS


def device_map(settings: Settings) -> str:
    """Return the ConfigMap that *settings* name for device-config.yaml, NAMESPACE/NAME."""
    return f"{settings.device_config_namespace}/{settings.device_config_name}"


def hami_map(settings: Settings) -> str:
    """Return the ConfigMap that *settings* name for HAMi's device-config.yaml, NAMESPACE/NAME."""
    return f"{settings.hami_config_namespace}/{settings.hami_config_name}"


def device_maps(settings: Settings) -> Mapping[Source, str]:
    """Return the third-party ConfigMaps with device-config.yaml; if both are the same, it is HAMi's, the other is "".

    Volcano's own guide for Ascend makes Volcano read HAMi's.
    """
    hami, other = hami_map(settings), device_map(settings)
    return {Source.CHIPS_MAP: hami, Source.DEVICE_MAP: "" if other == hami else other}


def source_of(name: str, settings: Settings) -> Source | None:
    """Return the role of the third-party ConfigMap *name*, NAMESPACE/NAME; None if it has none."""
    if name == SCHEDULER_MAP:
        return Source.SCHEDULER_MAP
    return next((source for source, place in device_maps(settings).items() if place == name), None)


def _own(parts: Mapping[Source, Decoded]) -> _Part[OwnSettings] | None:
    found = parts.get(Source.OWN)
    return _Part(found.text, found.part) if found is not None and isinstance(found.part, OwnSettings) else None


def _scheduler(parts: Mapping[Source, Decoded]) -> _Part[SchedulerConf] | None:
    for source in (Source.SCHEDULER_FILE, Source.SCHEDULER_MAP):
        found = parts.get(source)
        if found is not None and isinstance(found.part, SchedulerConf):
            return _Part(found.text, found.part)
    return None


def _lost(
    parts: Mapping[Source, Decoded], sections: Collection[DeviceSection], found: Container[DeviceSection]
) -> frozenset[str]:
    """Return the dialects whose own section is in force but was not *found* usable."""
    written = _in_force(parts, sections, sections)
    return frozenset([one.alone for one in written if one.alone and one not in found])


def _foreign(parts: Mapping[Source, Decoded], words: Words) -> frozenset[str]:
    """Return the resources by which HAMi alone assigns cards: those of other versions, and of vendors that are new."""
    named = [name for one in _device_texts(parts, Source.CHIPS_MAP) for name in one.part.resources]
    return frozenset(named) - words.known - words.uncounted


def _in_force(
    parts: Mapping[Source, Decoded], sections: Iterable[DeviceSection], before: Container[DeviceSection]
) -> Mapping[DeviceSection, _Part[DeviceConfig]]:
    """Return the text in force for each of *sections* that some text has; a wrong one needs one *before*."""
    mounted = _device_texts(parts, Source.DEVICE_FILE)
    maps = _device_texts(parts, Source.DEVICE_MAP, Source.CHIPS_MAP)
    found: dict[DeviceSection, _Part[DeviceConfig]] = {}
    for section in sections:
        # A mounted file replaces Volcano's ConfigMap and the chips as a whole.
        for one in (*mounted, *reversed(maps)) if section.is_hamis else mounted or maps:
            if section in one.part.sections or (section in before and section in dict(one.part.wrong)):
                found.setdefault(section, one)
    return found


def _device_texts(parts: Mapping[Source, Decoded], *sources: Source) -> list[_Part[DeviceConfig]]:
    found = [parts[source] for source in sources if source in parts]
    return [_Part(one.text, one.part) for one in found if isinstance(one.part, DeviceConfig)]


def _switch(name: DialectName, own: _Part[OwnSettings] | None, conf: _Part[SchedulerConf] | None) -> str:
    """Return the setting that disables *name*, and its location."""
    if own is not None and own.part.names_dialects:
        return f"'dialects' of {SETTINGS_KEY} in {_where(own.text)} does not list it"
    if conf is not None:
        return f"'{conf.part.switches[name]}' of {SCHEDULER_KEY} in {_where(conf.text)} is not true"
    return ""


def _where(text: Text) -> str:
    return f"ConfigMap {text.config_map}" if text.config_map else text.path


def _device_notes(
    parts: Mapping[Source, Decoded], in_force: Mapping[DeviceSection, _Part[DeviceConfig]], *, is_known: bool
) -> Iterator[str]:
    """Yield the notes of every text once; a section that another text overrides is not an error."""
    for found in _device_texts(parts, Source.DEVICE_FILE, Source.DEVICE_MAP, Source.CHIPS_MAP):
        overridden = [one.key for one in found.part.sections if one not in in_force or in_force[one].text != found.text]
        silent = tuple([f"{key}{mark}" for key in overridden for mark in ".["])
        yield from _notes(found, [note for note in found.part.notes if not note.startswith(silent)])
        for one, problems in found.part.wrong:
            is_kept = one in in_force and in_force[one].text == found.text if is_known else None
            yield from _notes(found, [one.unused(problem, is_kept=is_kept) for problem in problems])


def _notes(found: _Part[Any] | None, notes: Iterable[str]) -> tuple[str, ...]:
    if found is None:
        return ()
    return tuple(f"{found.text.path or found.text.config_map}: {note}" for note in notes)
