// The pods of the user's namespace: where each is or why it waits, what would help, and what is left for more.

import { bar, copied, element, row, table } from "./dom.js";
import { figure, say } from "./words.js";

export class MyPods extends HTMLElement {
  start(model, detail) {
    this.model = model;
    this.detail = detail;
  }

  show() {
    const mine = this.model.mine;
    this.hidden = !mine || (mine.count === 0 && mine.left.length === 0);
    if (this.hidden) return;
    const more = mine.count - mine.pods.length;
    this.replaceChildren(
      element("h2", {}, say("mine", mine.namespace)),
      mine.pods.length ? this.pods(mine.pods) : "",
      more ? element("p", { className: "quiet" }, say("more", more)) : "",
      mine.left.length ? left(mine.left) : "",
    );
  }

  pods(pods) {
    const waiting = new Map((this.model.waiting?.pods ?? []).map((pod) => [pod.pod, pod]));
    const heads = ["pod", "status", "node", "heldCards", "reason", "change"].map((word) => say(word));
    const rows = pods.map((pod) => {
      const change = waiting.get(pod.pod)?.change ?? "";
      const cards = pod.cards.map((one) => `${one.card} (${one.share})`).join(", ");
      return row(this.link(pod.pod), pod.state === "waits" ? say("waits") : pod.phase, pod.node, cards, pod.code || pod.reason, change ? copied(change, say("copy")) : "");
    });
    return table(say("mine", this.model.mine.namespace), heads, rows);
  }

  link(pod) {
    const button = element("button", { className: "link", type: "button" }, pod.slice(pod.indexOf("/") + 1));
    button.addEventListener("click", () => this.detail.pod(pod));
    return button;
  }
}

function left(all) {
  const heads = ["limitedBy", "resource", "holds", "limit", "left"].map((word) => say(word));
  const rows = all.map((one) => row(`${one.kind} ${one.name}`, one.resource, element("div", {}, figure(one.held), bar(one.held, one.limit)), one.limit, figure(one.left)));
  return table(say("left"), heads, rows);
}
