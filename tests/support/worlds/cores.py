"""Which core runs here, compiled or interpreted."""

from importlib.machinery import ExtensionFileLoader
from typing import Literal

from core import units


def which_core() -> Literal["compiled", "interpreted"]:
    """What runs here."""
    return "compiled" if isinstance(units.__loader__, ExtensionFileLoader) else "interpreted"
