"""``scripts/pictures --page``: the demo's cluster as ``kubectl cards web`` shows it, as a PNG."""

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.browser.chromium import opened

ROOT: Final = Path(__file__).resolve().parents[3]
PICTURE: Final = ROOT / "docs" / "pictures" / "page.png"
_SIZE: Final = {"width": 1180, "height": 1800}
_WITHIN_S: Final = 420.0
# The controller stores the first whole minute at the end of the next one.
_HISTORY_MS: Final = 240_000


async def _take(address: str) -> None:
    async with opened(viewport=_SIZE, locale="en-US", color_scheme="light") as browser:
        page = await browser.new_page()
        await page.goto(address)
        await page.locator("node-grid .card").first.wait_for()
        await page.locator("day-chart svg").first.wait_for(timeout=_HISTORY_MS)
        await page.screenshot(path=PICTURE)


async def main() -> int:
    """Play the demo, and look."""
    with tempfile.TemporaryDirectory() as logs:
        demo = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox.demo", "--keep", "--seconds", f"{_WITHIN_S:g}", "--logs", logs),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert demo.stdout is not None
        try:
            async for line in demo.stdout:
                if found := re.search(r"http://\S+#key=\S+", line.decode()):
                    await _take(found[0])
                    sys.stdout.write(f"{PICTURE}\n")
                    return 0
            sys.stderr.write("scripts/pictures: the demo ended without a page\n")
            return 1
        finally:
            if demo.returncode is None:
                demo.terminate()
            await demo.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
