// Filters by type, node and namespace; they stand in the address, so that a view can be sent.

import { element } from "./dom.js";
import { FILTERS } from "./model.js";
import { say } from "./words.js";

export class FilterBar extends HTMLElement {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    super();
    this.inputs = FILTERS.map((name) => {
      const input = element("input", { type: "search", name, value: model.filters[name] });
      input.addEventListener("input", () => model.filter(name, input.value.trim()));
      return { name, input };
    });
    this.append(...this.inputs.map(({ input }) => input));
  }

  show() {
    for (const { name, input } of this.inputs) {
      input.placeholder = say(name);
      input.setAttribute("aria-label", say(name));
    }
  }
}
