// Queues, while somebody has them open: what each holds of what it may have, and who waits.

import { bar, element, row, table } from "./dom.js";
import { ask } from "./feed.js";
import { figure, say } from "./words.js";

// They cost several lists: not more often than this.
const EVERY_MS = 10_000;

export class QueueList extends HTMLElement {
  start(model, detail) {
    this.model = model;
    this.key = detail.key;
    this.found = null;
    this.problem = "";
    this.isAsking = false;
    this.summary = element("summary");
    this.body = element("div");
    this.details = element("details", {}, this.summary, this.body);
    this.details.addEventListener("toggle", () => this.look());
    this.append(this.details);
    model.addEventListener("change", () => this.look());
  }

  show() {
    this.hidden = Boolean(this.model.sees && !this.model.sees.nodes);
    this.summary.textContent = say("queues");
    this.draw();
  }

  async look() {
    if (!this.details.open || this.isAsking || this.hidden) return;
    this.isAsking = true;
    try {
      this.found = await (await ask("/v1/queues", this.key)).json();
      this.problem = "";
    } catch (problem) {
      this.problem = problem.message;
    }
    this.draw();
    setTimeout(() => (this.isAsking = false), EVERY_MS);
  }

  draw() {
    if (this.problem || !this.found) {
      this.body.replaceChildren(element("p", { className: "quiet" }, this.problem || say("connecting")));
      return;
    }
    const rows = this.found.queues.flatMap((queue) => queue.amounts.map((amount, at) => row(
      at ? "" : queue.name, amount.resource, holds(amount), figure(amount.guarantee ?? "–"), figure(amount.deserved ?? "–"),
      figure(amount.capability ?? "–"), at ? "" : figure(queue.waiting), at ? "" : (queue.next ?? ""))));
    const heads = ["queue", "resource", "holds", "guarantee", "deserved", "capability", "pods", "first"].map((word) => say(word));
    this.body.replaceChildren(rows.length ? table(say("queues"), heads, rows) : element("p", { className: "quiet" }, say("nothing")));
  }
}

function holds(amount) {
  const most = amount.capability ?? amount.deserved ?? amount.guarantee;
  return most === null ? figure(amount.holds) : element("div", {}, figure(amount.holds), bar(amount.holds, most));
}
