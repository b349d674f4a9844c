from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import NodeName
from core.settings import Settings, Tables
from core.view.explained import explained
from tests.support.worlds.world import node, pod


def test_a_pod_whose_node_is_gone_is_told_so():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    bound = pod("p", node_name="n1", annotations={"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"})
    ledger.set_node(node("n1"))
    ledger.count(bound)
    assert explained(bound, ledger=ledger).text == "default/p is on n1 (Pending) and holds n1-0 (1000 MiB)"
    ledger.remove_node(NodeName("n1"))
    assert explained(bound, ledger=ledger).text == (
        "default/p is on n1 (Pending), a node that does not exist; delete the pod, or restore the node; "
        "it held n1-0 (1000 MiB)"
    )
