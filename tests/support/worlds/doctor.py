"""A cluster as `kubectl cards doctor` reads it, in which all is well but what a test says."""

from dataclasses import replace

from cli.doctor_checks import Facts, LeaseHeld, RunningPod, Webhook
from core.catalog import standard_catalog
from core.dialects.vgpu.table import VgpuTable
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import Settings, Tables

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0
POLICIES = {
    "pods.cardshare.io": True,
    "bindings.cardshare.io": True,
    "locks.nodes.cardshare.io": True,
    "nodes.cardshare.io": False,
}
ENTRY = Webhook(
    name="create.pods.cardshare.io",
    conditions="['volcano.sh/vgpu-number'].exists(...)",
    ends_s=(NOW_S + 300 * DAY_S,),
    pods_created=True,
)
REGISTER = "GPU-a,10,15360,NVIDIA-Tesla T4,true,hami-core:"
HELD = LeaseHeld(holder="cardshare-controller-0", renewed_s=NOW_S - 2, duration_s=15)


def node(name="t4-a", register=REGISTER, number="volcano.sh/vgpu-number"):
    sold = {number: "10", "volcano.sh/vgpu-memory": "15360", "volcano.sh/vgpu-cores": "100"}
    return Node(
        name=NodeName(name),
        ready=True,
        annotations={"volcano.sh/node-vgpu-register": register},
        capacity=sold,
        allocatable=sold,
    )


def pod(*, limits, scheduler="cardshare", created_s=0, **fields) -> Pod:
    container = Container(name="c", limits=limits, requests=limits)
    return Pod(
        uid=PodUid("u"),
        namespace="team",
        name="p",
        scheduler_name=scheduler,
        created_s=created_s,
        containers=(container,),
        **fields,
    )


def running(name="cardshare-webhook-0", *, component="webhook", ready=True, **fields):
    return RunningPod(
        key=f"cardshare-system/{name}", account="a", node="t4-a", image="i", ready=ready, component=component, **fields
    )


def facts(*, nodes=None, tables=None, settings=None, bound=(), **fields):
    """A cluster with one node, in which all is well but what *fields* say."""
    catalog, settings, tables = standard_catalog(), settings or Settings(), tables or Tables()
    ledger = Ledger(catalog, tables, settings)
    for one in (node(),) if nodes is None else nodes:
        ledger.set_node(one)
    for one in bound:
        ledger.count(one)
    well = Facts(
        name="cardshare",
        namespace="cardshare-system",
        now_s=NOW_S,
        catalog=catalog,
        settings=settings,
        tables=tables,
        ledger=ledger,
        own=(running(), running("cardshare-webhook-1")),
        mutating={"cardshare": (ENTRY,)},
        validating={"cardshare": (ENTRY,)},
        policies=POLICIES,
        leases={"cardshare-system/cardshare-controller": HELD},
        namespaces={name: {} for name in ("cardshare-system", "kube-system", "team")},
        accounts=("system:serviceaccount:kube-system:volcano-device-plugin",),
    )
    return replace(well, **fields)


HAMI_OLD = replace(
    running(component=""),
    account="system:serviceaccount:kube-system:hami-device-plugin",
    image="registry:5000/projecthami/hami:v2.8.3",
)
UNKNOWN_PLUGIN = replace(running(component=""), account="system:serviceaccount:team:plugin", is_plugin=True)


def added(found: Facts) -> Facts:
    """*found* after an operator added the account of `UNKNOWN_PLUGIN`."""
    account = UNKNOWN_PLUGIN.account
    admission = replace(found.settings.admission, plugin_accounts=(account,))
    settings = replace(found.settings, admission=admission)
    return replace(found, settings=settings, accounts=(*found.accounts, account))


GPU = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
TWO_SHARES = pod(limits=GPU, node_name="t4-a", init_containers=(Container(name="init", limits=GPU, requests=GPU),))
T4 = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
OF_VOLCANO = Settings(scheduler_names=("cardshare", "volcano"))
RENAMED = Tables(sections=(VgpuTable(named=VgpuTable().named._replace(cards="example.com/gpu")),))
LEASES = {"cardshare-system/cardshare-controller": HELD}
OTHERS = LeaseHeld(holder="volcano-scheduler-7", renewed_s=NOW_S - 1, duration_s=15)
VOLCANO = pod(limits={}, scheduler="default-scheduler", labels={"app": "volcano-scheduler"})._replace(
    namespace="volcano-system"
)
