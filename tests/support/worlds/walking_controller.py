"""``python -m tests.support.worlds.walking_controller --walk=FILE``: a controller that records the code for one pod.

It writes each function of the project that is entered for the pod once, in order, with its file. It starts with the
line of the watch that first shows the pod. It ends when the Binding is answered and the line that shows the pod bound
has been processed. Work that runs by time alone does not count. The other flags are the controller's.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from controller.__main__ import main

FLAG: Final = "--walk="
_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = tuple(f"{_ROOT / one}{os.sep}" for one in ("controller", "core", "kube", "runtime"))
# The tasks that work on pods: the watch, the scheduler, and a Binding.
_WATCH: Final = "reflect pods"
_TASKS: Final = (_WATCH, "own", "bind ")
_BEGINS: Final = "kube/reflector.py: Reflector._take"
_CHANGED: Final = "controller/deciding/scheduler.py: Scheduler.pod_changed"
_COUNTED: Final = "controller/deciding/scheduler.py: Scheduler._bound_pod"
_ANSWERED: Final = "controller/deciding/bind.py: Outcomes.bound"
# The calls for the scheduler's task are run here; those of others are not counted.
_INBOX: Final = "controller/actions.py: Inbox.work"
# These run by time, whether or not there is a pod.
_BY_TIME: Final = frozenset(
    {"controller/deciding/cycle.py: Cycle._run_chores", "controller/deciding/cycle.py: Cycle.next_due_s"}
)


class Walk:
    """Notes the functions that are entered.

    entered: each once, as ``file: function``, in the order in which they were entered first.
    """

    def __init__(self, to: Path) -> None:
        self.entered: dict[str, None] = {}
        self._to = to
        self._names: dict[CodeType, str] = {}
        self._left = {_COUNTED, _ANSWERED}
        self._aside: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take a call or a return, as `sys.setprofile` reports it."""
        if event not in ("call", "return"):
            return
        name = self._name(frame.f_code)
        if not name or not (self.entered or _shows_new_pod(frame, name)) or not self._works_on_pods():
            return
        if self._aside is not None:
            if event == "return" and frame is self._aside:
                self._aside = None
        elif event == "return":
            self._end(name)
        elif name in _BY_TIME or not self._is_for_pod(frame, name):
            self._aside = frame
        else:
            self.entered[name] = None

    def _is_for_pod(self, frame: FrameType, name: str) -> bool:
        """Whether the call that begins with *frame* is for the pod, if it comes from the inbox."""
        if frame.f_back is None or self._name(frame.f_back.f_code) != _INBOX:
            return True
        return name == _ANSWERED or (name == _CHANGED and _COUNTED in self._left)

    def _end(self, name: str) -> None:
        self._left.discard(name)
        if not self._left:
            sys.setprofile(None)
            self._to.write_text("\n".join(self.entered), encoding="utf-8")

    def _name(self, code: CodeType) -> str:
        found = self._names.get(code)
        if found is None:
            is_ours = code.co_filename.startswith(_PACKAGES)
            found = f"{Path(code.co_filename).relative_to(_ROOT)}: {code.co_qualname}" if is_ours else ""
            self._names[code] = found
        return found

    def _works_on_pods(self) -> bool:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return False
        if task is None or not task.get_name().startswith(_TASKS):
            return False
        # What the watch shows of the pod later is not counted.
        return _COUNTED in self._left or not task.get_name().startswith(_WATCH)


def _shows_new_pod(frame: FrameType, name: str) -> bool:
    return name == _BEGINS and b'"ADDED"' in frame.f_locals["line"]


def run(argv: Sequence[str]) -> int:
    """Run the controller."""
    (to,) = [one.removeprefix(FLAG) for one in argv if one.startswith(FLAG)]
    sys.setprofile(Walk(Path(to)))
    return main([one for one in argv if not one.startswith(FLAG)], os.environ)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
