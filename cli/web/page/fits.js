// The form "would this fit?": so much memory, or a manifest, pasted or from a file; how many such pods fit now, and the largest that does.

import { element, row, table } from "./dom.js";
import { ask, messageOf } from "./feed.js";
import { say } from "./words.js";

export class FitForm extends HTMLElement {
  /** @param {import("./model.js").Model} model @param {import("./detail.js").Detail} detail */
  constructor(model, detail) {
    super();
    this.model = model;
    this.key = detail.key;
    /** @type {Feed.Fits|null} */
    this.found = null;
    this.problem = "";
    this.summary = element("summary");
    this.manifest = element("textarea", { rows: 10, spellcheck: false });
    this.memory = element("input", { type: "number", min: 1 });
    this.cards = element("input", { type: "number", min: 1, placeholder: "1" });
    this.namespace = element("input", { type: "text" });
    this.file = element("input", { type: "file", accept: ".yaml,.yml,.json" });
    this.button = element("button", { type: "button" });
    this.answer = element("div", { role: "status" });
    this.file.addEventListener("change", () => this.read());
    this.button.addEventListener("click", () => this.count());
    this.labels = { memory: element("span"), cardsOfPod: element("span"), manifest: element("span"), file: element("span"), namespace: element("span") };
    const fields = [
      element("label", {}, this.labels.memory, this.memory),
      element("label", {}, this.labels.cardsOfPod, this.cards),
      element("label", {}, this.labels.manifest, this.manifest),
      element("label", {}, this.labels.file, this.file),
      element("label", {}, this.labels.namespace, this.namespace),
    ];
    this.append(element("details", {}, this.summary, element("div", { className: "form" }, ...fields, this.button), this.answer));
  }

  show() {
    const sees = this.model.sees;
    this.hidden = Boolean(sees && !sees.nodes);
    this.summary.textContent = say("wouldFit");
    this.button.textContent = say("count");
    this.namespace.placeholder = sees?.home ?? "";
    this.labels.memory.textContent = say("memory");
    this.labels.cardsOfPod.textContent = say("cardsOfPod");
    this.labels.manifest.textContent = say("manifest");
    this.labels.file.textContent = say("file");
    this.labels.namespace.textContent = say("namespace");
    this.draw();
  }

  async read() {
    const [file] = this.file.files ?? [];
    if (file) this.manifest.value = await file.text();
  }

  async count() {
    this.button.disabled = true;
    this.found = null;
    this.problem = say("counting");
    this.draw();
    try {
      const wanted = { namespace: this.namespace.value.trim(), memory: this.memory.value, cards: this.cards.value };
      const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
      this.found = await (await ask(`/v1/fits?${query}`, this.key, { method: "POST", body: this.manifest.value })).json();
      this.problem = "";
    } catch (problem) {
      this.problem = messageOf(problem);
    }
    this.button.disabled = false;
    this.draw();
  }

  draw() {
    if (!this.found) {
      this.answer.replaceChildren(this.problem ? element("p", {}, this.problem) : "");
      return;
    }
    const { ways, namespace, notes } = this.found;
    // Several ways of one protocol differ by the resource that they ask for.
    const nameOf = (/** @type {(typeof ways)[number]} */ way) => ways.filter((one) => one.protocol === way.protocol).length > 1 ? `${way.protocol} (${Object.keys(way.limits)[0]})` : way.protocol;
    const rows = ways.flatMap((way) => way.types.map((one) => row(nameOf(way), one.type, one.pods, one.nodes)));
    const said = !ways.length ? [element("p", {}, say("noWay"))] : ways.map((way) => element("p", {}, `${nameOf(way)}: ${say(way.is_all ? "fit" : "fitMore", way.pods, namespace)}`));
    const largest = ways.filter((way) => way.largest_memory_mib || way.largest_cards).map((way) => element("p", {}, [
      `${nameOf(way)}:`,
      way.largest_memory_mib ? say("largestMemory", way.largest_memory_mib) : "",
      way.largest_cards ? say("largestCards", way.largest_cards) : "",
    ].filter(Boolean).join(" ")));
    const stops = ways.filter((way) => way.stops).map((way) => element("p", {}, `${nameOf(way)}: ${say("stops", [way.code, way.stops].filter(Boolean).join(" "))}`));
    const heads = [say("protocol"), say("type"), say("pods"), say("nodes")];
    this.answer.replaceChildren(...said, rows.length ? table(say("wouldFit"), heads, rows) : "", ...largest, ...stops, ...notes.map((note) => element("p", { className: "quiet" }, note)));
  }
}
