// Numbers and tokens as a person reads them.

const MINUS = "−";
const RAISED = { "-": "⁻", "+": "", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((sign, digit) => [digit, sign])) };

// 1.2e-7 → 1.2×10⁻⁷
function powerOfTen(text) {
  const [digits, power] = text.split("e");
  return `${Number(digits)}×10${[...power].map((sign) => RAISED[sign]).join("")}`;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (value === -Infinity) return `${MINUS}∞`;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  let text;
  if (value === 0) text = "0";
  else if (size >= 1e-4 && size < 1e7) text = String(Number(value.toPrecision(digits)));
  else text = powerOfTen(value.toExponential(digits - 1));
  return text.replaceAll("-", MINUS);
}

// A column of numbers reads best with one number of decimals.
const fixed = (value, decimals = 3) =>
  value === -Infinity ? `${MINUS}∞` : value.toFixed(decimals).replace("-", MINUS);

function percent(value) {
  if (value > 0 && value < 0.001) return "<0.1%";
  return `${(100 * value).toFixed(value >= 0.0995 ? 0 : 1)}%`;
}

const spelt = (sign) => `⟨${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

// Control and direction characters are spelt out; line ends and tabs stay.
const harmless = (text) =>
  text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/gu,
    spelt,
  );

// What cannot be seen is shown by a sign: spaces, line ends, and a token of nothing but joiners and the like.
function visible(text) {
  if (text === "") return "∅";
  if (/^\p{Cf}+$/u.test(text)) return text.replace(/./gu, spelt);
  return harmless(text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥"));
}

// Each piece of text keeps its own direction: a Hebrew token does not turn the sentence around it.
const bdi = (text, kind = "word") => el("bdi", { class: kind, dir: "auto", text });
const word = (token, kind = "word") => bdi(visible(token), kind);

// Where there are many, a long one is cut here: a thousand clipped boxes take a browser longer than all else on the page.
const brief = (text, most = 14) => {
  const letters = [...text];
  return bdi(letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text, "brief");
};
