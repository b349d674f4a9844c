// Queues: what each holds of what it may have, and who waits.

import { bar, element, row, table } from "./dom.js";
import { Part } from "./part.js";
import { figure, say } from "./words.js";

export class QueueList extends Part {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    super();
    this.model = model;
  }

  show() {
    if (!this.differs(this.model.queues, this.model.filters.queue)) return;
    const queues = this.model.shownQueues();
    this.hidden = queues.length === 0;
    const rows = queues.flatMap((queue) => amounts(queue).map((amount, at) => row(
      at ? "" : queue.name, amount.resource, holds(amount), figure(amount.guarantee ?? "–"), figure(amount.deserved ?? "–"),
      figure(amount.capability ?? "–"), at ? "" : figure(queue.waiting), at ? "" : (queue.next ?? ""))));
    const heads = [say("queue"), say("resource"), say("holds"), say("guarantee"), say("deserved"), say("capability"), say("pods"), say("first")];
    const notes = (this.model.queues?.notes ?? []).map((note) => element("p", { className: "quiet" }, note));
    this.replaceChildren(element("h2", {}, say("queues")), table(say("queues"), heads, rows), ...notes);
  }
}

// A queue without any amount has a row too: who waits in it.
/** @type {Feed.QueueAmount} */
const NOTHING = { resource: "–", holds: 0, guarantee: null, deserved: null, capability: null };

/** @param {Feed.QueueState} queue */
function amounts(queue) {
  return queue.amounts.length ? queue.amounts : [NOTHING];
}

/** @param {Feed.QueueAmount} amount */
function holds(amount) {
  const most = amount.capability ?? amount.deserved ?? amount.guarantee;
  return most === null ? figure(amount.holds) : element("div", {}, figure(amount.holds), bar(amount.holds, most, amount.guarantee));
}
