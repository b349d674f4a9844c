"""Follows the texts of the configuration: files, and ConfigMaps of trusted namespaces."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from core.configuration import SCHEDULER_MAP, Source, Text, believes, device_maps
from core.wire.config_maps import ConfigMap, decode_config_map
from kube.calls import namespace_path
from kube.reflector import EventKind, Reflector
from kube.reflector import Source as ApiSource
from runtime.configuration import ActiveConfiguration
from runtime.files import Files

_log: Final = structlog.get_logger()

_LOOK_S: Final = 1.0
_SETTLING_S: Final = 0.05
# Names for metrics and /readyz; without quotes and blanks, which queries would have to escape.
_KINDS: Final = {
    Source.SCHEDULER_MAP: "scheduler-config",
    Source.CHIPS_MAP: "chip-config",
    Source.DEVICE_MAP: "device-config",
}
KINDS: Final = tuple(_KINDS.values())


class Follower:
    """Keeps an `ActiveConfiguration` in step with its texts.

    Attributes:
        reflectors: the ConfigMap reflectors, by kind of configuration.
        listed: set once every trusted ConfigMap was listed and, if usable, is in force.
    """

    def __init__(
        self,
        active: ActiveConfiguration,
        files: Files,
        *,
        trusted: frozenset[str],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare.

        Args:
            active: receives the texts.
            files: read once a second.
            trusted: namespaces whose third-party ConfigMaps are trusted.
            changed: called after a change of the configuration in force; reading of that text continues when it
                returns.
        """
        self.reflectors: Final[dict[str, Reflector[ConfigMap]]] = {}
        self.listed: Final = asyncio.Event()
        self._active: Final = active
        self._files: Final = files
        self._trusted: Final = trusted
        self._changed: Final = changed
        self._seen: dict[Source, Text] = {}
        self._api: tuple[asyncio.TaskGroup, ApiSource] | None = None
        # The followed device ConfigMaps, and the task of each.
        self._devices: dict[Source, tuple[str, asyncio.Task[None] | None]] = {}

    @property
    def wants_config_maps(self) -> bool:
        """Whether there are trusted ConfigMaps to follow."""
        names = (SCHEDULER_MAP, *filter(None, device_maps(self._active.settings).values()))
        return any(believes(name.partition("/")[0], self._trusted) for name in names)

    async def follow_files(self) -> None:
        """Read the files repeatedly until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            # Files that are edited together take effect together.
            await self._take(*await asyncio.to_thread(self._files.read))

    async def follow_config_maps(self, api: ApiSource) -> None:
        """Follow the ConfigMaps until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._api, self._devices = (tasks, api), {}
            try:
                # Start with the ConfigMap that names the device configurations.
                found = self._reflector(api, Source.SCHEDULER_MAP, SCHEDULER_MAP)
                if found is not None:
                    tasks.create_task(found.run(), name=f"reflect {_KINDS[Source.SCHEDULER_MAP]}")
                    await found.synced.wait()
                await self._follow_devices()
                # Meanwhile, the settings may name other ConfigMaps, and the former ones are never listed.
                while not all(one.synced.is_set() for one in self.reflectors.values()):  # noqa: ASYNC110
                    await asyncio.sleep(_SETTLING_S)
                self.listed.set()
                await asyncio.Event().wait()
            finally:
                self._api = None

    def reasons(self) -> list[str]:
        """Return which ConfigMaps cannot be read or were not yet listed, one line each."""
        found: list[str] = []
        for name in KINDS:
            reflector = self.reflectors.get(name)
            if reflector is None:
                # After the first lists, a missing reflector means that the namespace is not trusted.
                found += [] if self.listed.is_set() else [f"{name}: not listed yet"]
            elif reflector.state:
                found.append(reflector.state)
            elif not reflector.synced.is_set():
                found.append(f"{name}: being listed")
        return found

    async def _follow_devices(self) -> None:
        """Follow exactly the ConfigMaps that the settings name now."""
        for source, name in device_maps(self._active.settings).items():
            followed, running = self._devices.get(source, (None, None))
            if self._api is None or followed == name:
                continue
            tasks, api = self._api
            if running is not None:
                running.cancel()
            one = self._reflector(api, source, name)
            task = tasks.create_task(one.run(), name=f"reflect {_KINDS[source]}") if one is not None else None
            self._devices[source] = (name, task)
            if one is None:
                await self._take(Text(source=source, config_map=name))

    def _reflector(self, api: ApiSource, source: Source, name: str) -> Reflector[ConfigMap] | None:
        """Return a reflector of one ConfigMap by name, so the right to read that one is enough; None if untrusted."""
        kind, (namespace, _, own_name) = _KINDS[source], name.partition("/")
        if not name or not believes(namespace, self._trusted):
            self.reflectors.pop(kind, None)
            return None
        found = self.reflectors[kind] = Reflector(
            api,
            f"{namespace_path(namespace)}/configmaps",
            decode=decode_config_map,
            sink=_Sink(own_name, partial(self._take_map, source, name)),
            selectors={"fieldSelector": f"metadata.name={own_name}"},
        )
        return found

    async def _take_map(self, source: Source, name: str, found: ConfigMap | None) -> None:
        await self._take(text_of(source, name, found))

    async def _take(self, *texts: Text) -> None:
        new = [text for text in texts if self._seen.get(text.source) != text]
        # Refused texts are remembered too, so that a bad edit is reported once.
        self._seen |= {text.source: text for text in new}
        # Decoding a full ConfigMap takes long, so it runs in a thread.
        decoded = await asyncio.to_thread(lambda: [self._active.decode(text) for text in new])
        changed = [found.text for found in decoded if self._active.take(found)]
        if changed:
            sources = [text.subject for text in changed]
            _log.info("configuration taken", version=self._active.version, sources=sources)
            await self._changed()
            await self._follow_devices()


def text_of(source: Source, name: str, found: ConfigMap | None) -> Text:
    """Return the content of ConfigMap *name*; empty if there is none."""
    return Text(source=source, config_map=name, content=found.texts.get(source.key, "") if found is not None else "")


class _Sink:
    """Reports the state of one ConfigMap, or None if it does not exist."""

    def __init__(self, name: str, tell: Callable[[ConfigMap | None], Awaitable[None]]) -> None:
        self._name = name
        self._tell = tell

    async def on_replace(self, objects: Sequence[ConfigMap], resource_version: str) -> None:
        """Report the one ConfigMap from a complete list."""
        del resource_version
        await self._tell(next((one for one in objects if one.name == self._name), None))

    async def on_event(self, kind: EventKind, value: ConfigMap) -> None:
        """Report a change of the ConfigMap."""
        if value.name == self._name:
            await self._tell(None if kind is EventKind.DELETED else value)
