"""Puts the compiled `core` into a wheel, where this machine can compile it; hatchling calls it.

CARDSHARE_CORE=interpreted leaves it out; CARDSHARE_CORE=compiled ends the build where it cannot be made.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCore(BuildHookInterface[Any]):
    """The build hook."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled modules, and say for which Python and machine they are.

        Raises:
            SystemExit: they cannot be compiled, for another reason than that there is nothing to compile with.
        """
        asked = os.environ.get("CARDSHARE_CORE", "")
        # An editable install runs the files of the checkout as they are.
        if version == "editable" or asked == "interpreted":
            return
        program = Path(self.root, "scripts/building/compile_core.py")
        done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 3 and asked != "compiled":
            self.app.display_warning("the wheel has core interpreted: there is nothing to compile it with")
            return
        if done.returncode:
            raise SystemExit(done.returncode)
        tree = Path(done.stdout.strip())
        for path in tree.rglob("*"):
            if path.suffix in {".so", ".pyd"}:
                build_data["force_include"][str(path)] = path.relative_to(tree).as_posix()
        build_data |= {"pure_python": False, "infer_tag": True}
