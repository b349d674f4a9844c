// Cards by type: how much is free in all, and how much of it is on one card.

import { bar, element, row, table } from "./dom.js";
import { figure, say } from "./words.js";

export class KindList extends HTMLElement {
  start(model) {
    this.model = model;
  }

  show() {
    const kinds = this.model.shownKinds();
    this.hidden = kinds.length === 0;
    const heads = ["type", "protocol", "cards", "idle", "unhealthy", "used", "free", "largest"].map((word) => say(word));
    const rows = kinds.map((kind) => row(kind.type, kind.protocol, kind.cards, kind.idle, kind.unhealthy, used(kind), figure(kind.free, kind.unit), figure(kind.largest, kind.unit)));
    this.replaceChildren(element("h2", {}, say("kinds")), table(say("kinds"), heads, rows));
  }
}

function used(kind) {
  const text = kind.used === null ? say("unknown") : `${kind.used} / ${kind.total} ${kind.unit}`;
  return element("div", {}, text, bar(kind.used, kind.total));
}
