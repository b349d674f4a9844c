"""What the policies of deploy/ do on an API server from which they were removed, and which runs on."""

import asyncio

from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.policies import ASSIGNMENT, PLURALS, documents, pod
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import connect, eventually

# The API server looks once a second at what is bound.
SEEN_S = 3.0


async def test_policies_that_were_removed_and_come_back_deny_nothing_until_the_api_server_starts_again(
    tmp_path_factory,
):
    """As kubernetes/kubernetes#130887 has it; where it is cured, docs/operators/install.md need not warn any more."""
    async with (
        RealApi(binaries_or_skip(), logs=logs_folder("again", tmp_path_factory)) as api,
        connect(api.url, api.ca_file, api.admin_token) as admin,
    ):
        await admin.made("/api/v1/namespaces", {"metadata": {"name": "cardshare-system"}})

        def hostile():
            return admin.post("/api/v1/namespaces/default/pods?dryRun=All", pod("p", {ASSIGNMENT: "x"}))

        for document in documents():
            await admin.made(PLURALS[document["kind"]], document)
        await eventually(hostile, lambda answer: answer.status == 403)
        for document in documents():
            await admin.delete(f"{PLURALS[document['kind']]}/{document['metadata']['name']}")
        await eventually(hostile, lambda answer: answer.status == 201)
        await asyncio.sleep(SEEN_S)
        for document in documents():
            await admin.made(PLURALS[document["kind"]], document)
        await asyncio.sleep(SEEN_S)
        assert (await hostile()).status == 201
