// The story's arrays, decoded on first use: base64 of little-endian float32, or of fractions, 16-bit whole
// numbers n that stand for n / 65535.

function bytes(data) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(data);
  const text = atob(data);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

function decode({ data, type }) {
  const { buffer } = bytes(data);
  return type === "fraction" ? Float32Array.from(new Uint16Array(buffer), (n) => n / 65535) : new Float32Array(buffer);
}

class Tensor {
  constructor(shape, values) {
    this.shape = shape;
    this.read = typeof values === "function" ? values : () => values;
  }

  get values() {
    const values = this.read();
    this.read = () => values;
    return values;
  }

  // The part with these leading indices, itself a tensor that shares the numbers.
  of(...index) {
    const shape = this.shape.slice(index.length);
    const size = shape.reduce((a, b) => a * b, 1);
    let start = 0;
    index.forEach((each, axis) => {
      start = start * this.shape[axis] + each;
    });
    return new Tensor(shape, this.values.subarray(start * size, (start + 1) * size));
  }

  // Some of its rows, likewise.
  rows(first, count) {
    const size = this.values.length / this.shape[0];
    return new Tensor([count, ...this.shape.slice(1)], this.values.subarray(first * size, (first + count) * size));
  }

  at(...index) {
    return this.of(...index).values[0];
  }
}

const tensors = new WeakMap();

function tensor(wire) {
  if (!wire) return null;
  if (!tensors.has(wire)) tensors.set(wire, new Tensor(wire.shape, () => decode(wire)));
  return tensors.get(wire);
}

const story = JSON.parse(document.getElementById("story").textContent);
