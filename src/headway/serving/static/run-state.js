// How the state of a run is said and shown.
import { h } from "./dom.js";

const MEANING = {
  starting: "The data is being read",
  running: "Training",
  stopping: "Saving its state",
  finished: "At its end; the model is saved",
  stopped: "Stopped before its end; it can be resumed",
  dead: "Its process is gone without an end; it can be resumed",
  failed: "Ended with an error",
  unreadable: "A file of the run is damaged",
};
export const ACTIVE = ["starting", "running", "stopping"];

export const stateChip = (state) => h("span", { class: `state ${state}`, title: MEANING[state] }, state);
export const meaning = (state) => MEANING[state] ?? state;

/** "200 steps", "3 epochs" or "5 minutes". */
export function planned(run) {
  const [name, value] = Object.entries(run.length ?? {})[0] ?? [];
  return name ? `${value.toLocaleString("en")} ${value === 1 ? name.slice(0, -1) : name}` : "";
}

export function ago(when) {
  if (!when) return "";
  const seconds = Math.max(0, (Date.now() - Date.parse(when)) / 1000);
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= size) return new Intl.RelativeTimeFormat("en").format(-Math.floor(seconds / size), unit);
  }
  return "just now";
}
