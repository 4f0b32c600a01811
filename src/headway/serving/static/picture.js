// A picture from a file, by dropping it, or from the clipboard.
import { h, show } from "./dom.js";

export function pictureField({ id, errorId }) {
  let file = null;
  let address = null;
  const image = h("img", { alt: "The chosen picture", class: "preview" });
  const input = h("input", { id, type: "file", accept: "image/*", class: "file", "aria-describedby": errorId });
  const zone = h("div", { class: "drop" });
  const prompt = h("p", { class: "quiet" }, "Drop a picture here, paste one, or choose a file.");

  function take(found) {
    if (!found) return;
    if (address) URL.revokeObjectURL(address);
    [file, address] = [found, URL.createObjectURL(found)];
    image.src = address;
    show(zone, image, input);
  }
  onDrop(zone, (files) => take(files[0]));
  zone.addEventListener("paste", (event) => take([...event.clipboardData.files][0]));
  input.addEventListener("change", () => take(input.files[0]));
  show(zone, prompt, input);
  return { node: zone, input, set: take, read: () => file };
}

/** Calls back with the files that are dropped on a node, and marks it while they are above. */
export function onDrop(node, take) {
  const mark = (on) => (event) => {
    event.preventDefault();
    node.classList.toggle("over", on);
  };
  node.addEventListener("dragover", mark(true));
  node.addEventListener("dragleave", mark(false));
  node.addEventListener("drop", (event) => {
    mark(false)(event);
    if (event.dataTransfer.files.length) take([...event.dataTransfer.files]);
  });
}
