// Filters by type, node and namespace; they stand in the address, so that a view can be sent.

import { element } from "./dom.js";
import { say } from "./words.js";

export class FilterBar extends HTMLElement {
  start(model) {
    this.inputs = Object.keys(model.filters).map((name) => {
      const input = element("input", { type: "search", name, value: model.filters[name] });
      input.addEventListener("input", () => model.filter(name, input.value.trim()));
      return input;
    });
    this.append(...this.inputs);
  }

  show() {
    for (const input of this.inputs) {
      input.placeholder = say(input.name);
      input.setAttribute("aria-label", say(input.name));
    }
  }
}
