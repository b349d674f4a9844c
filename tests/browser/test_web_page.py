"""``kubectl cards web`` in a real browser: what a person sees, does with keys, and is not shown."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from core.units import time_text
from kube.kinds import VOLCANO_VERSION
from tests.integration.test_history import store
from tests.integration.test_web import VGPU, Page, served
from tests.support.browser.chromium import opened
from tests.support.worlds.cards_cluster import ASSIGNED, NODES, add_pod, cards
from tests.support.worlds.rig_double import double_rig
from tests.support.worlds.volcano import create, install

pytestmark = pytest.mark.asyncio(loop_scope="session")
ENGLISH, CHINESE = "en-US", "zh-CN"
# What the feed gathers for 0.3 s, and what a loaded machine adds.
LIVE_MS = 120_000


class Screen:
    """A page in the browser, with all that it complained of."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    async def texts(self, selector: str) -> list[str]:
        return [" ".join(text.split()) for text in await self.page.locator(selector).all_inner_texts()]

    def card(self, card: str) -> Any:
        return self.page.get_by_role("gridcell").get_by_role("button", name=re.compile(re.escape(card)))


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster and its page. minute: the last one of the stored history (Unix)."""

    rig: Any
    page: Page
    minute: int

    @asynccontextmanager
    async def seen(self, chromium: Any, **options: Any) -> AsyncIterator[Screen]:
        """The page in a browser, with *options* as `opened` has them."""
        async with opened(chromium, **{"locale": ENGLISH, **options}) as browser:
            screen = Screen(await browser.new_page())
            await screen.page.goto(f"{self.page.root}#key={self.page.key}")
            await screen.card("GPU-t4-a-1").wait_for()
            yield screen


@asynccontextmanager
async def cluster(folder: Any, *, volcano: bool = False) -> AsyncIterator[Stage]:
    """A cluster with a pod that holds a card and one that waits, and its page."""
    async with double_rig(folder, NODES) as rig:
        if volcano:
            await install(rig.client)
        await add_pod(rig, "a", VGPU, ASSIGNED, "t4-a")
        await add_pod(rig, "waits", {"volcano.sh/gpu-memory": "99999"}, {}, "")
        # Two minutes, and one between them that nobody observed.
        minute = int(time.time()) // 60 - 1
        await store(rig, at=minute, also=[minute - 2])
        kubeconfig = await asyncio.to_thread(rig.write_admins_kubeconfig)
        async with served(str(kubeconfig), within_s=None) as page:
            yield Stage(rig, page, minute)


@asynccontextmanager
async def world(
    chromium: Any, tmp_path: Any, *, volcano: bool = False, **options: Any
) -> AsyncIterator[tuple[Any, Screen]]:
    """A cluster of its own for a test that changes it, and its page in a browser."""
    async with cluster(tmp_path, volcano=volcano) as stage, stage.seen(chromium, **options) as screen:
        yield stage.rig, screen


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """For tests that change nothing in the cluster."""
    del chromium  # without a browser, no cluster is started
    async with cluster(tmp_path_factory.mktemp("page"), volcano=True) as found:
        yield found


async def test_the_first_screen_shows_who_waits_every_card_and_what_is_free(chromium, stage):
    async with stage.seen(chromium) as screen:
        assert await screen.texts("#state") == ["Live"]
        assert (await screen.texts("waiting-list tbody tr"))[-1].startswith("default/waits")
        assert await screen.texts("node-grid .name") == ["broken", "plain", "share-a", "t4-a"]
        assert await screen.card("GPU-t4-a-1").get_attribute("aria-label") == (
            "t4-a GPU-t4-a-1: Tesla T4, 3000 / 15360 MiB"
        )
        assert "Tesla T4 vgpu 2 1 0 3000 / 30720 MiB 27720 MiB 0 MiB 15360 MiB 45 %" in await screen.texts(
            "kind-list tbody tr"
        )
        assert "#key" not in screen.page.url
        assert screen.complaints == []


async def test_what_changes_in_the_cluster_changes_on_the_page_by_itself(chromium, tmp_path):
    async with world(chromium, tmp_path) as (rig, screen):
        await rig.client.delete("/api/v1/namespaces/default/pods/a")
        idle = screen.page.get_by_role("button", name="GPU-t4-a-1: Tesla T4, 0 / 15360 MiB")
        await idle.wait_for(timeout=LIVE_MS)
        await rig.client.delete("/api/v1/namespaces/default/pods/waits")
        await screen.page.get_by_text("No pod waits.").wait_for(timeout=LIVE_MS)


async def test_a_card_of_unknown_use_is_hatched_and_says_so(chromium, tmp_path):
    async with world(chromium, tmp_path) as (rig, screen):
        broken = {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": "nonsense"}}}
        await rig.client.patch("/api/v1/nodes/t4-a", broken)
        cell = screen.page.get_by_role("button", name=re.compile("GPU-t4-a-1: unknown"))
        await cell.wait_for(timeout=LIVE_MS)
        assert "away" in (await cell.get_attribute("class")).split()


async def test_a_card_that_no_pod_can_get_is_marked(chromium, tmp_path):
    async with world(chromium, tmp_path) as (rig, screen):
        await rig.client.patch("/api/v1/nodes/t4-a", {"spec": {"unschedulable": True}})
        cell = screen.page.get_by_role("button", name=re.compile("GPU-t4-a-1: .*stranded"))
        await cell.wait_for(timeout=LIVE_MS)
        assert "stranded" in (await cell.get_attribute("class")).split()
        (row,) = [one for one in await screen.texts("kind-list tbody tr") if "Tesla T4" in one]
        assert row.endswith("27720 MiB 27720 MiB 0 MiB 100 %")


async def behind(page: Any, *, hidden: bool) -> None:
    """Put a tab into the background, or back."""
    await page.evaluate("is => Object.defineProperty(document, 'hidden', {value: is, configurable: true})", hidden)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_more_tabs_than_a_browser_has_connections_are_live_once_they_are_shown(chromium, tmp_path):
    async with world(chromium, tmp_path) as (rig, screen):
        address = await screen.page.evaluate("location.origin + '/#key=' + sessionStorage.getItem('key')")
        await behind(screen.page, hidden=True)
        for _ in range(6):
            tab = Screen(await screen.page.context.new_page())
            await tab.page.goto(address)
            await tab.card("GPU-t4-a-1").wait_for(timeout=LIVE_MS)
            await behind(tab.page, hidden=True)
        await rig.client.delete("/api/v1/namespaces/default/pods/a")
        await behind(screen.page, hidden=False)
        await screen.page.get_by_role("button", name="GPU-t4-a-1: Tesla T4, 0 / 15360 MiB").wait_for(timeout=LIVE_MS)
        assert await screen.texts("#state") == ["Live"]
        assert screen.complaints == []


async def test_filters_are_in_the_address_and_a_reload_keeps_them(chromium, stage):
    async with stage.seen(chromium) as screen:
        await screen.page.get_by_role("searchbox", name="Type").fill("t4")
        assert await screen.texts("node-grid .name") == ["t4-a"]
        assert screen.page.url.endswith("/?type=t4")
        await screen.page.reload()
        await screen.card("GPU-t4-a-1").wait_for()
        assert await screen.texts("node-grid .name") == ["t4-a"]
        await screen.page.get_by_role("searchbox", name="Namespace").fill("nobody")
        await screen.page.get_by_text("No pod waits.").wait_for()
        assert await screen.texts("node-grid .name") == []


async def test_keys_move_between_cards_and_open_and_close_one(chromium, stage):
    async with stage.seen(chromium) as screen:
        page = screen.page
        await page.locator(".view").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
            await page.keyboard.press(key)
        focused = await page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert focused.startswith("t4-a GPU-t4-a-1")
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        await dialog.wait_for()
        assert "default/a 3000 MiB, 50 % cores" in await screen.texts("dialog tbody tr")
        await dialog.get_by_role("button", name="default/a").click()
        await dialog.get_by_text("default/a is on t4-a").wait_for()
        await page.keyboard.press("Escape")
        assert not await dialog.is_visible()


async def test_a_pod_that_waits_shows_why(chromium, stage):
    async with stage.seen(chromium) as screen:
        await screen.page.locator("waiting-list").get_by_role("button", name="default/waits").click()
        await screen.page.get_by_role("dialog").get_by_text("default/waits waits for the scheduler").wait_for()


async def test_the_last_day_is_read_by_keys_and_by_pointing_and_follows_the_filters(chromium, stage):
    async with stage.seen(chromium) as screen:
        chart, told = screen.page.locator("day-chart").get_by_role("slider"), screen.page.locator(".told")
        await chart.wait_for(timeout=LIVE_MS)

        async def says(text: str) -> None:
            assert await told.inner_text() == await chart.get_attribute("aria-valuetext") == text

        last, before = (time_text(at * 60)[:16].replace("T", " ") for at in (stage.minute, stage.minute - 1))
        known = "1 of 1 cards promised to pods, 0 free, 0 stranded. Pods waiting: 2"
        await says(f"{last} UTC: {known}")
        await chart.focus()
        await screen.page.keyboard.press("ArrowLeft")
        await says(f"{before} UTC: cards unknown. Pods waiting: unknown")
        await screen.page.keyboard.press("End")
        await says(f"{last} UTC: {known}")
        box = await chart.bounding_box()
        await screen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
        await says(f"{before} UTC: cards unknown. Pods waiting: unknown")
        await screen.page.mouse.move(0, 0)
        for queue in ("team", "other"):
            await screen.page.get_by_role("searchbox", name="Queue").fill(queue)
            await says(f"{last} UTC: {known if queue == 'team' else known.replace('2', '0')}")
        await screen.page.get_by_role("searchbox", name="Type").fill("a100")
        await says(f"{last} UTC: 0 of 0 cards promised to pods, 0 free, 0 stranded. Pods waiting: 0")
        assert screen.complaints == []


async def test_a_pod_tells_what_why_says_and_a_card_what_it_was(chromium, tmp_path, capsys):
    async with world(chromium, tmp_path) as (rig, screen):
        dialog = screen.page.get_by_role("dialog")
        await screen.card("GPU-t4-a-1").click()
        await dialog.get_by_role("button", name="default/a").click()
        await dialog.get_by_role("heading", name="History").wait_for(timeout=LIVE_MS)
        capsys.readouterr()
        kubeconfig = await asyncio.to_thread(rig.write_admins_kubeconfig)
        await cards(str(kubeconfig), "why", "a", "-o", "json")
        (life,) = json.loads(capsys.readouterr().out)["lives"]
        shown = (await screen.texts("dialog tbody tr"))[-len(life["events"]) :]
        words = {"asked": "created", "bound": "bound"}
        moments = [one["last"].replace("T", " ").replace("Z", " UTC") or "unknown" for one in life["events"]]
        rows = [(at, words[one["what"]], one["text"]) for at, one in zip(moments, life["events"], strict=True)]
        assert shown == [" ".join(filter(None, row)) for row in rows]
        await screen.page.keyboard.press("Escape")

        await rig.client.delete("/api/v1/namespaces/default/pods/a")
        await screen.page.get_by_role("button", name="GPU-t4-a-1: Tesla T4, 0 / 15360 MiB").wait_for(timeout=LIVE_MS)
        await screen.card("GPU-t4-a-1").click()
        await dialog.get_by_role("heading", name="History").wait_for(timeout=LIVE_MS)
        states = [text.partition("UTC ")[2] for text in await screen.texts("dialog tbody tr")]
        assert states == ["healthy 3000 / 15360 MiB default/a (3000 MiB, 50 % cores)", "healthy 0 / 15360 MiB nothing"]
        assert screen.complaints == []


async def test_queues_are_bars_that_follow_the_cluster(chromium, tmp_path):
    async with world(chromium, tmp_path, volcano=True) as (rig, screen):
        spec = {"weight": 1, "capability": {"cpu": "4"}, "guarantee": {"resource": {"cpu": "1"}}}
        queue = {"apiVersion": VOLCANO_VERSION, "kind": "Queue", "metadata": {"name": "team"}, "spec": spec}
        await create(rig.client, queue)
        await screen.page.get_by_role("cell", name="team").wait_for(timeout=LIVE_MS)
        (row,) = [one for one in await screen.texts("queue-list tbody tr") if one.startswith("team ")]
        assert re.fullmatch(r"team cpu 0 1000 \S 4000 0", row)
        await screen.page.get_by_role("searchbox", name="Queue").fill("other")
        assert not await screen.page.locator("queue-list").is_visible()


MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: i
    resources:
      limits: {volcano.sh/vgpu-memory: "4000"}
"""


async def test_a_manifest_is_answered_with_how_many_fit_or_with_its_faulty_line(chromium, stage, tmp_path):
    from playwright.async_api import expect

    async with stage.seen(chromium) as screen:
        form = screen.page.locator("fit-form")
        await form.get_by_text("Would this fit?").click()
        await form.get_by_label("Memory on each card").fill("10000")
        await form.get_by_role("button", name="Count").click()
        await form.get_by_text("vgpu: The largest pod gets 15360 MiB on each card.").wait_for()
        assert "vgpu Tesla T4 2 1" in await screen.texts("fit-form tbody tr")
        await form.get_by_label("Memory on each card").fill("")
        await form.get_by_role("textbox", name="Or a manifest").fill(MANIFEST)
        await form.get_by_role("button", name="Count").click()
        await form.get_by_text("vgpu: 6 such pods fit now in namespace default.").wait_for()
        assert "vgpu Tesla T4 6 1" in await screen.texts("fit-form tbody tr")
        bad = tmp_path / "bad.yaml"
        bad.write_text("---\n" + MANIFEST.replace("4000", "lots"))
        await form.get_by_label("Or a file").set_input_files(bad)
        await expect(form.get_by_role("textbox", name="Or a manifest")).to_have_value(re.compile("lots"))
        await form.get_by_role("button", name="Count").click()
        await form.get_by_text(re.compile("line 2: .*found 'lots'")).wait_for()


async def test_own_pods_have_a_first_screen_with_what_is_left_and_what_helps(chromium, tmp_path):
    async with world(chromium, tmp_path, permissions=["clipboard-read", "clipboard-write"]) as (rig, screen):
        refused = (
            "CS501 0/4 nodes are available: 1 too little free memory on every card. Ask for at most 100 MiB of memory."
        )
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": refused}
        await rig.client.patch("/api/v1/namespaces/default/pods/waits/status", {"status": {"conditions": [condition]}})
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.volcano.sh/vgpu-memory": "12000"}}}
        await rig.client.create("/api/v1/namespaces/default/resourcequotas", quota)
        copy = screen.page.locator("my-pods").get_by_role("button", name="Copy")
        await copy.wait_for(timeout=LIVE_MS)
        await screen.page.get_by_role("cell", name="Running").wait_for(timeout=LIVE_MS)
        waits, holds, left = await screen.texts("my-pods tbody tr")
        assert waits == "waits waits CS501 Unschedulable Ask for at most 100 MiB of memory Copy"
        assert holds == "a Running t4-a GPU-t4-a-1 (3000 MiB, 50 % cores)"
        assert left == "ResourceQuota q limits.volcano.sh/vgpu-memory 3000 12000 9000"
        await copy.click()
        assert await screen.page.evaluate("navigator.clipboard.readText()") == "Ask for at most 100 MiB of memory"


async def test_findings_are_shown_with_their_remedy_and_what_is_not_looked_at(chromium, stage):
    async with stage.seen(chromium) as screen:
        findings = screen.page.locator("finding-list")
        await findings.get_by_role("button", name="node broken").wait_for(timeout=LIVE_MS)
        (row,) = [one for one in await screen.texts("finding-list tbody tr") if "node broken" in one]
        assert row.startswith("problem CS612 node broken allocatable volcano.sh/vgpu-number: ")
        assert "kubectl cards doctor" in (await screen.texts("finding-list p"))[-1]
        await findings.get_by_role("button", name="node broken").click()
        await screen.page.get_by_role("dialog").get_by_text(re.compile("CS612 problem: ")).wait_for()


async def test_it_speaks_chinese_and_remembers_the_choice(chromium, stage):
    async with stage.seen(chromium, locale=CHINESE) as screen:
        assert "等待中的 Pod" in await screen.texts("h2")
        await screen.page.get_by_role("button", name="语言").click()
        assert "Pods that wait" in await screen.texts("h2")
        await screen.page.reload()
        await screen.card("GPU-t4-a-1").wait_for()
        assert "Pods that wait" in await screen.texts("h2")


async def test_axe_finds_nothing_in_either_language_or_theme_and_a_narrow_screen_scrolls_down_only(chromium, stage):
    from axe_playwright_python.async_playwright import Axe

    size = {"width": 360, "height": 740}
    # axe is put into the page as a script, which the page's own policy would bar.
    async with stage.seen(chromium, viewport=size, bypass_csp=True) as screen:
        page, dialog = screen.page, screen.page.get_by_role("dialog")
        await page.locator("finding-list td").first.wait_for(timeout=LIVE_MS)
        await page.locator("fit-form summary").click()
        for _ in range(2):
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                await dialog.wait_for(state="hidden")
                assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
                found = await Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
                await page.locator("waiting-list").get_by_role("button", name="default/waits").click()
                await dialog.locator("dl").wait_for()
                found = await Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
                await page.keyboard.press("Escape")
                await screen.card("GPU-t4-a-1").click()
                await dialog.locator("h3").wait_for()
                found = await Axe().run(page)
                assert found.violations_count == 0, found.generate_report()
                await page.keyboard.press("Escape")
            await page.locator("#language").click()


async def test_a_screen_of_4k_is_filled_with_larger_text(chromium, stage):
    async with stage.seen(chromium, viewport={"width": 3840, "height": 2160}) as screen:
        assert await screen.page.evaluate("getComputedStyle(document.body).fontSize") == "18px"
        assert await screen.page.evaluate("document.querySelector('node-grid .view').clientWidth") > 3700


async def test_a_script_in_what_the_cluster_says_stays_text(chromium, tmp_path):
    async with world(chromium, tmp_path) as (rig, screen):
        marked = "<img src=x onerror=alert(1)>"
        await rig.client.patch("/api/v1/nodes/plain", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
        await rig.client.patch(
            "/api/v1/nodes/broken", {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": marked}}}
        )
        await screen.page.get_by_text("tainted").wait_for(timeout=LIVE_MS)
        await screen.page.locator("node-grid").get_by_role("button", name="broken").click()
        await screen.page.get_by_role("dialog").get_by_role("heading", name="broken").wait_for()
        assert await screen.page.locator("img").count() == 0
        assert screen.complaints == []
