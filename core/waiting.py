"""Why a pod waits: every cause, with a permanent code, a reason for its condition, and a remedy.

`Cause` is the only table; docs/operators/waiting.md shows its rows, and a test compares them. A cause is the kind of a
wait; the text in a `Wait` describes this pod. Only one cause has the reason `Unschedulable`: cluster autoscalers buy a
node for every pod that has it, so it is used only if a new node would help.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple


class Row(NamedTuple):
    """One cause: its code, the reason of the condition PodScheduled, when it applies, and the remedy."""

    code: str
    reason: str
    when: str
    remedy: str


class Cause(Enum):
    """Why pods wait. Rows may be added; a code never changes its meaning."""

    # ------------------------------------------------------------------ no node
    UNSCHEDULABLE = Row(
        "CS501",
        "Unschedulable",
        "no node fits now, but one new, empty node of a kind that the cluster has, or that `node_kinds` describe, "
        "would take the pod; the text names it. For a group, such nodes would admit as many members as must start "
        "together",
        "wait for capacity, request what the text names, or add such a node (autoscalers do)",
    )
    NEVER_FITS = Row(
        "CS502",
        "NeverFits",
        "no node could take the pod even if it were empty, and no described kind of node could",
        "change the pod as the text says, or describe a suitable kind of node in `node_kinds`",
    )
    WAITING_FOR_NODE = Row(
        "CS503",
        "WaitingForNode",
        "only existing nodes could take the pod, once they have capacity or admit it. A new one could not: the pod "
        "names a node or cards, or does not tolerate a taint",
        "wait, free what the text names, or restrict the pod less",
    )
    NO_NODES = Row(
        "CS504",
        "NoNodes",
        "there is no node at all, and no described kind of node could take the pod",
        "add a node, or describe the kinds that an autoscaler can add in `node_kinds`",
    )
    CARDS_UNUSABLE = Row(
        "CS505",
        "CardsUnusable",
        "nodes that might take the pod have unusable cards: the data of their device plugins cannot be read, or the "
        "plugins run only on other nodes",
        "event `CardsUnusable` on these nodes says what is wrong; restart the plugin, or correct `device-config.yaml`",
    )
    NODE_JOINING = Row(
        "CS506",
        "NodeJoining",
        "no node fits now, and the device plugin of a new node may still register its cards (`new_node_s`)",
        "nothing, for a minute; if no card is registered by then, the text says what else would help",
    )
    PLUGIN_NOT_REGISTERED = Row(
        "CS507",
        "PluginNotRegistered",
        "no other node could take the pod, and the kubelets of some nodes know such cards but have none to give. "
        "The plugin has not registered again after a restart of it or of kubelet, or all cards are unhealthy",
        "nothing, for some minutes; if it lasts longer, check the device plugin's pod on these nodes and restart it",
    )
    # ------------------------------------------------------------------ its turn
    WAITING_FOR_DECISION = Row(
        "CS510",
        "WaitingForDecision",
        "the pod is decided next, after older ones and those of a higher priority",
        "nothing, for seconds",
    )
    WAITING_FOR_TURN = Row(
        "CS511",
        "WaitingForTurn",
        "the pod has its place. The device plugin there first serves pods that it could confuse with this one, or a "
        "new leader first fences off requests of an earlier one",
        "nothing, for seconds; if it lasts longer, read the plugin's log",
    )
    DEVICE_PLUGIN_SILENT = Row(
        "CS512",
        "DevicePluginSilent",
        "nodes would take the pod, but their device plugins have not served other pods for long",
        "read the logs of these plugins and restart them; the nodes open when the plugins answer",
    )
    NODE_RESTS = Row(
        "CS513",
        "NodeRests",
        "the pod has its place on a resting node: it rejected a pod, its device plugin has just restarted, or the "
        "plugin's pod is not ready. Or the controller has just started, and pods removed by force may still be "
        "ending there",
        "nothing: the node is tried again after 5 s to 5 minutes, or once the plugin's pod is ready. Event "
        "`PodTurnedAway` on the node quotes kubelet; if it lasts longer, read the log of the plugin's pod",
    )
    NODE_LOCKED = Row(
        "CS514",
        "NodeLocked",
        "the pod has its place on a node that another scheduler has locked, or that cannot be locked",
        "nothing: the lock ends with its pod, or after 5 minutes; then check that scheduler",
    )
    WAITING_FOR_EVICTED = Row(
        "CS515",
        "WaitingForEvicted",
        "pods of a lower priority are evicted for the pod, and their capacity is reserved for it",
        "nothing: it is placed once they have ended; if it lasts longer, check why they do not end",
    )
    WAITING_FOR_REMOVED = Row(
        "CS516",
        "WaitingForRemoved",
        "a node takes the pod once it frees the cards of a pod that was removed by force and whose processes may "
        "still run (`removed_pod_hold_s`)",
        "nothing, for seconds; delete pods without `--force`, and the next pod is placed once they have ended",
    )
    # ------------------------------------------------------------------ others
    WAITING_FOR_GROUP = Row(
        "CS520",
        "WaitingForGroup",
        "the pod is placed together with others of its group. Too few of them exist, or too few fit, and new nodes "
        "alone would not help",
        "check that the group's other pods exist; otherwise do what the text says",
    )
    GROUP_NOT_FOUND = Row(
        "CS521",
        "GroupNotFound",
        "the PodGroup that the pod names does not exist, or cannot be read",
        "create it, or remove the pod's group annotation",
    )
    GROUP_NOT_SUPPORTED = Row(
        "CS522",
        "GroupNotSupported",
        "the pod's group cannot be read, or uses an unsupported feature; the text names it",
        "change the group as the text says, or use Volcano's scheduler for it",
    )
    WAITING_FOR_QUEUE = Row(
        "CS530",
        "WaitingForQueue",
        "the pod's queue has no capacity left for it, or others of the queue come first",
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
        "a ResourceQuota of the pod's namespace limits memory or cores of cards (`limits.`, as HAMi does), and has "
        "too little left for the pod or its group",
        "wait until pods of the namespace end, request less, or raise the quota",
    )
    # ------------------------------------------------------------------ the pod
    INVALID = Row(
        "CS540",
        "InvalidRequest",
        "the pod's request cannot be read, or is not allowed; the text is admission's, with its code",
        "correct what the text names",
    )
    NOT_JUDGED = Row(
        "CS541",
        "NotJudged",
        "the pod uses a feature that cardshare does not support; the text names it",
        "remove it, or use another scheduler",
    )
    NOT_SOLD = Row(
        "CS542",
        "NotSold",
        "the pod names a resource for shares of cards that this configuration does not offer, or one that only HAMi's "
        "scheduler assigns",
        "write the names that `device-config.yaml` gives, or correct that file. Leave pods for HAMi's own resources to "
        "its scheduler. The text names the resource",
    )
    TOO_LONG = Row(
        "CS543",
        "AnnotationsTooLong",
        "the pod's annotations leave no space for its assignment",
        "remove or shorten what the text names",
    )
    SWITCHED_OFF = Row(
        "CS544",
        "SwitchedOff",
        "the pod's way of sharing is disabled in the configuration",
        "request another one, or enable it (`dialects`, and the scheduler's configuration)",
    )
    # ------------------------------------------------------------------ its volumes
    CLAIM_NOT_FOUND = Row(
        "CS545",
        "ClaimNotFound",
        "a volume claim of the pod does not exist, is being deleted, has lost its volume, or belongs to another pod",
        "create or restore what the text names; the pod is then decided",
    )
    CLAIM_NOT_BOUND = Row(
        "CS546",
        "ClaimNotBound",
        "a volume claim of the pod has no volume yet, and its storage class binds it without waiting for the pod",
        "see the claim's events: its provisioner or an administrator must provide a volume",
    )
    CLAIM_IN_USE = Row(
        "CS547",
        "ClaimInUse",
        "a volume claim of the pod allows one pod at a time (`ReadWriteOncePod`), and another pod uses it",
        "wait until that pod ends, or give this one its own claim",
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
        "a volume claim of the pod was not bound on the chosen node in time, or at all",
        "see the claim's events and its provisioner; the pod is retried with growing delays",
    )
    # ------------------------------------------------------------------ the API server, and this process
    SCHEDULER_ERROR = Row(
        "CS550",
        "SchedulerError",
        "the outcome of the pod's Binding is unknown; its cards stay reserved until a read settles it",
        "nothing; the text ends with the API server's answer: check its log, and proxies in front of it",
    )
    BINDING_REFUSED = Row(
        "CS551",
        "BindingRefused",
        "the API server rejects the pod's Binding: a right is missing, or a policy or quota forbids it",
        "the text quotes the API server; the Binding is retried after 10 s, or after `refused_retry_s`",
    )
    RETRIED = Row(
        "CS552",
        "Retried",
        "the last write for the pod failed",
        "nothing: it is retried with growing delays",
    )
    NOT_LEADING = Row(
        "CS560",
        "NotLeading",
        "this process stands by; the holder of the lease decides",
        "nothing, or ask the holder",
    )
    NOT_READY = Row(
        "CS561",
        "NotReady",
        "this process may not decide now: it has just started, or its knowledge of the cluster is too old",
        "`/readyz` says why; see troubleshooting",
    )
    NAME_GIVEN_UP = Row(
        "CS562",
        "NameGivenUp",
        "the pod names a scheduler name that this process has given up, because another scheduler places its pods",
        "event `SchedulerNameGivenUp` names the evidence; stop one of the two",
    )

    @property
    def code(self) -> str:
        """The code in texts and metrics: CS5xx."""
        return self.value.code

    @property
    def reason(self) -> str:
        """The reason of the condition PodScheduled."""
        return self.value.reason


_CODES: Final = {cause.code: cause for cause in Cause}
_REASONS: Final = frozenset(cause.reason for cause in Cause)
# The parts of a message that `core.explaining` wrote.
_AVAILABLE: Final = re.compile(r"\b0/\d+ nodes are available: ")
# A sentence starts with a capital or a figure; a shortened one ends with an ellipsis.
_ENDS: Final = re.compile(r"\. (?=[A-Z0-9])|\.$|(?<=…) ")
_NEAREST: Final = "Nearest: "
_HOPELESS: Final = "Not even an empty node "
_BUYS: Final = re.compile(r"(?:A|\d+) new nodes? ")


class Wait(NamedTuple):
    """Why one pod waits: the cause, and the text."""

    cause: Cause
    text: str

    @property
    def message(self) -> str:
        """The text of its condition and events: the code, and the words."""
        return f"{self.cause.code} {self.text}"


def is_ours(reason: str) -> bool:
    """Return whether cardshare writes *reason* in conditions."""
    return reason in _REASONS


def code_in(message: str) -> str:
    """Return the code at the start of the condition's *message*, or ""."""
    code, _, _ = message.partition(" ")
    return code if code in _CODES else ""


def cause_of(code: str) -> Cause | None:
    """Return the cause of *code*; None if it is unknown."""
    return _CODES.get(code)


class Said(NamedTuple):
    """The parts of a message after its code: the nearest node or card, and the smallest change that lets the pod in.

    Each is "" if the message does not have it. The message is the only part of the decision for readers who may only
    read pods.
    """

    nearest: str = ""
    change: str = ""


# Pods with equal requests wait with the same message.
@lru_cache(maxsize=1024)
def said_in(message: str) -> Said:
    """Return the parts of *message*; if no node refuses the pod, *change* is the remedy for its cause."""
    cause = cause_of(code_in(message))
    if cause is None:
        return Said()
    found = _AVAILABLE.search(message)
    if found is None:
        return Said(change=cause.value.remedy)
    nearest, changes = "", list[str]()
    for sentence in _ENDS.split(message[found.end() :])[1:]:
        if sentence.startswith(_NEAREST):
            nearest = sentence.removeprefix(_NEAREST)
        elif sentence and not sentence.startswith(_HOPELESS) and not _BUYS.match(sentence):
            changes.append(sentence if not changes else sentence[:1].lower() + sentence[1:])
    return Said(nearest, "; ".join(changes) or cause.value.remedy)
