// A part of the page that is drawn again only if what it shows differs.

import { currentLanguage } from "./words.js";

export class Part extends HTMLElement {
  /** @type {unknown[]} */
  #drawn = [];

  /** Whether one of *values*, or the language, differs from the last call. @param {...unknown} values */
  differs(...values) {
    const now = [currentLanguage(), ...values];
    const before = this.#drawn;
    this.#drawn = now;
    return now.length !== before.length || now.some((value, at) => value !== before[at]);
  }
}
