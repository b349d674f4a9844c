"""Which core runs here, compiled or interpreted, and how another process gets the same one."""

import os
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Final, Literal

import core
from core import units

ROOT: Final = Path(__file__).parents[3]


def which_core() -> Literal["compiled", "interpreted"]:
    """What runs here."""
    return "compiled" if isinstance(units.__loader__, ExtensionFileLoader) else "interpreted"


def python_path() -> str:
    """PYTHONPATH of a process that is to run this checkout, with the core that runs here."""
    used = Path(core.__path__[0]).parent
    return os.pathsep.join(dict.fromkeys((str(used), str(ROOT))))
