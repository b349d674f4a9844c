// Elements without markup in strings: what comes from the cluster is only ever text.

/** @typedef {Node|string|number|null} Child  null is left out */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} properties  set as properties; "data-", "aria-" and "role" as attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (/^(aria-|data-|role$|scope$)/.test(name)) made.setAttribute(name, String(value));
    else Object.assign(made, { [name]: value });
  }
  for (const child of children) if (child !== null) made.append(typeof child === "number" ? String(child) : child);
  return made;
}

/**
 * A bar of what is used, with a mark at *mark* of *total*; none if that is unknown, because an empty one means 0.
 * @param {number|null} used @param {number|null} total @param {number|null} [mark] @returns {HTMLElement|null}
 */
export function bar(used, total, mark = null) {
  if (used === null || total === null) return null;
  const part = element("span");
  part.style.setProperty("--part", String(share(used, total)));
  const at = mark ? element("i") : null;
  at?.style.setProperty("--part", String(share(mark, total)));
  return element("span", { className: "bar", "aria-hidden": "true" }, part, at);
}

/** What marks mean. @param {[string, string][]} marks  the classes of each mark, and its meaning */
export function keys(marks) {
  return marks.map(([mark, text]) => element("span", { className: "key" }, element("span", { className: mark, "aria-hidden": "true" }), text));
}

/** A text with a button that copies it. @param {string} text @param {string} label */
export function copied(text, label) {
  const button = element("button", { type: "button", className: "copy", title: label, "aria-label": `${label}: ${text}` }, label);
  button.addEventListener("click", () => navigator.clipboard.writeText(text));
  return element("div", {}, text, " ", button);
}

/** A button that looks like a link. @param {string} text @param {() => void} onClick */
export function link(text, onClick) {
  const button = element("button", { className: "link", type: "button" }, text);
  button.addEventListener("click", onClick);
  return button;
}

/**
 * How much is used, from 0 to 1; never 0 while something is used, never 1 while something is free.
 * @param {number|null} used @param {number|null} total
 */
export function share(used, total) {
  if (!used || !total) return 0;
  return used >= total ? 1 : Math.min(0.96, Math.max(0.04, used / total));
}

/**
 * A table that scrolls sideways by itself, also by keys. On a narrow screen each row is a block, whose cells have the heads as labels.
 * @param {string} label @param {string[]} heads @param {HTMLElement[]} rows
 */
export function table(label, heads, rows) {
  for (const each of rows) for (const [at, cell] of [...each.children].entries()) cell.setAttribute("data-head", heads[at] ?? "");
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const inner = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, inner);
}

/** @param {...Child} cells */
export function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => element("td", typeof cell === "number" ? { className: "number" } : {}, cell)));
}
