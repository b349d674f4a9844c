// What the page says, in both languages. What the cluster says stays as it is.

const WORDS = {
  en: {
    other: "中文", language: "Language: Chinese",
    type: "Type", node: "Node", namespace: "Namespace",
    mine: "My pods: namespace {0}", waits: "waits", heldCards: "Cards held", margin: "Free", copy: "Copy", left: "Left", limit: "Limit", limitedBy: "Limited by",
    unseen: "not processed yet",
    waiting: "Pods that wait", nobody: "No pod waits.", reason: "Reason", pods: "Pods", oldest: "Waits longest", first: "First", change: "What helps",
    pod: "Pod", since: "Since", nearest: "Nearest card", queue: "Queue", place: "Place in line", of: "{0} of {1}", unknown: "unknown",
    findings: "Findings", noFindings: "Nodes and waiting pods show no problem.", level: "Level", code: "Code", subject: "Object", finding: "Finding",
    problem: "problem", risk: "risk", note: "note",
    unchecked: "Not checked here: webhooks, certificates, policies, configuration, the controller's lease, kubelet's lists of devices. Run: kubectl cards doctor",
    kinds: "Cards by type", protocol: "Device plugin", cards: "Cards", idle: "Idle", unhealthy: "Unhealthy", used: "In use", free: "Free", largest: "Most on one card", strandedPart: "Stranded", fragmented: "Fragmented",
    stranded: "stranded: free, but no pod can get it", unhealthyOrAway: "unhealthy or unknown",
    nodes: "Nodes and cards", notReady: "not ready", cordoned: "cordoned", tainted: "tainted", unhealthyCard: "unhealthy", away: "not offered by the device plugin now",
    heldBy: "Held by", nothing: "nothing", close: "Close", events: "Events", status: "Status", shown: "{0} nodes, {1} cards",
    noCards: "You may not list nodes and all pods. This page shows the pods of namespace {0}.",
    noNodes: "You may not list nodes, so this page shows no cards.", others: "pods of other namespaces: {0}",
    logIn: "Log in", token: "Token (leave empty if a proxy adds it)", tokenLine: "One line, without spaces", ownNamespace: "Namespace, if you may not list all pods",
    queues: "Queues", resource: "Resource", holds: "Holds", guarantee: "Guarantee", deserved: "Deserved", capability: "Capability",
    wouldFit: "Would this fit?", memory: "Memory on each card, in MiB", cardsOfPod: "Cards of a pod",
    manifest: "Or a manifest (YAML or JSON)", file: "Or a file", noWay: "No node offers cards that a pod could ask for in this way.", largestMemory: "The largest pod gets {0} MiB on each card.", largestCards: "With that memory it gets at most {0} cards.", count: "Count", counting: "Counting ...",
    fit: "{0} such pods fit now in namespace {1}.", fitMore: "More than {0} such pods fit now in namespace {1}.", stops: "The next one does not fit: {0}",
    day: "The last 24 hours", promised: "Promised to pods", cardsMost: "Cards: {0}", podsMost: "Pods waiting: {0}", noDay: "No minute of the last 24 hours is recorded.",
    then: "{0} UTC: {1}. {2}", cardsThen: "{0} of {1} cards promised to pods, {2} free, {3} stranded", cardsUnknown: "cards unknown", podsUnknown: "Pods waiting: unknown",
    dayWide: "The filters by node and namespace do not apply here.",
    history: "History", happened: "What happened", time: "Time", event: "Event", details: "Details", times: "{0} times", timesSince: "{0} times since {1}", storedAt: "Stored at {0}; what happened later may be missing.",
    nextPod: "A later pod of the same name:", knownSince: "Recorded since {0}. Earlier changes are unknown.", health: "Health", healthy: "healthy", noCard: "not on the node", unheld: "No pod holds it.",
    wasAsked: "created", wasWaiting: "waited", wasReserved: "place reserved", wasReleased: "place given back", wasSent: "Binding sent", wasBound: "bound",
    wasServed: "cards given by the device plugin", wasEvicted: "evicted", wasEnded: "ended", wasGone: "deleted",
    slow: "the server does not answer; if this page is open in many windows, close some, because a browser opens at most six connections to one server",
    connecting: "Connecting ...", lost: "Not live: {0}", live: "Live", more: "{0} more",
  },
  zh: {
    other: "English", language: "语言：英文",
    type: "型号", node: "节点", namespace: "命名空间",
    mine: "我的 Pod：命名空间 {0}", waits: "等待中", heldCards: "占用的卡", margin: "剩余", copy: "复制", left: "剩余", limit: "上限", limitedBy: "限制来源",
    unseen: "尚未处理",
    waiting: "等待中的 Pod", nobody: "没有 Pod 在等待。", reason: "原因", pods: "Pod 数", oldest: "最早开始等待", first: "最早的 Pod", change: "处理办法",
    pod: "Pod", since: "开始时间", nearest: "最接近的卡", queue: "队列", place: "排队位置", of: "第 {0} 位，共 {1} 位", unknown: "未知",
    findings: "诊断结果", noFindings: "节点和等待中的 Pod 没有问题。", level: "级别", code: "代码", subject: "对象", finding: "发现",
    problem: "问题", risk: "风险", note: "提示",
    unchecked: "这里不检查：Webhook、证书、策略、配置、控制器的租约、kubelet 的设备列表。请运行：kubectl cards doctor",
    kinds: "按型号汇总", protocol: "设备插件", cards: "卡数", idle: "空闲", unhealthy: "不健康", used: "已分配", free: "可用", largest: "单卡最大可用", strandedPart: "闲置不可用", fragmented: "碎片率",
    stranded: "闲置不可用：有空闲，但没有 Pod 能使用", unhealthyOrAway: "不健康或未知",
    nodes: "节点和卡", notReady: "未就绪", cordoned: "已禁止调度", tainted: "有污点", unhealthyCard: "不健康", away: "设备插件目前未上报",
    heldBy: "占用者", nothing: "无", close: "关闭", events: "事件", status: "状态", shown: "{0} 个节点，{1} 张卡",
    noCards: "您没有列出节点和全部 Pod 的权限。本页只显示命名空间 {0} 中的 Pod。",
    noNodes: "您没有列出节点的权限，所以本页不显示卡。", others: "其他命名空间的 Pod：{0}",
    logIn: "登录", token: "令牌；由代理添加时留空", tokenLine: "一行，不含空格", ownNamespace: "命名空间；无权列出全部 Pod 时填写",
    queues: "队列", resource: "资源", holds: "已占用", guarantee: "保障量", deserved: "应得量", capability: "上限",
    wouldFit: "能放下吗？", memory: "每张卡的显存（MiB）", cardsOfPod: "每个 Pod 的卡数",
    manifest: "或清单（YAML 或 JSON）", file: "或选择文件", noWay: "没有节点提供可以这样请求的卡。", largestMemory: "最大的 Pod 每张卡可得 {0} MiB。", largestCards: "以该显存最多可得 {0} 张卡。", count: "计算", counting: "正在计算……",
    fit: "命名空间 {1} 现在能放下 {0} 个这样的 Pod。", fitMore: "命名空间 {1} 现在能放下 {0} 个以上这样的 Pod。", stops: "下一个放不下：{0}",
    day: "最近 24 小时", promised: "已分配给 Pod", cardsMost: "卡：{0}", podsMost: "等待中的 Pod：{0}", noDay: "最近 24 小时没有任何记录。",
    then: "{0} UTC：{1}。{2}", cardsThen: "{1} 张卡中 {0} 张已分配给 Pod，{2} 张可用，{3} 张闲置不可用", cardsUnknown: "卡的用量未知", podsUnknown: "等待中的 Pod：未知",
    dayWide: "按节点和命名空间的筛选对此图无效。",
    history: "历史", happened: "发生了什么", time: "时间", event: "事件", details: "详情", times: "{0} 次", timesSince: "自 {1} 起 {0} 次", storedAt: "保存于 {0}；此后发生的事情可能缺失。",
    nextPod: "之后的同名 Pod：", knownSince: "自 {0} 起有记录，更早的变化未知。", health: "健康状况", healthy: "健康", noCard: "不在节点上", unheld: "没有 Pod 占用。",
    wasAsked: "已创建", wasWaiting: "等待", wasReserved: "已预留位置", wasReleased: "已退还位置", wasSent: "已发送 Binding", wasBound: "已绑定",
    wasServed: "设备插件已分配卡", wasEvicted: "已驱逐", wasEnded: "已结束", wasGone: "已删除",
    slow: "服务器没有响应；如果在很多窗口中打开了本页，请关闭一些，因为浏览器对一个服务器最多打开六个连接",
    connecting: "正在连接……", lost: "未实时更新：{0}", live: "实时", more: "另有 {0} 个",
  },
};

/** @typedef {keyof typeof WORDS.en} Word */

/** @type {keyof typeof WORDS} */
let language = (localStorage.getItem("language") ?? navigator.language).startsWith("zh") ? "zh" : "en";

/** @param {Word} word @param {...(string|number)} values */
export function say(word, ...values) {
  let text = WORDS[language][word];
  for (const [at, value] of values.entries()) text = text.replace(`{${at}}`, String(value));
  return text;
}

export function currentLanguage() {
  return language;
}

export function otherLanguage() {
  language = language === "en" ? "zh" : "en";
  localStorage.setItem("language", language);
}

/** A figure, or the word for one that is not known: never 0. @param {number|string|null|undefined} value */
export function figure(value, unit = "") {
  return value === null || value === undefined ? say("unknown") : unit ? `${value} ${unit}` : String(value);
}
