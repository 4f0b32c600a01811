// A text by its tokens. Pointing at a token, or moving to it with the arrow keys, shows its probability and what else
// was likely.
import { h, percent, tip } from "./dom.js";

const LEVELS = [0.9, 0.6, 0.3, 0.1]; // of probability, from likely to unlikely

export function tokenText(label) {
  const node = h("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": `${label}. Arrow keys show the probability of each token.` });
  const spans = [];
  let at = -1;

  function point(index) {
    spans[at]?.classList.remove("at");
    at = Math.max(0, Math.min(index, spans.length - 1));
    const span = spans[at];
    if (!span) return;
    span.classList.add("at");
    tip(span, details(span.token));
  }
  function leave() {
    spans[at]?.classList.remove("at");
    at = -1;
    tip(null);
  }
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    point(at + step);
  });
  node.addEventListener("blur", leave);
  node.addEventListener("pointerleave", leave);
  node.addEventListener("pointerover", (event) => {
    const index = spans.indexOf(event.target);
    if (index >= 0) point(index);
  });

  return {
    node,
    text: () => spans.map((span) => span.textContent).join(""),
    /** `token`: { text, logprob, top: [{ text, logprob }] }; without a logprob it is plain text. */
    add(token) {
      const known = Number.isFinite(token.logprob);
      const level = known ? LEVELS.findIndex((least) => Math.exp(token.logprob) >= least) : 0;
      const span = h("span", { class: known ? `token p${level < 0 ? LEVELS.length : level}` : null }, token.text);
      if (known) {
        span.token = token;
        spans.push(span);
      }
      node.append(span);
    },
  };
}

function details(token) {
  const others = token.top.filter((each) => each.text !== token.text);
  const row = (each, own) =>
    h("tr", { class: own ? "own" : null }, h("td", {}, visible(each.text)), h("td", { class: "number" }, percent(Math.exp(each.logprob))));
  return h("table", {}, h("tbody", {}, row(token, true), others.map((each) => row(each, false))));
}

/** Spaces and line breaks as signs. */
export const visible = (text) => text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";

/** The token of a chunk of /v1/chat/completions, or of /v1/completions. */
export function chatToken(choice) {
  const found = choice.logprobs?.content?.[0];
  const text = choice.delta.content ?? "";
  if (!found) return { text };
  return { text, logprob: found.logprob, top: found.top_logprobs.map((each) => ({ text: each.token, logprob: each.logprob })) };
}

export function completionToken(choice) {
  const found = choice.logprobs;
  if (!found?.tokens?.length) return { text: choice.text };
  const top = Object.entries(found.top_logprobs?.[0] ?? {}).map(([text, logprob]) => ({ text, logprob }));
  return { text: choice.text, logprob: found.token_logprobs[0], top: top.sort((a, b) => b.logprob - a.logprob) };
}
