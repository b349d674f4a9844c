"""Why a pod waits: every cause there is, with a code that stays, a reason for its condition, and what to do about it.

`Cause` is the one table; docs/operators/waiting.md is its rows, and a test compares them. A cause says of which kind a
wait is; the text beside it, in a `Wait`, says it of this pod. Reason `Unschedulable` is one cause's alone: cluster
autoscalers buy a node for every pod that waits for it, so it is said only where a new node would help.
"""

from enum import Enum
from typing import Final, NamedTuple


class Row(NamedTuple):
    """One cause: its code, the reason of the condition PodScheduled, when it is said, and what to do."""

    code: str
    reason: str
    when: str
    remedy: str


class Cause(Enum):
    """Why pods wait. Rows are added; a code is never given another meaning."""

    # ------------------------------------------------------------------ no node
    UNSCHEDULABLE = Row(
        "CS501",
        "Unschedulable",
        "no node fits now; a new, empty node of a kind that the cluster has, or that `node_kinds` describe, would take "
        "the pod: the text names it; of a group, such nodes would let in as many members as are wanted together",
        "wait until room frees, ask for what the text names, or add such a node (autoscalers do)",
    )
    NEVER_FITS = Row(
        "CS502",
        "NeverFits",
        "no node could take the pod even if it were empty, and no kind of node that is described could",
        "change the pod as the text says; or describe the kind of node that could take it in `node_kinds`",
    )
    WAITING_FOR_NODE = Row(
        "CS503",
        "WaitingForNode",
        "only nodes that are there could take the pod, once they have room or let it in; a new one could not: the pod "
        "names a node or cards, or does not tolerate a taint",
        "wait, free what the text names, or let the pod name less",
    )
    NO_NODES = Row(
        "CS504",
        "NoNodes",
        "there is no node at all, and no kind of node that is described could take the pod",
        "add a node; describe kinds that an autoscaler is to buy in `node_kinds`",
    )
    CARDS_UNUSABLE = Row(
        "CS505",
        "CardsUnusable",
        "nodes that perhaps could take the pod have cards that cannot be judged: what their device plugins say of them "
        "cannot be read, or these run on other nodes only",
        "event `CardsUnusable` on these nodes says what is wrong; restart the plugin, or correct `device-config.yaml`",
    )
    NODE_JOINING = Row(
        "CS506",
        "NodeJoining",
        "no node fits now, and one came so lately that its device plugin may still register its cards (`new_node_s`)",
        "nothing, for a minute; what else would help is told when no card was registered by then",
    )
    PLUGIN_NOT_REGISTERED = Row(
        "CS507",
        "PluginNotRegistered",
        "no other node could take the pod, and the kubelets of some know such cards but have none to give: after a "
        "restart of kubelet or of the device plugin, until that has registered again, or while all cards are unhealthy",
        "nothing, for some minutes; longer: see whether the device plugin's pod on these nodes runs, and restart it",
    )
    # ------------------------------------------------------------------ its turn
    WAITING_FOR_DECISION = Row(
        "CS510",
        "WaitingForDecision",
        "the pod is decided next, after those of a higher priority and older ones",
        "nothing, for seconds",
    )
    WAITING_FOR_TURN = Row(
        "CS511",
        "WaitingForTurn",
        "the pod has its place; the device plugin there serves pods first that it could mistake for this one, or a new "
        "leader first makes sure that nothing which an earlier one sent can take that place",
        "nothing, for seconds; longer: see that plugin's log",
    )
    DEVICE_PLUGIN_SILENT = Row(
        "CS512",
        "DevicePluginSilent",
        "nodes would take the pod, but their device plugins have not served others for long",
        "see those plugins' logs and restart them; the nodes open by themselves once they answer",
    )
    NODE_RESTS = Row(
        "CS513",
        "NodeRests",
        "the pod has its place on a node that turned a pod away, or whose device plugin has just come back, or does "
        "not run: the plugin's own pod is not ready; or the controller has just begun, and pods that were removed by "
        "force may still be ending there",
        "nothing: it is tried again after 5 s to 5 minutes, or once that pod is ready; event `PodTurnedAway` on the "
        "node says what kubelet said; longer: see the log of the plugin's pod",
    )
    NODE_LOCKED = Row(
        "CS514",
        "NodeLocked",
        "the pod has its place on a node whose lock another scheduler holds, or which cannot be locked",
        "nothing: a lock goes with its pod, or after 5 minutes; then see that scheduler",
    )
    WAITING_FOR_EVICTED = Row(
        "CS515",
        "WaitingForEvicted",
        "pods of a lower priority were asked to leave for the pod, and their room is kept for it",
        "nothing: it is placed once they have ended; longer: see why they do not end",
    )
    WAITING_FOR_REMOVED = Row(
        "CS516",
        "WaitingForRemoved",
        "a node takes the pod as soon as it frees the cards of a pod that was removed by force, whose processes may "
        "run for some seconds more (`removed_pod_hold_s`)",
        "nothing, for seconds; delete pods without `--force`, and the next pod is placed once they have ended",
    )
    # ------------------------------------------------------------------ others
    WAITING_FOR_GROUP = Row(
        "CS520",
        "WaitingForGroup",
        "the pod is placed together with others of its group, of which not enough are there, or not enough fit, and "
        "new nodes alone would not help",
        "see that the group's other pods exist; otherwise as the text says",
    )
    GROUP_NOT_FOUND = Row(
        "CS521",
        "GroupNotFound",
        "the PodGroup that the pod names does not exist, or cannot be read",
        "create it, or leave the pod's group annotation out",
    )
    GROUP_NOT_SUPPORTED = Row(
        "CS522",
        "GroupNotSupported",
        "the pod's group asks for what cardshare does not do; the text names it",
        "change the group as the text says, or use Volcano's scheduler for it",
    )
    WAITING_FOR_QUEUE = Row(
        "CS530",
        "WaitingForQueue",
        "the pod's queue has no room left for it, or others of the queue come first",
        "wait until pods of the queue end, or raise its capability",
    )
    QUEUE_NOT_OPEN = Row(
        "CS531",
        "QueueNotOpen",
        "the queue that the pod or its group names does not exist, or is closed",
        "name another queue, create it, or open it",
    )
    WAITING_FOR_QUOTA = Row(
        "CS532",
        "WaitingForQuota",
        "a ResourceQuota of the pod's namespace limits memory or cores of cards (`limits.`, as HAMi does), and has too "
        "little left for the pod, or for its group",
        "wait until pods of the namespace end, ask for less, or raise the quota",
    )
    # ------------------------------------------------------------------ the pod
    INVALID = Row(
        "CS540",
        "InvalidRequest",
        "what the pod asks cannot be read, or may not be asked so; the text is that of admission, with its code",
        "correct what the text names",
    )
    NOT_JUDGED = Row(
        "CS541",
        "NotJudged",
        "the pod asks for something that cardshare does not take into account, and the text names it",
        "remove it, or use another scheduler",
    )
    NOT_SOLD = Row(
        "CS542",
        "NotSold",
        "the pod names a resource by which cards are shared elsewhere, and the configuration here sells none by it",
        "write the names that `device-config.yaml` gives, or correct that; the text names the resource",
    )
    TOO_LONG = Row(
        "CS543",
        "AnnotationsTooLong",
        "the pod's annotations leave no room for its assignment",
        "remove or shorten what the text names",
    )
    SWITCHED_OFF = Row(
        "CS544",
        "SwitchedOff",
        "the way of sharing that the pod asks for is switched off in the configuration",
        "ask for another one, or switch it on (`dialects`, and what the scheduler's configuration enables)",
    )
    # ------------------------------------------------------------------ its volumes
    CLAIM_NOT_FOUND = Row(
        "CS545",
        "ClaimNotFound",
        "a volume claim of the pod does not exist, is being deleted, has lost its volume, or is another pod's",
        "create or restore what the text names; the pod is decided once it is there",
    )
    CLAIM_NOT_BOUND = Row(
        "CS546",
        "ClaimNotBound",
        "a volume claim of the pod has no volume yet, and its storage class binds it without waiting for the pod",
        "see the claim's events: its provisioner, or an administrator, is to give it a volume",
    )
    CLAIM_IN_USE = Row(
        "CS547",
        "ClaimInUse",
        "a volume claim of the pod is for one pod at a time (`ReadWriteOncePod`), and another one uses it",
        "wait until that pod ends, or give this one a claim of its own",
    )
    WAITING_FOR_VOLUMES = Row(
        "CS548",
        "WaitingForVolumes",
        "the pod has its place; its volume claims are bound there first (`WaitForFirstConsumer`)",
        "nothing: see the claims' events; after `volume_wait_max_s` the place is given up",
    )
    VOLUMES_NOT_BOUND = Row(
        "CS549",
        "VolumesNotBound",
        "a volume claim of the pod was not bound on the node that was chosen for it: in time, or at all",
        "see the claim's events and its provisioner; the pod is tried again, later each time",
    )
    # ------------------------------------------------------------------ the API server, and this process
    SCHEDULER_ERROR = Row(
        "CS550",
        "SchedulerError",
        "it is not known what became of the pod's Binding; its cards stay reserved until a read settles it",
        "nothing; the text ends with what the API server answered: see its log, and proxies before it",
    )
    BINDING_REFUSED = Row(
        "CS551",
        "BindingRefused",
        "the API server refuses the pod's Binding: a right is missing, or a policy or quota stands against it",
        "the text has the API server's words; it is tried again after 10 s, or after `refused_retry_s`",
    )
    RETRIED = Row(
        "CS552",
        "Retried",
        "the last write for the pod did not go through",
        "nothing: it is tried again, later each time",
    )
    NOT_LEADING = Row(
        "CS560",
        "NotLeading",
        "the process that was asked stands by; the one that holds the lease decides",
        "nothing, or ask that one",
    )
    NOT_READY = Row(
        "CS561",
        "NotReady",
        "this process may not decide at the moment: it has just begun, or what it knows of the cluster is too old",
        "`/readyz` says why; see troubleshooting",
    )
    NAME_GIVEN_UP = Row(
        "CS562",
        "NameGivenUp",
        "the pod names a scheduler that this process stands in for no more, because another places its pods",
        "event `SchedulerNameGivenUp` says how that was seen; stop one of the two",
    )

    @property
    def code(self) -> str:
        """It stands in front of texts, and in metrics: CS5xx."""
        return self.value.code

    @property
    def reason(self) -> str:
        """The reason of the condition PodScheduled."""
        return self.value.reason


_CODES: Final = frozenset(cause.code for cause in Cause)
_REASONS: Final = frozenset(cause.reason for cause in Cause)


class Wait(NamedTuple):
    """Why one pod waits: of which kind that is, and in words."""

    cause: Cause
    text: str

    @property
    def message(self) -> str:
        """What its condition and events say: the code, and the words."""
        return f"{self.cause.code} {self.text}"


def is_ours(reason: str) -> bool:
    """Whether *reason* of a condition is one that is written here."""
    return reason in _REASONS


def code_in(message: str) -> str:
    """The code that *message* of a condition begins with, or ""."""
    code, _, _ = message.partition(" ")
    return code if code in _CODES else ""
