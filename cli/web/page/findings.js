// What kubectl cards doctor finds in nodes and pods, and what is not looked at here.

import { element, link, row, table } from "./dom.js";
import { Part } from "./part.js";
import { say } from "./words.js";

// The worst first; notes need no attention.
/** @type {Feed.Level[]} */
const LEVELS = ["problem", "risk", "unknown", "note"];

export class FindingList extends Part {
  /** @param {import("./model.js").Model} model @param {import("./detail.js").Detail} detail */
  constructor(model, detail) {
    super();
    this.model = model;
    this.detail = detail;
  }

  show() {
    if (!this.differs(this.model.findings)) return;
    const found = this.model.findings;
    this.hidden = !found;
    if (!found) return;
    const sorted = [...found.findings].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
    const more = found.count - sorted.length;
    const rows = sorted.map((one) => row(say(one.level), one.code, this.subject(one.subject), one.text, one.remedy));
    const heads = [say("level"), say("code"), say("subject"), say("finding"), say("change")];
    this.replaceChildren(
      element("h2", {}, say("findings")),
      rows.length ? table(say("findings"), heads, rows) : element("p", {}, say("noFindings")),
      more ? element("p", { className: "quiet" }, say("more", more)) : "",
      element("p", { className: "quiet" }, say("unchecked")),
    );
  }

  /** A link to the node or pod that is named. @param {string} text */
  subject(text) {
    const [kind, name = ""] = text.split(" ");
    if (kind === "node") return link(text, () => this.detail.node(name));
    return kind === "pod" ? link(text, () => this.detail.pod(name)) : text;
  }
}

/** The findings about one node. @param {Feed.Findings|null} found @param {string} name */
export function findingsOf(found, name) {
  return (found?.findings ?? []).filter((one) => one.subject === `node ${name}`);
}
