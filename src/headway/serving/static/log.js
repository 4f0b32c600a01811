// The log of a run, live: entries from /studio/runs/NAME/events. A broken connection is resumed where it ended, by the
// browser; a log that was truncated begins again.
import { getJson, segment } from "./api.js";
import { ACTIVE } from "./run-state.js";

const PAUSE = 3000;

/** Calls `change(log)` after each change. Returns a function that closes the connection. A run that has ended may be
 * resumed from elsewhere: it is looked at from time to time. */
export function follow(name, change) {
  const path = `/studio/runs/${segment(name)}`;
  let [source, timer, closed] = [null, null, false];

  function connect() {
    const log = { run: null, entries: [] };
    source = new EventSource(`${path}/events`);
    const on = (event, act) =>
      source.addEventListener(event, (message) => {
        act(JSON.parse(message.data));
        change(log);
      });
    on("reset", () => (log.entries = []));
    on("entries", (entries) => log.entries.push(...entries));
    on("run", (run) => (log.run = run));
    on("end", (run) => {
      log.run = run;
      source.close();
      timer = setTimeout(look, PAUSE);
    });
  }
  async function look() {
    const run = document.hidden ? null : await getJson(path).catch(() => null);
    if (closed) return;
    if (run && ACTIVE.includes(run.state)) connect();
    else timer = setTimeout(look, PAUSE);
  }
  connect();
  return () => {
    closed = true;
    clearTimeout(timer);
    source.close();
  };
}

/** Lines by name: the training loss, then each score of the held-out data, then the learning rate. */
export function curvesOf(entries) {
  const found = new Map([["Training loss", []]]);
  const rates = [];
  for (const entry of entries) {
    if (Number.isFinite(entry.loss)) found.get("Training loss").push([entry.step, entry.loss]);
    if (Number.isFinite(entry.lr)) rates.push([entry.step, entry.lr]);
    for (const [name, value] of Object.entries(entry.scores ?? {})) {
      if (!Number.isFinite(value)) continue;
      const title = `Held-out ${name}`;
      if (!found.has(title)) found.set(title, []);
      found.get(title).push([entry.step, value]);
    }
  }
  if (rates.length) found.set("Learning rate", rates);
  return found;
}
