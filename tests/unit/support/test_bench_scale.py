"""The page of scale: one row for each scenario, each explained."""

from tests.bench.scale import PAGE, SCENARIOS, Cost, Figures, paged

COST = Cost(seconds=1.25, cpu_s=2.0, server_cpu_s=3.0, rss_mib=400.4)


def test_rows_stand_in_their_order_and_others_stay():
    text = PAGE.read_text(encoding="utf-8")
    page = paged(text, {name: Figures(placed=COST, bare=COST) for name in reversed(tuple(SCENARIOS))})
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(SCENARIOS)
    assert "| `gang` | 5 s | 1.2 | 2.0 | 400 | 3.0 | 1.2 | 2.0 | 3.0 |" in rows
    later = paged(page, {"gang": Figures(placed=Cost(seconds=9.0, cpu_s=9.0, server_cpu_s=9.0))})
    assert "| `gang` | 5 s | 9.0 | 9.0 | 0 | 9.0 |  |  |  |" in later
    assert len(later.splitlines()) == len(page.splitlines())


def test_the_page_says_what_each_scenario_is():
    text = PAGE.read_text(encoding="utf-8")
    for name in SCENARIOS:
        assert f"- `{name}`: " in text
