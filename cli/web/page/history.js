// What happened to a pod, and what a card was, as tables.

import { bar, element, row, table } from "./dom.js";
import { figure, say } from "./words.js";

/** @type {Record<string, import("./words.js").Word>} */
const WHAT = {
  asked: "wasAsked", waits: "wasWaiting", reserved: "wasReserved", released: "wasReleased", sent: "wasSent", bound: "wasBound", served: "wasServed", evicted: "wasEvicted",
  ended: "wasEnded", gone: "wasGone",
};

/** A table of the events of each pod that had the name, the last one last. @param {Feed.Why} why */
export function lives(why) {
  const heads = [say("time"), say("happened"), say("details")];
  const parts = why.lives.flatMap((life, at) => [
    at ? element("p", { className: "quiet" }, say("nextPod")) : null,
    table(say("history"), heads, life.events.map((one) => row(moment(one.last), [what(one), times(one)].filter(Boolean).join(", "), one.text))),
  ]);
  const late = why.as_of ? [say("storedAt", moment(why.as_of))] : [];
  return [element("h3", {}, say("history")), ...parts, ...[...late, ...why.notes].map((note) => element("p", { className: "quiet" }, note))];
}

/** @param {Feed.Happened} one */
function what(one) {
  const word = WHAT[one.what];
  return word ? say(word) : one.what;
}

/** @param {Feed.Happened} one */
function times(one) {
  if (one.times <= 1) return "";
  return one.first ? say("timesSince", one.times, moment(one.first)) : say("times", one.times);
}

/** A table of what a card was, the last one last. @param {Feed.CardHistory} found @param {(card: Feed.Card) => string} holders */
export function cardStates(found, holders) {
  const heads = [say("since"), say("health"), say("used"), say("heldBy")];
  const rows = found.changes.map(({ at, card }) => (card
    ? row(moment(at), health(card), element("div", {}, card.used === null ? say("unknown") : `${card.used} / ${figure(card.total, card.unit)}`, bar(card.used, card.total)), holders(card))
    : row(moment(at), say("noCard"), "", "")));
  const [first] = found.changes;
  return [element("h3", {}, say("history")), table(say("history"), heads, rows), element("p", { className: "quiet" }, say("knownSince", moment(first?.at ?? "")))];
}

/** @param {Feed.Card} card */
function health(card) {
  if (!card.offered) return say("away");
  return card.healthy ? say("healthy") : [say("unhealthyCard"), card.note].filter(Boolean).join(": ");
}

/** @param {string|null} time  as the API server writes it */
export function moment(time) {
  return time ? time.replace("T", " ").replace("Z", " UTC") : say("unknown");
}
