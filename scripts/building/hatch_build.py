"""Puts the compiled `core` into a wheel, where this machine can compile it; hatchling calls it.

If core cannot be compiled, the wheel has it interpreted, and a warning says so (`pip -v` shows it).
CARDSHARE_CORE=interpreted compiles nothing; CARDSHARE_CORE=compiled ends the build if core cannot be compiled.
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
            SystemExit: CARDSHARE_CORE=compiled, and they cannot be compiled.
        """
        asked = os.environ.get("CARDSHARE_CORE", "")
        # An editable install runs the files of the checkout as they are.
        if version == "editable" or asked == "interpreted":
            return
        program = Path(self.root, "scripts/building/compile_core.py")
        done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            if asked == "compiled":
                raise SystemExit(done.returncode)
            self.app.display_warning("cardshare: core could not be compiled, see above; the wheel has it interpreted")
            return
        tree = Path(done.stdout.strip())
        for path in tree.rglob("*"):
            if path.suffix in {".so", ".pyd"}:
                build_data["force_include"][str(path)] = path.relative_to(tree).as_posix()
        build_data |= {"pure_python": False, "infer_tag": True}
