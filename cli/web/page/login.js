// Asks for a token where the server wants one. The token is kept in this page's memory alone.

import { element } from "./dom.js";
import { say } from "./words.js";

export class Login {
  /** @param {HTMLDialogElement} dialog @param {import("./feed.js").Key} key  gets what was entered */
  constructor(dialog, key) {
    this.dialog = dialog;
    this.key = key;
    // There is nothing to see behind it.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
  }

  /** Resolve once a token was entered; nothing is asked for twice at a time. @param {string} why  of the server @returns {Promise<void>} */
  ask(why) {
    return new Promise((resolve) => {
      const token = element("input", { type: "password", autocomplete: "off", pattern: "[\\x21-\\x7e]*", title: say("tokenLine") });
      const namespace = element("input", { type: "text", autocomplete: "off", value: this.key.namespace });
      const form = element("form", { className: "form" },
        element("label", {}, say("token"), token), element("label", {}, say("ownNamespace"), namespace), element("button", { type: "submit" }, say("logIn")));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.key.token = token.value;
        this.key.namespace = namespace.value.trim();
        this.dialog.close();
        this.dialog.replaceChildren();
        resolve();
      });
      const head = element("h2", { id: "login-title" }, say("logIn"));
      this.dialog.replaceChildren(head, element("p", { role: "alert" }, why), form);
      this.dialog.showModal();
    });
  }
}
