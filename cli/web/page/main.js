// One page: filters, cards by type, waiting pods, nodes; each follows the model.

import { follow, takeKey } from "./feed.js";
import { FilterBar } from "./filters.js";
import { FindingList } from "./findings.js";
import { FitForm } from "./fits.js";
import { NodeGrid } from "./grid.js";
import { KindList } from "./kinds.js";
import { Detail } from "./detail.js";
import { Login } from "./login.js";
import { MyPods } from "./mine.js";
import { Model } from "./model.js";
import { QueueList } from "./queues.js";
import { DayChart } from "./trend.js";
import { WaitingList } from "./waiting.js";
import { currentLanguage, otherLanguage, say } from "./words.js";

const ELEMENTS = {
  "filter-bar": FilterBar, "my-pods": MyPods, "waiting-list": WaitingList, "finding-list": FindingList, "day-chart": DayChart, "node-grid": NodeGrid, "kind-list": KindList,
  "queue-list": QueueList, "fit-form": FitForm,
};
for (const [name, made] of Object.entries(ELEMENTS)) customElements.define(name, made);

const key = takeKey();
const model = new Model();
const detail = new Detail(byId("detail", HTMLDialogElement), model, key);
const login = new Login(byId("login", HTMLDialogElement), key);
const state = byId("state", HTMLElement);
const language = byId("language", HTMLButtonElement);
const filters = new FilterBar(model);
const main = [
  new MyPods(model, detail), new WaitingList(model, detail), new DayChart(model), new NodeGrid(model, detail), new KindList(model), new QueueList(model), new FindingList(model, detail),
  new FitForm(model, detail),
];
const parts = [filters, ...main];
language.before(filters);
byId("main", HTMLElement).append(...main);
let lost = say("connecting");

/**
 * @template {HTMLElement} T
 * @param {string} id @param {{new (): T}} kind @returns {T}
 */
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html has no ${id}`);
  return found;
}

function showState() {
  const why = lost || model.stale;
  const sees = model.sees && !model.sees.nodes ? say(model.sees.namespace ? "noCards" : "noNodes", model.sees.namespace) : "";
  state.textContent = [why ? (why === say("connecting") ? why : say("lost", why)) : say("live"), sees, ...model.notes].filter(Boolean).join(" · ");
  state.classList.toggle("bad", Boolean(why));
}

function show() {
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-CN" : "en";
  language.textContent = say("other");
  language.setAttribute("aria-label", say("language"));
  for (const part of parts) part.show();
  showState();
}

language.addEventListener("click", () => {
  otherLanguage();
  show();
});
model.addEventListener("change", show);
show();
follow(
  key,
  () => model.begin(),
  (update) => model.apply(update),
  (why) => {
    lost = why;
    showState();
  },
  (why) => {
    // The next token may be somebody else's.
    detail.close();
    model.begin();
    model.changed();
    return login.ask(why);
  },
);
