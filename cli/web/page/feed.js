// The server's events: the key goes in a header, which EventSource cannot send.

import { say } from "./words.js";

const AGAIN_MS = [500, 1000, 2000, 5000];
const SLOW_MS = 5000;

// Aborted each time this tab goes to the background or comes back.
let hidden = new AbortController();
document.addEventListener("visibilitychange", () => {
  hidden.abort();
  hidden = new AbortController();
});

/**
 * What goes with each call: a token, "" if a proxy adds it; and the namespace to show to who may see no more, "" for the server's choice.
 * @typedef {{token: string, namespace: string}} Key
 */

/** The key from the address, which then loses it; kept for a reload of this tab. @returns {Key} */
export function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) {
    sessionStorage.setItem("key", key);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return { token: sessionStorage.getItem("key") ?? "", namespace: "" };
}

/** The server wants a token, or another one. */
class LoginError extends Error {}

/** @param {string} path @param {Key} key @param {RequestInit} [more]  how to ask, if not by GET */
export async function ask(path, key, more = {}) {
  const url = new URL(path, location.origin);
  if (key.namespace && !url.searchParams.has("namespace")) url.searchParams.set("namespace", key.namespace);
  const answer = await fetch(url, { ...more, headers: key.token ? { Authorization: `Bearer ${key.token}` } : {} });
  if (answer.ok) return answer;
  const why = (await answer.text()).trim() || String(answer.status);
  throw answer.headers.has("WWW-Authenticate") ? new LoginError(why) : new Error(why);
}

/**
 * Call *onBegin* at each connection, *onUpdate* with each update, and *onState* with why nothing comes, "" while it does.
 * A tab in the background lets its connection go: a browser opens only six to one server, for all tabs together.
 * *onLogin* gets why a token is wanted, and resolves once *key* has one.
 * @param {Key} key
 * @param {() => void} onBegin
 * @param {(update: Feed.Update) => void} onUpdate
 * @param {(why: string) => void} onState
 * @param {(why: string) => Promise<void>} onLogin
 */
export async function follow(key, onBegin, onUpdate, onState, onLogin) {
  for (let failures = 0; ; failures++) {
    await isShown();
    const slow = setTimeout(() => onState(say("slow")), SLOW_MS);
    const { signal } = hidden;
    try {
      const answer = await ask("/v1/feed", key, { signal });
      clearTimeout(slow);
      onBegin();
      for await (const update of events(/** @type {Body} */ (answer.body))) {
        failures = 0;
        onState("");
        onUpdate(update);
      }
      onState("ended");
    } catch (problem) {
      if (!signal.aborted) onState(messageOf(problem));
      clearTimeout(slow);
      if (problem instanceof LoginError) {
        await onLogin(problem.message);
        onState(say("connecting"));
        failures = -1;
        continue;
      }
    }
    clearTimeout(slow);
    if (signal.aborted) {
      onState(say("connecting"));
      failures = -1;
      continue;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]));
  }
}

/** @param {unknown} problem */
export function messageOf(problem) {
  return problem instanceof Error ? problem.message : String(problem);
}

/** Wait until this tab is in the foreground. @returns {Promise<void>} */
function isShown() {
  return new Promise((/** @type {(value: void) => void} */ resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}

/** @typedef {ReadableStream<Uint8Array<ArrayBuffer>>} Body */

/** @param {Body} body @returns {AsyncGenerator<Feed.Update>} */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value } = await reader.read();
    if (value === undefined) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop() ?? "";
    for (const part of parts) {
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}
