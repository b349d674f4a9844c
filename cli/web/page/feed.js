// The server's events: the key goes in a header, which EventSource cannot send.

const AGAIN_MS = [500, 1000, 2000, 5000];

/** The key from the address, which then loses it; kept for a reload of this tab. */
export function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) {
    sessionStorage.setItem("key", key);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem("key") ?? "";
}

/** @param {string} path @param {string} key @param {RequestInit} [more]  how to ask, if not by GET */
export async function ask(path, key, more = {}) {
  const answer = await fetch(path, { ...more, headers: { Authorization: `Bearer ${key}` } });
  if (!answer.ok) throw new Error((await answer.text()).trim() || String(answer.status));
  return answer;
}

/**
 * Call *onBegin* at each connection, *onUpdate* with each update, and *onState* with why nothing comes, "" while it does.
 * @param {string} key
 * @param {() => void} onBegin
 * @param {(update: object) => void} onUpdate
 * @param {(why: string) => void} onState
 */
export async function follow(key, onBegin, onUpdate, onState) {
  for (let failures = 0; ; failures++) {
    try {
      const answer = await ask("/v1/feed", key);
      onBegin();
      for await (const update of events(answer.body)) {
        failures = 0;
        onState("");
        onUpdate(update);
      }
      onState("ended");
    } catch (problem) {
      onState(problem instanceof Error ? problem.message : String(problem));
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop() ?? "";
    for (const part of parts) {
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}
