// One pod, one node or one card, in a dialog that follows the model while it is open.

import { copied, element, link, row, table } from "./dom.js";
import { ask, messageOf } from "./feed.js";
import { findingsOf } from "./findings.js";
import { describe } from "./grid.js";
import { cardStates, lives, moment } from "./history.js";
import { say } from "./words.js";

// What the controller's own record says too.
const SCHEDULING = ["FailedScheduling", "Scheduled", "Preempted"];

/** @typedef {import("./dom.js").Child} Child */

export class Detail {
  /** @param {HTMLDialogElement} dialog @param {import("./model.js").Model} model @param {import("./feed.js").Key} key */
  constructor(dialog, model, key) {
    this.dialog = dialog;
    this.model = model;
    this.key = key;
    /** @type {(() => void)|null} */
    this.drawn = null;
    // What is shown; an answer that comes when something else is shown is dropped.
    this.subject = {};
    model.addEventListener("change", () => this.dialog.open && this.drawn?.());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }

  close() {
    this.dialog.close();
  }

  /** @param {string} name */
  node(name) {
    this.open(() => {
      const node = this.model.nodes.get(name);
      if (!node) return [name, element("p", {}, say("nothing"))];
      const rows = node.cards.map((card) => row(link(card.id, () => this.card(name, card.id, card.protocol)), describe(card), this.holders(card)));
      const warned = node.warnings.map((text) => element("p", { className: "quiet" }, text));
      const found = findingsOf(this.model.findings, name).map((one) => element("p", {}, `${one.code} ${say(one.level)}: ${one.text}. ${say("change")}: ${one.remedy}`));
      const taints = node.taints.length ? [element("p", { className: "quiet" }, node.taints.join(", "))] : [];
      return [name, ...taints, ...warned, ...found, table(say("cards"), [say("cards"), say("status"), say("heldBy")], rows)];
    });
  }

  /** @param {string} name @param {string} id @param {string} [protocol]  the first with that id without it */
  card(name, id, protocol) {
    const now = () => this.model.nodes.get(name)?.cards.find((one) => one.id === id && (!protocol || one.protocol === protocol));
    /** @type {Child[]} */
    let history = [];
    /** @type {Feed.Card|undefined} */
    let known;
    const look = async (/** @type {Feed.Card} */ card) => {
      known = card;
      const subject = this.subject;
      const query = new URLSearchParams({ node: name, card: id, protocol: card.protocol });
      try {
        /** @type {Feed.CardHistory} */
        const found = await (await ask(`/v1/history/card?${query}`, this.key)).json();
        history = cardStates(found, (one) => this.holders(one));
      } catch (problem) {
        history = [element("p", { className: "quiet" }, messageOf(problem))];
      }
      if (subject === this.subject) this.drawn?.();
    };
    this.open(() => {
      const card = now();
      if (!card) return [id, element("p", {}, say("nothing"))];
      if (card !== known) look(card);
      const rows = card.held_by.map((share) => row(link(share.pod, () => this.pod(share.pod)), share.share));
      if (card.others) rows.push(row(say("others", card.others), ""));
      const facts = list([
        [say("node"), link(name, () => this.node(name))],
        [say("status"), describe(card)],
        [say("margin"), card.used === null || card.total === null ? say("unknown") : `${Math.max(card.total - card.used, 0)} ${card.unit}`],
        [say("protocol"), [card.protocol, card.mode].filter(Boolean).join(", ")],
      ]);
      return [`${name} ${id}`, facts, rows.length ? table(say("heldBy"), [say("heldBy"), say("used")], rows) : element("p", {}, say("unheld")), ...history];
    });
  }

  /** @param {string} pod  namespace/name */
  async pod(pod) {
    const subject = this.open(() => [pod, element("p", {}, say("connecting"))]);
    const path = pod.split("/").map(encodeURIComponent).join("/");
    /** @type {[Feed.Explained|Error, Feed.Why|Error]} */
    const [found, why] = await Promise.all([this.asked(`/v1/pods/${path}`), this.asked(`/v1/history/pods/${path}`)]);
    if (subject !== this.subject) return;
    this.open(() => {
      const history = why instanceof Error ? [] : lives(why);
      if (found instanceof Error) return [pod, element("p", {}, found.message), ...history];
      return [pod, ...this.explained(found), ...history, why instanceof Error ? events(found) : events(found, why)];
    });
  }

  /** The answer, or why there is none. @param {string} path @returns {Promise<any>} */
  async asked(path) {
    try {
      return await (await ask(path, this.key)).json();
    } catch (problem) {
      return problem instanceof Error ? problem : new Error(messageOf(problem));
    }
  }

  /** @param {Feed.Explained} found @returns {Child[]} */
  explained(found) {
    const waits = found.state === "waits" ? this.model.waiting?.pods.find((one) => one.pod === found.pod) : undefined;
    const cards = found.cards.map((one) => row(link(one.card, () => this.card(found.node, one.card)), one.share));
    return [
      element("p", {}, found.text),
      list([
        [say("status"), found.state === "waits" ? say("waits") : found.phase],
        [say("node"), found.node ? link(found.node, () => this.node(found.node)) : ""],
        [say("reason"), [found.code, found.reason].filter(Boolean).join(" ")],
        [say("nearest"), waits?.nearest ?? ""],
        [say("change"), waits?.change ? copied(waits.change, say("copy")) : ""],
      ]),
      cards.length ? table(say("heldCards"), [say("cards"), say("used")], cards) : null,
    ];
  }

  /** Show something else. @param {() => [string, ...Child[]]} draw  the title, and what follows it */
  open(draw) {
    const subject = this.subject = {};
    this.drawn = () => {
      const [title, ...parts] = draw();
      const close = element("button", { type: "button", autofocus: true }, say("close"));
      close.addEventListener("click", () => this.dialog.close());
      const focused = this.dialog.contains(document.activeElement);
      this.dialog.replaceChildren(element("h2", { id: "detail-title" }, title), element("div", {}, ...parts), close);
      if (focused) close.focus();
    };
    this.drawn();
    if (!this.dialog.open) this.dialog.showModal();
    return subject;
  }

  /** @param {Feed.Card} card */
  holders(card) {
    const others = card.others ? [say("others", card.others)] : [];
    return [...card.held_by.map((share) => `${share.pod} (${share.share})`), ...others].join(", ") || say("nothing");
  }
}

/** The events of Kubernetes that are not in the history too. @param {Feed.Explained} found @param {Feed.Why} [why] */
function events(found, why) {
  const rest = !why ? found.events : why.source === "conditions" ? [] : found.events.filter((event) => !SCHEDULING.includes(event.reason));
  const rows = rest.map((event) => row(moment(event.time), event.reason, event.message));
  if (!rows.length) return null;
  return element("div", {}, element("h3", {}, say("events")), table(say("events"), [say("time"), say("event"), say("details")], rows));
}

/** What is not empty, by its name. @param {[string, Child][]} facts */
function list(facts) {
  return element("dl", {}, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}
