"""The dialect that docs/maintainers/adding-a-dialect.md has as an example, as it stands there."""

import re
from pathlib import Path
from typing import Any, Final

from core.port.spec import AnySpec

PAGE: Final = Path(__file__).parents[3] / "docs/maintainers/adding-a-dialect.md"


def example() -> dict[str, Any]:
    """The names that its code defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, str(PAGE), "exec"), found)
    return found


DIALECT: Final[AnySpec] = example()["DIALECT"]
