// Form fields by description: { kind, name, label, … }. Kinds: text, line, number, select, picture, sound, note.
import { h, newId, show } from "./dom.js";
import { pictureField } from "./picture.js";

const KINDS = { text: textField, line: textField, number: numberField, select: selectField, picture: pictureField };

export const addKind = (name, make) => (KINDS[name] = make);

export function makeFields(described) {
  const fields = described.map((each) => makeField(each));
  const main = fields.filter((each) => !each.described.more).map((each) => each.node);
  const more = fields.filter((each) => each.described.more).map((each) => each.node);
  return {
    nodes: [main, more.length ? h("details", { class: "more" }, h("summary", {}, "Options"), h("div", { class: "grid" }, more)) : null],
    field: (name) => fields.find((each) => each.described.name === name),
    clearErrors: () => fields.forEach((each) => each.error("")),
    /** The values by name; null if one is missing or wrong, which is then shown. */
    async values() {
      const out = {};
      for (const each of fields) {
        const { name, required } = each.described;
        try {
          const value = await each.read();
          if (required && (value === null || value === "")) throw new Error(each.described.missing ?? "Fill this in.");
          if (value !== null && value !== "") out[name] = value;
        } catch (error) {
          each.error(error.message);
          each.focus();
          return null;
        }
      }
      return out;
    },
    /** Shows an error of the server at the field that it names. */
    showError(error) {
      const path = (error.param ?? "").replace(/^(parameters|inputs)\./, "").split(/[.[]/)[0];
      const found = fields.find((each) => (each.described.params ?? [each.described.name]).includes(path));
      if (!found) return false;
      found.error(error.message);
      found.focus();
      return true;
    },
  };
}

function makeField(described) {
  const id = newId("field");
  const message = h("p", { class: "field-error", id: `${id}-error`, hidden: true });
  const made = KINDS[described.kind]({ ...described, id, errorId: `${id}-error` });
  const label = h("label", { for: id, id: `${id}-label` }, described.label);
  const hint = described.hint && h("span", { class: "hint", id: `${id}-hint` }, described.hint);
  const node = h("div", { class: `field ${described.wide === false ? "" : "wide"}` }, label, hint, made.node, message);
  return {
    described, node, input: made.input, set: made.set,
    read: made.read,
    focus: () => made.input.focus(),
    error(text) {
      message.textContent = text;
      message.hidden = !text;
      made.input.setAttribute("aria-invalid", String(Boolean(text)));
    },
  };
}

function textField({ id, errorId, kind, value = "", rows = 4, placeholder, tools }) {
  const input = h(kind === "line" ? "input" : "textarea", { id, placeholder, "aria-describedby": errorId, spellcheck: "false", ...(kind === "line" ? { type: "text" } : { rows: String(rows) }) });
  input.value = value;
  const node = tools ? h("div", {}, input, h("div", { class: "actions tight" }, tools(input))) : input;
  return { node, input, read: () => (input.value.trim() ? input.value : ""), set: (text) => (input.value = text) };
}

function numberField({ id, errorId, value = "", min, max, step = "any", placeholder, whole = false }) {
  const input = h("input", { id, type: "number", min, max, step, placeholder, "aria-describedby": errorId, inputmode: whole ? "numeric" : "decimal" });
  input.value = value;
  const read = () => {
    if (input.validity.badInput) throw new Error("This is not a number.");
    if (input.value === "") return null;
    const found = Number(input.value);
    if (whole && !Number.isInteger(found)) throw new Error("This must be a whole number.");
    if ((min !== undefined && found < min) || (max !== undefined && found > max)) throw new Error(`This must be from ${min} to ${max}.`);
    return found;
  };
  return { node: input, input, read, set: (number) => (input.value = number) };
}

function selectField({ id, errorId, options, value }) {
  const input = h("select", { id, "aria-describedby": errorId });
  const set = (found, chosen) => {
    show(input, found.map(([key, text]) => h("option", { value: key }, text)));
    input.value = chosen;
  };
  set(options, value ?? options[0][0]);
  return { node: input, input, read: () => input.value, set };
}
