// One pod, one node or one card, in a dialog that follows the model while it is open.

import { element, row, table } from "./dom.js";
import { ask } from "./feed.js";
import { findingsOf } from "./findings.js";
import { describe } from "./grid.js";
import { say } from "./words.js";

export class Detail {
  constructor(dialog, model, key) {
    this.dialog = dialog;
    this.model = model;
    this.key = key;
    this.drawn = null;
    model.addEventListener("change", () => this.dialog.open && this.drawn?.());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }

  node(name) {
    this.open(() => {
      const node = this.model.nodes.get(name);
      if (!node) return [name, element("p", {}, say("nothing"))];
      const rows = node.cards.map((card) => row(this.link(card.id, () => this.card(name, card.id)), describe(card), held(card)));
      const warned = node.warnings.map((text) => element("p", { className: "quiet" }, text));
      const found = findingsOf(this.model.findings, name).map((one) => element("p", {}, `${one.code} ${say(one.level)}: ${one.text}. ${say("change")}: ${one.remedy}`));
      const taints = node.taints.length ? [element("p", { className: "quiet" }, node.taints.join(", "))] : [];
      return [name, ...taints, ...warned, ...found, table(say("cards"), [say("cards"), say("status"), say("heldBy")], rows)];
    });
  }

  card(name, id) {
    this.open(() => {
      const card = this.model.nodes.get(name)?.cards.find((one) => one.id === id);
      if (!card) return [id, element("p", {}, say("nothing"))];
      const rows = card.held_by.map((share) => row(this.link(share.pod, () => this.pod(share.pod)), share.share));
      if (card.others) rows.push(row(say("others", card.others), ""));
      return [`${name} ${id}`, element("p", {}, describe(card)), rows.length ? table(say("heldBy"), [say("heldBy"), say("used")], rows) : element("p", {}, say("nothing"))];
    });
  }

  async pod(pod) {
    this.open(() => [pod, element("p", {}, say("connecting"))]);
    let parts;
    try {
      const found = await (await ask(`/v1/pods/${pod.split("/").map(encodeURIComponent).join("/")}`, this.key)).json();
      const events = found.events.map((event) => row(event.time, event.reason, event.message));
      parts = [pod, element("p", {}, found.text), events.length ? table(say("events"), [say("since"), say("events"), ""], events) : null];
    } catch (problem) {
      parts = [pod, element("p", {}, problem.message)];
    }
    this.open(() => parts);
  }

  /** @param {() => (Node|string|null)[]} draw  the title, and what follows it */
  open(draw) {
    this.drawn = () => {
      const [title, ...parts] = draw();
      const close = element("button", { type: "button", autofocus: true }, say("close"));
      close.addEventListener("click", () => this.dialog.close());
      const head = element("h2", { id: "detail-title" }, title);
      this.dialog.replaceChildren(head, ...parts.filter(Boolean), close);
    };
    this.drawn();
    if (!this.dialog.open) this.dialog.showModal();
  }

  link(text, onClick) {
    const button = element("button", { className: "link", type: "button" }, text);
    button.addEventListener("click", onClick);
    return button;
  }
}

function held(card) {
  const others = card.others ? [say("others", card.others)] : [];
  return [...card.held_by.map((share) => `${share.pod} (${share.share})`), ...others].join(", ") || say("nothing");
}
