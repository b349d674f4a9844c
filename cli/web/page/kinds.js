// Cards by type: how much is free in all, and how much of that one request can get.

import { bar, element, row, table } from "./dom.js";
import { figure, say } from "./words.js";

export class KindList extends HTMLElement {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    super();
    this.model = model;
  }

  show() {
    const kinds = this.model.shownKinds();
    this.hidden = kinds.length === 0;
    const heads = [
      say("type"), say("protocol"), say("cards"), say("idle"), say("unhealthy"), say("used"), say("free"), say("strandedPart"), say("largest"), say("fragmented"),
    ];
    const rows = kinds.map((kind) => row(kind.type, kind.protocol, kind.cards, kind.idle, kind.unhealthy, used(kind), figure(kind.free, kind.unit),
      figure(kind.stranded, kind.unit), figure(kind.largest, kind.unit), figure(kind.fragmented_pct, "%")));
    this.replaceChildren(element("h2", {}, say("kinds")), table(say("kinds"), heads, rows));
  }
}

/** @param {Feed.Kind} kind */
function used(kind) {
  const text = kind.used === null ? say("unknown") : `${kind.used} / ${kind.total} ${kind.unit}`;
  return element("div", {}, text, bar(kind.used, kind.total));
}
