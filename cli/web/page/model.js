// What the server has said, and what of it the filters let through.

/** @typedef {"type"|"protocol"|"node"|"namespace"|"queue"} Filter */

/** @type {Filter[]} */
export const FILTERS = ["type", "protocol", "node", "namespace", "queue"];

export class Model extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, Feed.Node>} */
    this.nodes = new Map();
    /** @type {Feed.Kind[]} */
    this.kinds = [];
    /** @type {Feed.Waiting|null} */
    this.waiting = null;
    /** @type {Feed.Queues|null} */
    this.queues = null;
    /** @type {Feed.Mine|null} */
    this.mine = null;
    /** @type {Feed.Findings|null} */
    this.findings = null;
    /** @type {Feed.Trend|null} */
    this.trend = null;
    /** @type {string[]} */
    this.notes = [];
    /** @type {Feed.Sees|null} */
    this.sees = null;
    this.stale = "";
    const asked = new URLSearchParams(location.search);
    this.filters = /** @type {Record<Filter, string>} */ (Object.fromEntries(FILTERS.map((name) => [name, asked.get(name) ?? ""])));
  }

  /** The next update has everything. */
  begin() {
    this.nodes.clear();
    Object.assign(this, { kinds: [], waiting: null, queues: null, mine: null, findings: null, trend: null, notes: [], sees: null });
  }

  /** @param {Feed.Update} update */
  apply(update) {
    for (const node of update.nodes) this.nodes.set(node.name, node);
    for (const name of update.gone) this.nodes.delete(name);
    this.kinds = update.kinds;
    this.notes = update.notes;
    this.sees = update.sees;
    this.stale = update.stale;
    if (update.waiting) this.waiting = update.waiting;
    if (update.queues) this.queues = update.queues;
    if (update.mine) this.mine = update.mine;
    if (update.findings) this.findings = update.findings;
    if (update.trend) this.trend = update.trend;
    this.changed();
  }

  /** @param {Filter} name @param {string} value */
  filter(name, value) {
    this.filters[name] = value;
    const asked = new URLSearchParams(Object.entries(this.filters).filter(([, each]) => each));
    history.replaceState(null, "", asked.size ? `?${asked}` : location.pathname);
    this.changed();
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** The nodes that the filters let through, by name, each with those of its cards that they do. */
  shownNodes() {
    const { type, protocol, node, namespace } = this.filters;
    const found = [];
    for (const each of [...this.nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (!has(each.name, node)) continue;
      const cards = each.cards.filter((card) => has(card.type, type) && has(card.protocol, protocol) && isHeldIn(card, namespace));
      if (cards.length || (!type && !protocol && !namespace)) found.push({ ...each, cards });
    }
    return found;
  }

  shownPods() {
    const { namespace, queue } = this.filters;
    return (this.waiting?.pods ?? []).filter((pod) => (!namespace || pod.pod.startsWith(`${namespace}/`)) && has(pod.queue ?? "", queue));
  }

  shownKinds() {
    return this.kinds.filter((kind) => has(kind.type, this.filters.type) && has(kind.protocol, this.filters.protocol));
  }

  /** The figures of each point over what the filters let through, null where it was not observed. @param {Feed.Trend} trend */
  shownTrend(trend) {
    const { type, protocol, queue } = this.filters;
    const cards = trend.cards.filter((one) => has(one.type, type) && has(one.dialect, protocol));
    const waiting = trend.waiting.filter((one) => has(one.dialect, protocol) && has(one.queue ?? "", queue));
    const isHidden = Boolean(queue) && trend.waiting.some((one) => one.queue === null);
    const sum = (/** @type {(number|null)[][]} */ rows) => trend.observed.map((minutes, at) => (minutes ? rows.reduce((total, row) => total + (row[at] ?? 0), 0) : null));
    return {
      promised: sum(cards.map((one) => one.promised)),
      idle: sum(cards.map((one) => one.idle)),
      stranded: sum(cards.map((one) => one.stranded)),
      waiting: isHidden ? trend.observed.map(() => null) : sum(waiting.map((one) => one.pods)),
    };
  }

  shownQueues() {
    return (this.queues?.queues ?? []).filter((queue) => has(queue.name, this.filters.queue));
  }
}

/** @param {string} text @param {string} wanted */
function has(text, wanted) {
  return text.toLowerCase().includes(wanted.toLowerCase());
}

/** @param {Feed.Card} card @param {string} namespace */
function isHeldIn(card, namespace) {
  return !namespace || card.held_by.some((share) => share.pod.startsWith(`${namespace}/`));
}
