// The last day as two charts: what cards were used for, and how many pods waited. The arrow keys move along it.

import { element, keys } from "./dom.js";
import { Part } from "./part.js";
import { say } from "./words.js";

const HEIGHT = 100;
/** @type {[string, import("./words.js").Word][]} */
const MARKS = [["promised", "promised"], ["stranded", "strandedPart"], ["idle", "free"], ["waiting", "waiting"], ["", "unknown"]];
const SVG = "http://www.w3.org/2000/svg";

/** @typedef {(number|null)[]} Points  null: unknown */
/** @typedef {{promised: Points, idle: Points, stranded: Points, waiting: Points}} Sums  cards in thousandths */
/** The class of an area, its lower and its upper edge. @typedef {[string, Points, Points]} Area */

export class DayChart extends Part {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    super();
    this.model = model;
    this.head = element("h2");
    this.legend = element("p", { className: "quiet legend" });
    this.told = element("p", { className: "told" });
    this.plots = element("div", { className: "plots", tabIndex: 0, role: "slider" });
    this.times = element("p", { className: "quiet times" });
    this.notes = element("div", { className: "quiet" });
    this.plots.addEventListener("pointermove", (event) => this.moveTo(Math.floor(event.offsetX / this.plots.clientWidth * this.count)));
    this.plots.addEventListener("pointerleave", () => this.moveTo(this.last()));
    this.plots.addEventListener("keydown", (event) => this.key(event));
    this.append(this.head, this.legend, this.told, this.plots, this.times, this.notes);
    /** @type {Sums} */
    this.sums = { promised: [], idle: [], stranded: [], waiting: [] };
    // The point that is told.
    this.at = 0;
    this.isAtEnd = true;
  }

  get count() {
    return this.sums.promised.length;
  }

  show() {
    const { trend, filters } = this.model;
    if (!this.differs(trend, filters.type, filters.protocol, filters.queue, filters.node, filters.namespace)) return;
    this.hidden = !trend;
    if (!trend) return;
    this.sums = this.model.shownTrend(trend);
    const { promised, idle, stranded, waiting } = this.sums;
    const isKnown = trend.observed.some(Boolean);
    const wide = isKnown && (filters.node || filters.namespace) ? [say("dayWide")] : [];
    this.head.textContent = say("day");
    this.notes.replaceChildren(...[...wide, ...trend.notes, ...(isKnown || trend.notes.length ? [] : [say("noDay")])].map((note) => element("p", {}, note)));
    for (const one of [this.legend, this.told, this.plots, this.times]) one.hidden = !isKnown;
    if (!isKnown) return;
    this.legend.replaceChildren(...keys(MARKS.map(([mark, word]) => [`swatch ${mark}`, say(word)])));
    const used = plus(promised, stranded), cards = plus(used, idle), none = cards.map(() => 0);
    const mostCards = most(cards), mostPods = most(waiting);
    this.plots.replaceChildren(
      plot("cards", say("cardsMost", cardsOf(mostCards)), mostCards, [["promised", none, promised], ["stranded", promised, used], ["idle", used, cards], ["sky", cards, none.map(() => mostCards)]]),
      plot("pods", say("podsMost", mostPods), mostPods, [["waiting", none, waiting], ["sky", waiting, none.map(() => mostPods)]]),
      element("i", { className: "cursor" }),
    );
    this.plots.setAttribute("aria-label", say("day"));
    this.plots.setAttribute("aria-valuemin", "0");
    this.plots.setAttribute("aria-valuemax", String(Math.max(0, this.count - 1)));
    this.times.replaceChildren(...[0, 0.5, 1].map((part) => element("span", {}, this.time(part * this.count))));
    this.moveTo(this.isAtEnd ? this.last() : this.at);
  }

  /** The last point that is known. */
  last() {
    return (this.model.trend?.observed ?? []).reduce((found, minutes, at) => (minutes ? at : found), 0);
  }

  /** @param {number} at */
  moveTo(at) {
    this.at = Math.min(Math.max(at, 0), Math.max(this.count - 1, 0));
    this.isAtEnd = this.at === this.last();
    const { promised, idle, stranded, waiting } = this.sums;
    const [used, free, lost, pods] = [promised, idle, stranded, waiting].map((points) => points[this.at] ?? null);
    const time = this.time(this.at);
    const cards = used === null || free === null || lost === null ? say("cardsUnknown") : say("cardsThen", cardsOf(used), cardsOf(used + free + lost), cardsOf(free), cardsOf(lost));
    this.told.textContent = say("then", time, cards, pods === null ? say("podsUnknown") : say("podsMost", pods));
    this.plots.style.setProperty("--part", String((this.at + 0.5) / Math.max(this.count, 1)));
    this.plots.setAttribute("aria-valuenow", String(this.at));
    this.plots.setAttribute("aria-valuetext", this.told.textContent);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, number>} */
    const to = { ArrowLeft: this.at - 1, ArrowDown: this.at - 1, ArrowRight: this.at + 1, ArrowUp: this.at + 1, PageDown: this.at - 12, PageUp: this.at + 12, Home: 0, End: this.count - 1 };
    const at = to[event.key];
    if (at === undefined) return;
    event.preventDefault();
    this.moveTo(at);
  }

  /** When point *at* begins. @param {number} at */
  time(at) {
    const { since, step_s } = /** @type {Feed.Trend} */ (this.model.trend);
    return new Date(Date.parse(since ?? "") + at * step_s * 1000).toISOString().slice(0, 16).replace("T", " ");
  }
}

/** Both in sum, where both are known. @param {Points} one @param {Points} other @returns {Points} */
export function plus(one, other) {
  return one.map((value, at) => {
    const more = other[at] ?? null;
    return value === null || more === null ? null : value + more;
  });
}

/** @param {Points} points */
function most(points) {
  return points.reduce((/** @type {number} */ found, value) => Math.max(found, value ?? 0), 0);
}

/** Thousandths of a card as cards: never 0 while it is more. @param {number} thousandths */
function cardsOf(thousandths) {
  return thousandths && thousandths < 50 ? "<0.1" : String(Math.round(thousandths / 100) / 10);
}

/** @param {string} name @param {string} label  of its upper edge @param {number} top  the figure there @param {Area[]} areas */
function plot(name, label, top, areas) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${areas[0]?.[1].length ?? 0} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const [mark, lower, upper] of areas) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", mark);
    path.setAttribute("d", outline(lower, upper, top || 1));
    svg.append(path);
  }
  return element("div", { className: `plot ${name}` }, svg, element("span", { className: "most" }, label));
}

/** The area between two edges in steps, without what is unknown. @param {Points} lower @param {Points} upper @param {number} top */
function outline(lower, upper, top) {
  const y = (/** @type {number} */ value) => HEIGHT * (1 - value / top);
  return upper.map((high, at) => {
    const low = lower[at] ?? null;
    return high === null || low === null || high === low ? "" : `M${at} ${y(low)}V${y(high)}H${at + 1}V${y(low)}Z`;
  }).join("");
}
