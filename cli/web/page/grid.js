// Every node a row, every card a cell filled by what is promised. Only the rows in view are made.

import { element, keys, share } from "./dom.js";
import { figure, say } from "./words.js";

const ROW_PX = 34;
const BEYOND = 6;
// The column of a node's name, before its cards.
const NAME = -1;
/** @type {Map<string, [number, number]>} */
const STEPS = new Map([["ArrowDown", [1, 0]], ["ArrowUp", [-1, 0]], ["ArrowRight", [0, 1]], ["ArrowLeft", [0, -1]]]);
// What the legend shows: the class of a cell, and the word for it.
/** @type {[string, import("./words.js").Word][]} */
const MARKS = [["full", "used"], ["", "free"], ["stranded", "stranded"], ["unhealthy", "unhealthyOrAway"]];

export class NodeGrid extends HTMLElement {
  /** @param {import("./model.js").Model} model @param {import("./detail.js").Detail} detail */
  constructor(model, detail) {
    super();
    this.model = model;
    this.detail = detail;
    this.head = element("h2");
    this.count = element("p", { className: "quiet" });
    this.legend = element("p", { className: "quiet legend" });
    this.space = element("div", { className: "space", role: "rowgroup" });
    this.view = element("div", { className: "view", role: "grid", tabIndex: 0 }, this.space);
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("keydown", (event) => this.move(event));
    this.append(this.head, this.count, this.legend, this.view);
    /** @type {Feed.Node[]} */
    this.nodes = [];
  }

  show() {
    this.hidden = Boolean(this.model.sees && !this.model.sees.nodes);
    this.nodes = this.model.shownNodes();
    // Cards that are requested by number are one cell.
    const cards = this.nodes.flatMap((node) => node.cards).reduce((sum, card) => sum + (card.mode === "whole" ? card.total ?? 1 : 1), 0);
    this.head.textContent = say("nodes");
    this.count.textContent = say("shown", this.nodes.length, cards);
    this.legend.replaceChildren(...keys(MARKS.map(([mark, word]) => [`card ${mark}`, say(word)])));
    this.view.setAttribute("aria-label", say("nodes"));
    this.view.setAttribute("aria-rowcount", String(this.nodes.length));
    this.space.style.height = `${this.nodes.length * ROW_PX}px`;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(this.nodes.length, Math.ceil((this.view.scrollTop + this.view.clientHeight) / ROW_PX) + BEYOND);
    const focused = this.focused();
    this.space.replaceChildren(...this.nodes.slice(first, last).map((node, at) => this.row(node, first + at)));
    if (focused) this.focusOn(...focused);
  }

  /** @param {Feed.Node} node @param {number} at */
  row(node, at) {
    const why = !node.ready ? say("notReady") : !node.schedulable ? say("cordoned") : node.taints.length ? say("tainted") : "";
    const name = element("button", {
      className: "link", type: "button", tabIndex: -1, title: node.name, "data-row": at, "data-column": NAME,
    }, node.name);
    name.addEventListener("click", () => this.detail.node(node.name));
    const head = element("div", { className: "name", role: "rowheader" }, name, why ? element("span", { className: "quiet" }, ` ${why}`) : null);
    const cells = element("div", { className: "cells", role: "presentation" }, ...node.cards.map((card, column) => this.cell(node, card, at, column)));
    const row = element("div", { className: "row", role: "row", "aria-rowindex": at + 1 }, head, cells);
    row.style.top = `${at * ROW_PX}px`;
    return row;
  }

  /** @param {Feed.Node} node @param {Feed.Card} card @param {number} at @param {number} column */
  cell(node, card, at, column) {
    const label = `${node.name} ${card.id}: ${describe(card)}`;
    const cell = element("button", {
      className: ["card", ...marks(card)].join(" "), type: "button", title: label, tabIndex: -1, "aria-label": label, "data-row": at, "data-column": column,
    });
    cell.style.setProperty("--part", String(share(card.used, card.total)));
    cell.addEventListener("click", () => this.detail.card(node.name, card.id, card.protocol));
    return element("div", { role: "gridcell" }, cell);
  }

  /** Row and column of the cell that has the focus. @returns {[number, number]|null} */
  focused() {
    /** @type {HTMLElement|null|undefined} */
    const cell = document.activeElement?.closest("node-grid [data-row]");
    return cell ? [Number(cell.dataset.row), Number(cell.dataset.column)] : null;
  }

  /** @param {number} row @param {number} column */
  focusOn(row, column) {
    /** @type {HTMLElement|null} */
    const cell = this.space.querySelector(`[data-row="${row}"][data-column="${column}"]`);
    cell?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const step = STEPS.get(event.key);
    if (!step) return;
    event.preventDefault();
    const from = this.focused();
    const row = from ? clamp(from[0] + step[0], 0, this.nodes.length - 1) : Math.ceil(this.view.scrollTop / ROW_PX);
    const column = from ? clamp(from[1] + step[1], NAME, (this.nodes[row]?.cards.length ?? 0) - 1) : NAME;
    const top = row * ROW_PX;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    if (top + ROW_PX > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = top + ROW_PX - this.view.clientHeight;
    this.draw();
    this.focusOn(row, column);
  }
}

/** @param {number} value @param {number} least @param {number} most */
function clamp(value, least, most) {
  return Math.min(Math.max(value, least), Math.max(least, most));
}

/** @param {Feed.Card} card */
function marks(card) {
  if (!card.healthy) return ["unhealthy"];
  if (!card.offered || card.used === null) return ["away"];
  return card.stranded ? ["stranded"] : [];
}

/** One card in words. @param {Feed.Card} card */
export function describe(card) {
  const used = card.used === null ? say("unknown") : `${figure(card.used)} / ${figure(card.total, card.unit)}`;
  return [card.type, used, card.healthy ? "" : say("unhealthyCard"), card.healthy && card.stranded ? say("stranded") : "", card.offered ? "" : say("away"), card.note].filter(Boolean).join(", ");
}
