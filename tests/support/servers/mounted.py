"""A Secret mounted as a kubelet does it: files behind one link that is exchanged at once, some time after the Secret.

Source: k8s.io/kubernetes/pkg/volume/util/atomic_writer.go (v1.36): a folder with a time in its name, `..data` leads to
the one in force, each file's name leads to `..data`.
"""

import asyncio
import base64
import itertools
from collections.abc import Mapping
from pathlib import Path

from tests.support.servers.rest import Rest

_LOOK_S = 0.2


class MountedSecret:
    """The volume of one pod; follows its Secret *lag_s* late. A Secret that is gone leaves the files as they are."""

    def __init__(self, admin: Rest, path: str, folder: Path, keys: tuple[str, ...], lag_s: float) -> None:
        self.folder = folder
        self._admin = admin
        self._path = path
        self._keys = keys
        self._lag_s = lag_s
        self._numbers = itertools.count()
        self._shown: Mapping[str, bytes] = {}

    async def look(self) -> None:
        """Write what the Secret holds, if that is another than before."""
        answer = await self._admin.get(self._path)
        if answer.status != 200:
            return
        data = answer.body.get("data", {})
        wanted = {key: base64.b64decode(data[key]) for key in self._keys if key in data}
        # As with keys that a volume names and the Secret lacks: nothing is mounted.
        if len(wanted) == len(self._keys) and wanted != self._shown:
            if self._shown:
                await asyncio.sleep(self._lag_s)
            await asyncio.to_thread(self._write, wanted)
            self._shown = wanted

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    def _write(self, files: Mapping[str, bytes]) -> None:
        number = next(self._numbers)
        place = self.folder / f"..{number}"
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
        link = self.folder / "..data_tmp"
        link.symlink_to(place.name)
        link.replace(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
