// The pods that wait: by reason, and those that wait longest.

import { element, link, row, table } from "./dom.js";
import { moment } from "./history.js";
import { Part } from "./part.js";
import { figure, say } from "./words.js";

const FIRST = 5;
const MOST = 500;

export class WaitingList extends Part {
  /** @param {import("./model.js").Model} model @param {import("./detail.js").Detail} detail */
  constructor(model, detail) {
    super();
    this.model = model;
    this.detail = detail;
    this.shown = FIRST;
  }

  show() {
    if (!this.differs(this.model.waiting, this.shown, this.model.filters.namespace, this.model.filters.queue)) return;
    const head = element("h2", {}, say("waiting"));
    if (!this.model.waiting) {
      this.replaceChildren();
      return;
    }
    const pods = this.model.shownPods();
    if (!pods.length) {
      this.replaceChildren(head, element("p", { className: "quiet" }, say("nobody")));
      return;
    }
    this.replaceChildren(head, reasons(this.model.waiting, pods), this.pods(pods));
  }

  /** @param {Feed.WaitingPod[]} pods */
  pods(pods) {
    const rows = pods.slice(0, this.shown).map((pod) =>
      row(link(pod.pod, () => this.detail.pod(pod.pod)), reasonOf(pod), moment(pod.since), pod.nearest, pod.change, figure(pod.queue), place(pod)));
    const heads = [say("pod"), say("reason"), say("since"), say("nearest"), say("change"), say("queue"), say("place")];
    return element("div", {}, table(say("pods"), heads, rows), this.rest(pods.length - this.shown));
  }

  /** @param {number} count */
  rest(count) {
    if (count <= 0) return null;
    if (this.shown === MOST) return element("p", { className: "quiet" }, say("more", count));
    const button = element("button", { type: "button", className: "link" }, say("more", count));
    button.addEventListener("click", () => {
      this.shown = MOST;
      this.show();
    });
    return button;
  }
}

/** The reasons of *pods*, the most frequent first. @param {Feed.Waiting} waiting @param {Feed.WaitingPod[]} pods */
function reasons(waiting, pods) {
  // Names of settings are marked as in the docs.
  const changes = new Map(waiting.reasons.map((one) => [reasonOf(one), one.change.replaceAll("`", "")]));
  /** @type {Map<string, {count: number, since: string|null}>} */
  const found = new Map();
  for (const pod of pods) {
    const reason = reasonOf(pod);
    const those = found.get(reason);
    if (those) those.count++;
    else found.set(reason, { count: 1, since: pod.since });
  }
  const rows = [...found].sort((a, b) => b[1].count - a[1].count).map(([reason, those]) => row(reason, those.count, moment(those.since), changes.get(reason) ?? ""));
  return table(say("reason"), [say("reason"), say("pods"), say("oldest"), say("change")], rows);
}

/** The cause of a wait, or that nothing is known yet. @param {{code: string, reason: string}} wait */
export function reasonOf(wait) {
  return [wait.code, wait.reason].filter(Boolean).join(" ") || say("unseen");
}

/** @param {Feed.WaitingPod} pod */
function place(pod) {
  return pod.place === null ? say("unknown") : say("of", pod.place, figure(pod.line));
}
