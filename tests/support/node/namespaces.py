"""A file system in namespaces of its own: nothing in it is seen outside, and all of it goes with the test.

with Namespaces(tree, name="node-a", ...) as there:
    there.run("ip", "address")
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.worlds.processes import Child, Children, until

ROOT: Final = Path(__file__).resolve().parents[3]
_HOLDER: Final = Path(__file__).with_name("holder.py")
# After this long something hangs. It is no promise of anything: the machine may be slow, and share its cores.
PATIENCE_S: Final = 240.0
CGROUPS: Final = Path("/sys/fs/cgroup")
PATH: Final = "/opt/kubernetes:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/cni"
# Folders that no overlay can serve: containers lie there as overlays, or mounts of pods.
BESIDE: Final = ("/var/lib/kubelet", "/var/log", "/var/lib/etcd")
_PASSED_ON: Final = ("GOGC", "PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class CommandFailedError(Exception):
    """A command inside failed; the text quotes it.

    Attributes:
        said: what it wrote to standard error.
    """

    def __init__(self, argv: Sequence[str], code: int, said: str) -> None:
        super().__init__(f"{' '.join(argv)[:200]}: exit code {code}: {said.strip()[-1500:]}")
        self.said = said


class Namespaces:
    """Mount, pid, uts and ipc namespaces; with *isolated*, a network and cgroups of their own too."""

    def __init__(
        self,
        tree: Path,
        *,
        logs: Path,
        binds: Mapping[str, tuple[Path, str]],
        isolated: bool = True,
        address: str = "10.90.0.1",
        gateway: str = "10.90.0.254",
    ) -> None:
        """Nothing is started yet.

        Args:
            tree: the file system; it is not written to.
            logs: where the logs of what is started go.
            binds: path inside -> path outside and `ro` or `rw`.
            isolated: whether the network is its own.
            address: of the node, with a prefix of 24 bits.
            gateway: its default route, where nothing is.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="cardshare-node-"))
        self.folder.chmod(0o755)
        self.tree = tree
        self.name = self.folder.name
        self.logs = logs
        self.address = address
        # What is outside and inside alike: sockets, files to apply.
        self.share = self.folder / "share"
        self._spec = {
            "name": self.name,
            "tree": str(tree),
            "isolated": isolated,
            "memory": str(self.folder / "memory"),
            "ready": str(self.folder / "ready"),
            "binds": [[str(out), path, mode] for path, (out, mode) in {**binds, "/share": (self.share, "rw")}.items()],
            "beside": BESIDE,
            "folders": [str(self.folder)],
            "address": address,
            "gateway": gateway,
        }
        for part in ("memory", "share"):
            (self.folder / part).mkdir()
        self.children: Children
        self._holder: subprocess.Popen[bytes]
        self._pid = 0

    def __enter__(self) -> Self:
        self.children = Children(self.logs)
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps(self._spec), encoding="utf-8")
        with (self.logs / "holder.log").open("ab") as log:
            self._holder = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HOLDER), str(spec)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        holder = Child("holder", self._holder, self.logs / "holder.log")
        try:
            until("the namespaces", self._not_ready, deadline_s=PATIENCE_S, children=(holder,))
        except BaseException:
            self.close()
            raise
        # holder -> unshare -> the first process inside
        self._pid = _only_child(_only_child(self._holder.pid, "unshare"), "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all inside, and remove it. Twice does no harm."""
        if self._holder.stdin is not None and not self._holder.stdin.closed:
            self._holder.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._holder.wait(30)
        self.children.close(grace_s=0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def entering(self, argv: Sequence[str | Path]) -> list[str]:
        """The command that runs *argv* inside."""
        words = [str(word) for word in argv]
        return ["nsenter", "-t", str(self._pid), "-m", "-n", "-p", "-u", "-i", "--", *words]

    def run(self, *argv: str | Path, text: str | None = None, within_s: float = PATIENCE_S) -> str:
        """What the command inside writes to its standard output.

        Raises:
            CommandFailedError: it failed.
        """
        done = subprocess.run(
            self.entering(argv),
            input=text,
            capture_output=True,
            text=True,
            timeout=within_s,
            env=environment(),
            check=False,
        )
        if done.returncode:
            raise CommandFailedError([str(word) for word in argv], done.returncode, done.stderr or done.stdout)
        return done.stdout

    def run_in_network(self, *argv: str | Path) -> str:
        """What the command writes, which sees our files and the network inside, whatever its exit code."""
        words = ["nsenter", "-t", str(self._pid), "-n", "--", *map(str, argv)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)
        return done.stdout + done.stderr

    def start(self, name: str, *argv: str | Path) -> Child:
        """Start *argv* inside; its output goes to `<logs>/<name>.log`."""
        return self.children.start(name, self.entering(argv), env=environment())

    def kill_all(self, program: str) -> None:
        """Kill all in our cgroups and every process inside whose name begins with *program*; the cgroups go too."""
        namespace = Path(f"/proc/{self._pid}/ns/pid").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_named = (process / "comm").read_text(encoding="utf-8").startswith(program[:15])
                if is_named and (process / "ns/pid").readlink() == namespace:
                    os.kill(int(process.name), signal.SIGKILL)
        until("cgroups to be empty", self._clear_cgroups, deadline_s=PATIENCE_S)

    def _clear_cgroups(self) -> str:
        """Kill what is in cgroups below ours, and remove them; say which are left."""
        tops = (*CGROUPS.glob(f"*/{self.name}"), *CGROUPS.glob(self.name))
        folders = sorted((one for top in tops for one in top.rglob("*") if one.is_dir()), reverse=True)
        for folder in folders:
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                    os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
        return ", ".join(str(one) for one in folders if one.exists())

    def _not_ready(self) -> str:
        return "" if (self.folder / "ready").exists() else "it has not said so"


def environment() -> dict[str, str]:
    """What commands inside are given of our own: how often Go's collect garbage, how pip comes to its packages."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    return {**ours, "PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"}


def _only_child(pid: int, wanted: str) -> int:
    """The child of *pid* whose program is called so."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        if not wanted or Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip() == wanted:
            return int(child)
    raise RuntimeError(f"process {pid} has no child {wanted}")
