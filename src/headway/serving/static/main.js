// The sections of the page, by the address after #: models, runs, one run, comparison, training.
import { getJson } from "./api.js";
import { announce, h, show, tip } from "./dom.js";
import { problem } from "./states.js";

const SECTIONS = [
  { name: "Models", at: /^\/(?:models\/(.+))?$/, load: () => import("./models.js"), link: "#/" },
  { name: "Runs", at: /^\/runs(?:\/(.+))?$/, load: () => import("./runs.js"), link: "#/runs", runs: true },
  { name: "Compare", at: /^\/compare(?:\/(.+))?$/, load: () => import("./compare.js"), runs: true },
  { name: "Train", at: /^\/train(?:\/(.+))?$/, load: () => import("./train.js"), link: "#/train", train: true },
];
const main = document.getElementById("main");
let leave = () => {};
let turn = 0;

function navigation(facts, current) {
  const shown = SECTIONS.filter((each) => each.link && (!each.runs || facts.runs) && (!each.train || facts.train));
  const here = current === "Compare" ? "Runs" : current;
  show(
    document.getElementById("nav"),
    shown.map((each) => h("a", { href: each.link, "aria-current": each.name === here ? "page" : null }, each.name)),
  );
}

async function go() {
  const own = ++turn;
  leave();
  leave = () => {};
  tip(null);
  const path = location.hash.slice(1) || "/";
  const section = SECTIONS.find((each) => each.at.test(path)) ?? SECTIONS[0];
  const name = section.at.exec(path)?.[1];
  const root = h("div", { class: "view" });
  try {
    const [facts, view] = await Promise.all([getJson("/studio"), section.load()]);
    if (own !== turn) return;
    navigation(facts, section.name);
    show(main, h("h1", { class: "sr-only" }, "Headway studio"), root);
    const given = name === undefined ? null : decodeURIComponent(name);
    document.title = `${given ? `${given} · ` : ""}${section.name} · Headway`;
    leave = (await view.open(root, { facts, name: given })) ?? leave;
    announce(`${section.name}${given ? `, ${given}` : ""}`);
  } catch (error) {
    if (own !== turn) return;
    if (!root.isConnected) show(main, h("h1", { class: "sr-only" }, "Headway studio"), root);
    show(root, problem(error, { again: go }));
  }
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  go().then(() => main.focus({ preventScroll: true }));
});
addEventListener("keydown", (event) => event.key === "Escape" && tip(null));
addEventListener("scroll", () => tip(null), { passive: true });
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
await go();
