"""The page in the cluster, in a real browser: it asks for a token, and shows what that token may see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.browser.test_web_page import ENGLISH, LIVE_MS, Screen
from tests.integration.test_web_in_cluster import (
    EVENTS,
    LARGE,
    OTHER,
    PODS,
    QUOTAS,
    SEEN,
    SHARE,
    Served,
    add_other,
    give,
    served,
)
from tests.support.browser.chromium import opened
from tests.support.worlds.cards_cluster import ASSIGNED, NODES, add_pod
from tests.support.worlds.rig_double import double_rig

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Tenants(NamedTuple):
    """A cluster of two tenants who share a card, and its page."""

    rig: Any
    page: Served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tenants(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tenants]:
    """For tests that change no pods."""
    del chromium  # without a browser, no cluster is started
    async with double_rig(tmp_path_factory.mktemp("tenants"), NODES) as rig:
        await add_other(rig)
        await add_pod(rig, "a", SHARE, ASSIGNED, "t4-a")
        await add_pod(rig, "waits", LARGE, {}, "")
        async with served(rig, within_s=None) as page:
            yield Tenants(rig, page)


async def log_in(screen: Screen, token: str) -> None:
    dialog = screen.page.get_by_role("dialog", name="Log in")
    await dialog.get_by_label("Token").fill(token)
    await dialog.get_by_role("button", name="Log in").click()


async def test_who_logs_in_sees_what_the_token_may_see_and_the_token_stays_in_the_page(chromium, tenants):
    rig, page = tenants
    async with opened(chromium, locale=ENGLISH, ignore_https_errors=True) as browser:
        tenant = await give(rig, "tenant", [PODS, EVENTS], everywhere=SEEN)
        nobody = await give(rig, "nobody")
        screen = Screen(await browser.new_page())
        dialog = screen.page.get_by_role("dialog", name="Log in")
        await screen.page.goto(page.url)
        await dialog.get_by_text("log in with a token that the API server accepts").wait_for(timeout=LIVE_MS)
        await log_in(screen, "stale")
        await dialog.get_by_text("log in with a token that the API server accepts").wait_for(timeout=LIVE_MS)
        await screen.page.keyboard.press("Escape")
        assert await dialog.is_visible()
        await log_in(screen, nobody)
        await dialog.get_by_text("may not list pods in namespace default").wait_for(timeout=LIVE_MS)
        await log_in(screen, tenant)
        await screen.card("GPU-t4-a-1").wait_for(timeout=LIVE_MS)
        assert await dialog.count() == 0
        await screen.card("GPU-t4-a-1").click()
        shown = await screen.texts("dialog tbody tr")
        assert shown[:2] == ["default/a 3000 MiB, 50 % cores", "pods of other namespaces: 1"]
        await screen.page.get_by_role("dialog").get_by_role("button", name="default/a").click()
        await screen.page.get_by_role("dialog").get_by_text("default/a is on t4-a").wait_for(timeout=LIVE_MS)
        kept = "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])"
        assert tenant not in await screen.page.evaluate(kept)
        assert "the history cannot be read now" in await screen.texts("day-chart p")
        assert (await screen.texts("my-pods tbody tr"))[-1].startswith("a Running t4-a GPU-t4-a-1")
        assert OTHER not in await screen.page.content()
        assert not [one for one in screen.complaints if "401" not in one and "403" not in one]
        await screen.page.reload()
        await dialog.get_by_label("Token").wait_for(timeout=LIVE_MS)


async def test_behind_a_proxy_that_adds_the_token_nobody_is_asked(chromium, tenants):
    rig, page = tenants
    everywhere = await give(rig, "everywhere", everywhere=[*SEEN, PODS, QUOTAS])
    passed = {"Authorization": f"Bearer {everywhere}"}
    async with opened(chromium, locale=ENGLISH, ignore_https_errors=True, extra_http_headers=passed) as browser:
        screen = Screen(await browser.new_page())
        await screen.page.goto(page.url)
        await screen.card("GPU-t4-a-1").wait_for(timeout=LIVE_MS)
        assert await screen.texts("#state") == ["Live"]
        assert (await screen.texts("waiting-list tbody tr"))[-1].startswith("default/waits")
        assert screen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_the_login(chromium, tenants, scheme):
    from axe_playwright_python.async_playwright import Axe

    size = {"width": 360, "height": 740}
    options = {"color_scheme": scheme, "viewport": size, "bypass_csp": True, "ignore_https_errors": True}
    async with opened(chromium, locale=ENGLISH, **options) as browser:
        screen = Screen(await browser.new_page())
        await screen.page.goto(tenants.page.url)
        await screen.page.get_by_label("Token").wait_for(timeout=LIVE_MS)
        found = await Axe().run(screen.page)
        assert found.violations_count == 0, found.generate_report()
