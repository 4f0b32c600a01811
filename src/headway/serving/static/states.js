// What is shown where there is nothing, or where something failed.
import { h } from "./dom.js";

export function problem(error, { again } = {}) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("strong", {}, "This did not work"),
    h("p", {}, error.message || String(error)),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

export function empty(title, text, ...actions) {
  return h("div", { class: "notice" }, h("strong", {}, title), h("p", {}, text), actions);
}

/** A command that can be copied by hand. */
export const commandLine = (text) => h("pre", { class: "code", tabindex: "0" }, h("code", {}, text));
