// The pods of the user's namespace: where each is or why it waits, what would help, and what is left for more.

import { bar, copied, element, link, row, table } from "./dom.js";
import { Part } from "./part.js";
import { reasonOf } from "./waiting.js";
import { figure, say } from "./words.js";

// So many are shown before somebody asks for more.
const FIRST = 5;

export class MyPods extends Part {
  /** @param {import("./model.js").Model} model @param {import("./detail.js").Detail} detail */
  constructor(model, detail) {
    super();
    this.model = model;
    this.detail = detail;
    this.shown = FIRST;
  }

  show() {
    if (!this.differs(this.model.mine, this.model.waiting, this.shown)) return;
    const mine = this.model.mine;
    this.hidden = !mine || (mine.count === 0 && mine.left.length === 0);
    if (!mine || this.hidden) return;
    const more = mine.count - Math.min(mine.pods.length, this.shown);
    this.replaceChildren(
      element("h2", {}, say("mine", mine.namespace)),
      mine.pods.length ? this.pods(mine) : "",
      more ? this.more(more) : "",
      mine.left.length ? left(mine.left) : "",
    );
  }

  /** @param {number} count */
  more(count) {
    if (this.shown === Infinity) return element("p", { className: "quiet" }, say("more", count));
    return link(say("more", count), () => {
      this.shown = Infinity;
      this.show();
    });
  }

  /** @param {Feed.Mine} mine */
  pods(mine) {
    const waiting = new Map((this.model.waiting?.pods ?? []).map((pod) => [pod.pod, pod]));
    const heads = [say("pod"), say("status"), say("node"), say("heldCards"), say("reason"), say("change")];
    const rows = mine.pods.slice(0, this.shown).map((pod) => {
      const change = waiting.get(pod.pod)?.change ?? "";
      const cards = pod.cards.map((one) => `${one.card} (${one.share})`).join(", ");
      return row(link(pod.pod.slice(pod.pod.indexOf("/") + 1), () => this.detail.pod(pod.pod)), pod.state === "waits" ? say("waits") : pod.phase, pod.node, cards, pod.state === "waits" ? reasonOf(pod) : "", change ? copied(change, say("copy")) : "");
    });
    return table(say("mine", mine.namespace), heads, rows);
  }
}

/** @param {Feed.Left[]} all */
function left(all) {
  const heads = [say("limitedBy"), say("resource"), say("holds"), say("limit"), say("left")];
  const rows = all.map((one) => row(`${one.kind} ${one.name}`, one.resource, element("div", {}, figure(one.held), bar(one.held, one.limit)), one.limit, figure(one.left)));
  return table(say("left"), heads, rows);
}
