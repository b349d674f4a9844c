"""Which configuration is in force: that of the files as they are now, or the last good one.

A text that cannot be used is refused whole: told once in the log, counted, and shown in a metric until it is mended.
What of a text is unknown or has no effect is named once in the log.
"""

import asyncio
from typing import Final

import structlog

from core.admission.rulebook import Rulebook
from core.catalog import Catalog
from core.errors import ConfigError
from webhook import configuration
from webhook.configuration import Judgement, Texts
from webhook.metrics import Metrics
from webhook.options import Options

_log: Final = structlog.get_logger()
_WHAT: Final = "configuration"


class Standing:
    """The rulebook in force.

    Attributes:
        book: what reviews are judged by.
        version: another one with every change.
    """

    def __init__(self, options: Options, catalog: Catalog, metrics: Metrics) -> None:
        """Read the files.

        Raises:
            ConfigError: with every problem of every file.
        """
        self._options = options
        self._catalog = catalog
        self._metrics = metrics
        self._refused = ""
        self._noted: frozenset[str] = frozenset()
        self.version = 0
        self._texts: Texts | None = None
        judgement = self._begin()
        self.book: Rulebook = judgement.book
        if configuration.lacks_settings(options.settings):
            _log.warning("no cardshare.yaml there; its defaults are in force", directory=str(options.settings))
        self._note(judgement)

    def _begin(self) -> Judgement:
        """Judge by the files, or by what was kept before this process, where these cannot be used."""
        try:
            texts = self._read()
            judgement = configuration.judge(texts, self._catalog, self.version)
        except ConfigError as e:
            found = configuration.last_good(self._options.last_good, self._options.device_config, self._catalog)
            if found is None:
                raise
            self._settle(str(e))
            self._metrics.reload_failures[_WHAT] += 1
            _log.error(
                "SETTINGS REFUSED; this process runs on the last good ones, which were kept",
                kept=str(self._options.last_good),
                error=str(e),
            )
            return found
        self._texts = texts
        return judgement

    async def look(self) -> bool:
        """Read the files again; whether something else is in force now."""
        try:
            # The one may wait for a disk, the other is work for a whole ConfigMap: neither holds up a review.
            texts = await asyncio.to_thread(self._read)
        except ConfigError as e:
            # Once they can be read again they are judged anew, also if they say the same.
            self._texts = None
            self._refuse(e)
            return False
        if texts == self._texts:
            return False
        # Remembered although it may be refused: one bad edit is told once.
        self._texts = texts
        try:
            judgement = await asyncio.to_thread(configuration.judge, texts, self._catalog, self.version + 1)
        except ConfigError as e:
            self._refuse(e)
            return False
        self._settle("")
        self.version += 1
        self.book = judgement.book
        self._note(judgement)
        self._metrics.reloads[_WHAT] += 1
        _log.info("configuration replaced", version=self.version)
        return True

    def _settle(self, why: str) -> None:
        self._refused = why
        self._metrics.configuration_refused = int(bool(why))

    def _read(self) -> Texts:
        return configuration.read(self._options.settings, self._options.device_config)

    def _refuse(self, error: ConfigError) -> None:
        if str(error) != self._refused:
            self._settle(str(error))
            self._metrics.reload_failures[_WHAT] += 1
            _log.warning("configuration refused; the last good one stays in force", error=str(error))

    def _note(self, judgement: Judgement) -> None:
        for note in judgement.notes:
            if note not in self._noted:
                _log.warning("configuration has no effect", note=note)
        self._noted = frozenset(judgement.notes)
        self._metrics.configuration_notes = len(judgement.notes)
