"""What docs/operators shows of kubectl is what kubectl says."""

import re
import shutil

import pytest

from tests.support.pages.rules import MESSAGES, NODES, SILENT, messages, read_rules
from tests.support.pages.rules_run import play

KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH: the outputs cannot be taken anew")
async def test_the_outputs_are_those_of_a_run(rig):
    rules = read_rules()
    async with rig(nodes=NODES) as world:
        said = await play(rules, world, str(KUBECTL))
    assert MESSAGES.read_text(encoding="utf-8") == messages(rules, said), "run scripts/rules"
    for rule in rules:
        texts = [one.text for one in said.get(rule.name, ())]
        if texts and rule.code not in SILENT:
            assert re.search(rf"\b{rule.code}\b", texts[-1]), rule.name
