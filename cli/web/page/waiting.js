// The pods that wait: by reason, and those that wait longest.

import { element, row, table } from "./dom.js";
import { figure, say } from "./words.js";

const FIRST = 5;
const MOST = 500;

export class WaitingList extends HTMLElement {
  start(model, detail) {
    this.model = model;
    this.detail = detail;
    this.shown = FIRST;
  }

  show() {
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
    this.replaceChildren(head, this.reasons(pods), this.pods(pods));
  }

  reasons(pods) {
    const changes = new Map(this.model.waiting.reasons.map((one) => [one.code || one.reason, one.change]));
    const found = new Map();
    for (const pod of pods) {
      const reason = pod.code || pod.reason;
      if (!found.has(reason)) found.set(reason, []);
      found.get(reason).push(pod);
    }
    const rows = [...found].sort((a, b) => b[1].length - a[1].length).map(([reason, those]) =>
      row(reason, those.length, when(those[0].since), changes.get(reason) ?? ""));
    return table(say("reason"), [say("reason"), say("pods"), say("oldest"), say("change")], rows);
  }

  pods(pods) {
    const rows = pods.slice(0, this.shown).map((pod) =>
      row(this.link(pod.pod), pod.code || pod.reason, when(pod.since), pod.nearest, pod.change, figure(pod.queue), place(pod)));
    const heads = ["pod", "reason", "since", "nearest", "change", "queue", "place"].map((word) => say(word));
    return element("div", {}, table(say("pods"), heads, rows), this.rest(pods.length - this.shown));
  }

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

  link(pod) {
    const button = element("button", { className: "link", type: "button" }, pod);
    button.addEventListener("click", () => this.detail.pod(pod));
    return button;
  }
}

function when(time) {
  return time === null ? say("unknown") : time.replace("T", " ").replace("Z", " UTC");
}

function place(pod) {
  return pod.place === null ? say("unknown") : say("of", pod.place, pod.line);
}
