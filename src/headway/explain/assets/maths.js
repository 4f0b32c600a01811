// The arithmetic the page does itself, so that it can be compared with what the model recorded.

const sum = (values) => values.reduce((a, b) => a + b, 0);
const largest = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
const largestSize = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
const terms = (q, k) => Array.from(q, (value, i) => value * k[i]);

function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  if (most === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - most));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

const difference = (a, b) => a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);

const sharedHead = ({ heads, kv_heads: few }, head) => Math.floor((head * few) / heads);

// One query of one head: score, scaled score, weight and z, for every key.
function attend(attention, head, query) {
  const [q, k, v] = [attention.q, attention.k, attention.v].map(tensor);
  const shared = sharedHead(attention, head);
  const queryVector = q.of(head, query).values;
  const mask = tensor(attention.mask).of(query).values;
  const bias = attention.bias ? tensor(attention.bias).of(head, query).values : null;
  const keys = range(k.shape[1]);
  const score = keys.map((key) => sum(terms(queryVector, k.of(shared, key).values)));
  const scaled = score.map((value) => value * attention.scale);
  const biased = bias ? scaled.map((value, key) => value + bias[key]) : scaled;
  const masked = biased.map((value, key) => (mask[key] ? value : -Infinity));
  const weight = softmax(masked);
  const z = new Float64Array(v.shape[2]);
  keys.forEach((key) =>
    v.of(shared, key).values.forEach((value, i) => {
      z[i] += weight[key] * value;
    }),
  );
  return { queryVector, shared, bias, mask, score, scaled, masked, weight, z };
}

// Temperature, then top-k, then top-p. Candidates outside the kept ones are one group, `rest`, as if they
// were all alike: exact at temperature 1 and where all candidates are kept.
function narrow(row, { temperature, k, p }) {
  const logits = row.candidates.map((candidate) => candidate.logit);
  const others = row.count - logits.length;
  const rest = others > 0 ? Math.max(0, 1 - sum(logits.map((logit) => Math.exp(logit - row.logsumexp)))) : 0;
  const top = logits[0];
  const power = (logit) => Math.exp((logit - top) / temperature);
  const powers = logits.map(power);
  const tail = rest > 1e-9 ? others * power(row.logsumexp + Math.log(rest / others)) : 0;
  const total = sum(powers) + tail;
  const before = powers.map((value) => value / total);
  const allowed = powers.map((value, i) => (i >= k ? 0 : value));
  const left = tail * Math.min(1, Math.max(0, k - logits.length) / others || 0);
  const all = sum(allowed) + left;
  let running = 0;
  const kept = allowed.map((value) => {
    const stays = running < p;
    running += value / all;
    return stays ? value : 0;
  });
  const restKept = running < p ? left : 0;
  const norm = sum(kept) + restKept;
  return { before, after: kept.map((value) => value / norm), rest: restKept / norm, restBefore: tail / total };
}

// Statistics of a head on this text: shares of its weight, and how many tokens it spreads over.
function habits(weights) {
  const [queries, keys] = weights.shape;
  const shares = { first: 0, itself: 0, previous: 0, next: 0, last: 0 };
  let spread = 0;
  for (let i = 0; i < queries; i++) {
    const row = weights.of(i).values;
    shares.first += row[0];
    shares.itself += row[i] || 0;
    shares.previous += i > 0 ? row[i - 1] || 0 : 0;
    shares.next += row[i + 1] || 0;
    shares.last += row[keys - 1];
    spread += Math.exp(-sum(Array.from(row, (w) => (w > 0 ? w * Math.log(w) : 0))));
  }
  for (const name of Object.keys(shares)) shares[name] /= queries;
  return { shares, spread: spread / queries };
}
