// What kubectl cards doctor finds in nodes and pods, and what is not looked at here.

import { element, row, table } from "./dom.js";
import { say } from "./words.js";

// The worst first; notes need no attention.
const LEVELS = ["problem", "risk", "unknown", "note"];

export class FindingList extends HTMLElement {
  start(model, detail) {
    this.model = model;
    this.detail = detail;
  }

  show() {
    const found = this.model.findings;
    this.hidden = !found;
    if (!found) return;
    const sorted = [...found.findings].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
    const more = found.count - sorted.length;
    const rows = sorted.map((one) => row(say(one.level), one.code, this.subject(one.subject), one.text, one.remedy));
    const heads = ["level", "code", "subject", "finding", "change"].map((word) => say(word));
    this.replaceChildren(
      element("h2", {}, say("findings")),
      rows.length ? table(say("findings"), heads, rows) : element("p", {}, say("noFindings")),
      more ? element("p", { className: "quiet" }, say("more", more)) : "",
      element("p", { className: "quiet" }, say("unchecked")),
    );
  }

  /** A link to the node or pod that is named. */
  subject(text) {
    const [kind, name] = text.split(" ");
    const opens = { node: () => this.detail.node(name), pod: () => this.detail.pod(name) }[kind];
    if (!opens) return text;
    const button = element("button", { className: "link", type: "button" }, text);
    button.addEventListener("click", opens);
    return button;
  }
}

/** The findings about one node. @param {object|null} found @param {string} name */
export function findingsOf(found, name) {
  return (found?.findings ?? []).filter((one) => one.subject === `node ${name}`);
}
