"""The configuration in force: the last usable version of every text, and why a newer one is refused.

An unusable text is refused as a whole. Its last usable version stays in force, also after a restart; so does that of an
unusable section of a vendor. Each refusal is logged once and reported to the registered callback. Parts of a text that
have no effect are logged once.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from core.catalog import Catalog
from core.configuration import (
    Configuration,
    Decoded,
    ReadSections,
    Source,
    Text,
    decode,
    merge,
    saved_sections,
    sections_to_save,
)
from core.errors import ConfigError
from core.settings import Settings, Tables
from runtime.files import Files

_log: Final = structlog.get_logger()


class ActiveConfiguration:
    """The configuration in force, and the refused edits with their reasons.

    Attributes:
        current: the configuration in force.
        version: increases with every change of it.
        refused: why an edit is not in force, by the name of the edited object.
        good: the texts in force by source, and the vendors' sections in force, to be saved for a later start.
    """

    def __init__(
        self,
        files: Files,
        catalog: Catalog,
        *,
        scheduler_names: tuple[str, ...] = (),
        hami_config: str = "",
    ) -> None:
        """Read the files.

        Args:
            files: where they are.
            catalog: the available dialects.
            scheduler_names: names from the command line; they override those of all texts.
            hami_config: HAMi's ConfigMap as NAMESPACE/NAME from the command line; "" = the one that the texts name.

        Raises:
            ConfigError: lists every problem of every file without a saved usable version.
        """
        self._files: Final = files
        self._catalog: Final = catalog
        self._names: Final = scheduler_names
        self._hami_config: Final = hami_config
        self._parts: Final[dict[Source, Decoded]] = {}
        self._from_before: Final[set[Source]] = set()
        self._problems: Final[dict[Source, tuple[str, tuple[str, ...]]]] = {}
        self._tell: Callable[[str, str], None] = _nobody
        self.refused: Mapping[str, str] = {}
        self.good: Final[dict[Source, str]] = {}
        self.version = 0
        self._noted: frozenset[str] = frozenset()
        self._kept: Final = files.kept(catalog)
        # What replaces wrong sections of texts; at first those that were saved.
        self._sections = saved_sections(self._kept, catalog, scheduler_names, hami_config)
        self.current: Configuration = merge({}, catalog, scheduler_names, hami_config)
        found = [self.decode(text) for text in files.read()]
        problems = [problem for one in found if one.text.source not in self._kept for problem in one.problems]
        if problems:
            raise ConfigError(problems)
        for one in found:
            self.take(one)
        self.version = 0
        if files.lacks_settings:
            _log.warning("no cardshare.yaml there; its defaults are in force", directory=str(files.settings))

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.current.settings

    @property
    def tables(self) -> Tables:
        """The device configuration in force."""
        return replace(self.current.tables, version=self.version)

    @property
    def parts(self) -> Mapping[Source, Decoded]:
        """The decoded texts that are in force now."""
        return dict(self._parts)

    @property
    def sections(self) -> ReadSections:
        """The sections of device-config.yaml in force, which replace wrong ones."""
        return self._sections

    @property
    def notes(self) -> tuple[str, ...]:
        """Unknown or ineffective parts of the configuration in force, each with its location."""
        return self.current.notes

    @property
    def from_before(self) -> bool:
        """Whether part of it was saved by an earlier process because the current text was refused at the start."""
        return bool(self._from_before)

    def tell_refusals(self, tell: Callable[[str, str], None]) -> None:
        """Call *tell* at every later refusal, with the name of the edited object and the reason."""
        self._tell = tell

    def decode(self, text: Text) -> Decoded:
        """Decode *text* for `take`."""
        return decode(text, self._catalog)

    def take(self, found: Decoded) -> bool:
        """Record *found* as the current text of its source; return whether the configuration in force changed."""
        source, is_new = found.text.source, found.text.source not in self._parts
        if not found.problems:
            self._problems.pop(source, None)
            self._from_before.discard(source)
        else:
            self._problems[source] = (found.text.subject, found.problems)
            kept = self._kept.get(source) if is_new else None
            if kept is None:
                self._tell_refused()
                return False
            self._from_before.add(source)
            _log.error(
                "SETTINGS REFUSED; this process uses the saved last good ones",
                source=found.text.subject,
                kept=str(self._files.last_good),
                reason="; ".join(found.problems),
            )
            found = kept._replace(text=replace(kept.text, config_map=found.text.config_map, path=found.text.path))
        self._parts[source] = found
        self._tell_refused()
        has_changed = self._merge()
        self.good[source] = found.text.content
        self.good.pop(Source.SECTIONS, None)
        if sections := sections_to_save(self._sections):
            self.good[Source.SECTIONS] = sections
        return has_changed

    def _merge(self) -> bool:
        before = self.current
        self.current = merge(self._parts, self._catalog, self._names, self._hami_config, self._sections)
        # Until a text is known, its saved sections may be needed.
        unknown = {one: read for one, read in self._sections.items() if read.source not in self._parts}
        self._sections = {**unknown, **self.current.sections}
        self._note()
        if self.current == before:
            return False
        self.version += 1
        return True

    def _tell_refused(self) -> None:
        before, now = self.refused, dict[str, str]()
        for name, problems in self._problems.values():
            now[name] = "; ".join(filter(None, (now.get(name, ""), *problems)))
        self.refused = now
        for name, why in now.items():
            if before.get(name) != why:
                _log.warning("configuration refused; the last good one stays in force", source=name, reason=why)
                self._tell(name, why)
        for name in before.keys() - now.keys():
            _log.info("configuration is in force again", source=name)

    def _note(self) -> None:
        """Log each ineffective part once; a part that disappears may be logged again when it returns."""
        for note in self.notes:
            if note not in self._noted:
                _log.warning("configuration has no effect", note=note)
        self._noted = frozenset(self.notes)


def _nobody(name: str, why: str) -> None:
    """The callback before one is registered."""
