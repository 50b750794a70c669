// What a view shows live: one stream for all of its topics, which goes on over lost connections.
import { useEffect, useState } from "./lib.js";
import { current, signOut } from "./session.js";

const SILENT_SECONDS = 40;
const PAUSES = [0.2, 0.5, 1, 2, 5, 10];

// Calls `heard(id, words)` for each line and `state(word)` as the connection comes and goes. Gives the function that ends it.
export function follow(topics, heard, state) {
  let ended = false;
  let aborter = null;
  (async () => {
    for (let failures = 0; !ended; failures++) {
      try {
        aborter = new AbortController();
        await listen(topics, aborter, (id, words) => {
          failures = -1;
          state("live");
          heard(id, words);
        });
      } catch (error) {
        if (ended) return;
        if (error.code === 401) return signOut();
      }
      if (ended) return;
      state("lost");
      await new Promise((done) => setTimeout(done, 1000 * PAUSES[Math.min(Math.max(failures, 0), PAUSES.length - 1)]));
    }
  })();
  return () => {
    ended = true;
    aborter?.abort();
  };
}

async function listen(topics, aborter, heard) {
  const reply = await fetch("/ui/stream", {
    method: "POST",
    headers: { Authorization: `Bearer ${current()?.token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ topics }),
    signal: aborter.signal,
  });
  if (!reply.ok) throw Object.assign(new Error(reply.statusText), { code: reply.status });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => aborter.abort(), SILENT_SECONDS * 1000);
  };
  try {
    for (alive(); ; alive()) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line) continue;
        const { id, ...words } = JSON.parse(line);
        heard(id, words);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

// A hook: `take(id, words)` gets every line while the view is there, and after a lost connection the whole again.
// Gives "connecting", "live" or "lost".
export function useTopics(topics, take) {
  const [state, setState] = useState("connecting");
  const key = JSON.stringify(topics);
  useEffect(() => {
    setState("connecting");
    return follow(topics, take, setState);
  }, [key]);
  useEffect(() => announce(state), [state]);
  return state;
}

let told = "connecting";
const watchers = new Set();

function announce(state) {
  told = state;
  for (const heard of watchers) heard(state);
}

// For the frame around the views: whether what is shown is live.
export function useConnection() {
  const [state, setState] = useState(told);
  useEffect(() => {
    watchers.add(setState);
    return () => watchers.delete(setState);
  }, []);
  return state;
}
