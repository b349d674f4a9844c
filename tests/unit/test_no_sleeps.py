"""Tests do not sleep: they wait for a condition, or run in virtual time.

To show that something does not happen, a test waits for a later event. Allowed are a turn of the loop
(`asyncio.sleep(0)`), a sleep inside a loop that ends when a condition holds, and tests in virtual time (looptime).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Programs that run for as long as they are told to.
PROGRAMS = {"bench", "chaos", "fuzz"}
PLAYED = "its callers run in virtual time"
MAY_SLEEP = {
    "e2e/test_certificates.py": "plays an API server that reads the bundle late",
    "e2e/test_helm.py": "plays a kubelet that runs the chart's hooks",
    "support/node/device_plugin.py": "plays a plugin that restarts after a failure",
    "support/node/holder.py": "the first process of a node, which never ends by itself",
    "support/servers/balancer.py": "plays a load balancer that probes",
    "support/servers/deployed.py": "plays a router that learns late which process has ended",
    "support/servers/fake_calls.py": PLAYED,
    "support/servers/fake_leases.py": PLAYED,
    "support/servers/fault_proxy.py": "plays an API server that is late",
    "support/servers/mounted.py": "plays a kubelet that mounts late",
    "support/worlds/failing_controller.py": "plays a process that hangs",
    "support/worlds/telling.py": PLAYED,
}
SLEEPS = {"asyncio.sleep", "time.sleep", "sleep"}
OF_TIME = re.compile(r"end_s\b|\b(?:monotonic|now|now_s|perf_counter|time)\(")


def sleeps(source: str) -> Iterator[int]:
    """The lines of *source* that let time pass."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.Assign) and "mark.looptime" in ast.unparse(node.value) for node in tree.body):
        return
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS)
    for call in calls:
        if [ast.unparse(one) for one in call.args] != ["0"] and not any(map(_lets_sleep, _around(call, above))):
            yield call.lineno


def _around(node: ast.AST, above: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in above:
        node = above[node]
        yield node


def _lets_sleep(node: ast.AST) -> bool:
    """Whether *node* is a loop until a condition holds that is not a time, or a test in virtual time."""
    if isinstance(node, ast.While):
        test = ast.unparse(node.test)
        ends = test != "True" or any(isinstance(one, ast.Break | ast.Return | ast.Raise) for one in ast.walk(node))
        return ends and not OF_TIME.search(test)
    return any("mark.looptime" in ast.unparse(mark) for mark in getattr(node, "decorator_list", ()))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test():\n    time.sleep(1)", [2]),
        ("async def test():\n    await asyncio.sleep(0.1)", [2]),
        ("async def test():\n    for _ in range(40):\n        await asyncio.sleep(0.1)", [3]),
        ("def test():\n    while now() < end_s:\n        time.sleep(0.1)", [3]),
        ("def test():\n    while time.monotonic() < end:\n        time.sleep(0.1)", [3]),
        ("async def test():\n    while not await it():\n        await asyncio.sleep(0.1)", []),
        ("async def test():\n    while True:\n        await asyncio.sleep(0.1)", [3]),
        (
            "async def test():\n    while True:\n        if it():\n            break\n        await asyncio.sleep(0.1)",
            [],
        ),
        ("async def test():\n    await asyncio.sleep(delay=1)", [2]),
        ("async def test():\n    await asyncio.sleep(0)", []),
        ("pytestmark = pytest.mark.looptime\nasync def test():\n    await asyncio.sleep(60)", []),
        ("@pytest.mark.looptime\nasync def test():\n    await asyncio.sleep(60)", []),
    ],
)
def test_a_sleep_is_found(source: str, found: list[int]):
    assert list(sleeps(source)) == found


def test_no_test_sleeps():
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        source = "" if name.partition("/")[0] in PROGRAMS else path.read_text(encoding="utf-8")
        if "sleep(" in source and (lines := list(sleeps(source))):
            found[name] = lines
    assert {name: lines for name, lines in found.items() if name not in MAY_SLEEP} == {}
    assert set(MAY_SLEEP) - set(found) == set(), "remove these from MAY_SLEEP, because they do not sleep"
