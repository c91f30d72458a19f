/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes traces from the page's data. Times are nanoseconds as doubles, exact
 * below 2^53. */

const KINDS = ['F', 'D', 'W', 'B', 'dp'];
const KIND_NAMES = ['forward', 'input gradient', 'weight gradient', 'backward',
  'data-parallel communication'];

/* --- small helpers -------------------------------------------------------- */

const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'class') node.className = value;
    else if (key === 'style') node.style.cssText = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c != null));
  return node;
}

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, '\u00b5s'], [1, 'ns']];

function unitOf(ns) {
  const size = Math.abs(ns);
  return UNITS.find((u) => size >= u[0]) || UNITS[3];
}

function trim(text) {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/* Formats with four significant digits. */
function time(ns) {
  if (ns === 0) return '0';
  const [size, name] = unitOf(ns);
  const value = ns / size;
  const whole = Math.abs(value) >= 1000 ? 4
    : String(Math.trunc(Math.abs(value))).length;
  return trim(value.toFixed(Math.max(0, 4 - whole))) + '\u00a0' + name;
}

/* Formats to the nanosecond. */
function exact(ns) {
  const [size, name] = unitOf(ns);
  return trim((ns / size).toFixed(size === 1 ? 0 : Math.log10(size))) +
    '\u00a0' + name;
}

function memory(value, unit) {
  if (unit === 'bytes' || unit === 'B') {
    const units = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'],
      [2 ** 10, 'KiB'], [1, 'B']];
    const [size, name] = units.find((u) => Math.abs(value) >= u[0]) || units[4];
    return trim((value / size).toFixed(size === 1 ? 0 : 2)) + '\u00a0' + name;
  }
  const text = trim(value.toFixed(2));
  return unit ? text + '\u00a0' + unit : text;
}

function percent(share) {
  return (100 * share).toFixed(1) + '\u00a0%';
}

/* Returns the first index in [lo, hi) whose value is above x; hi if none. */
function above(values, x, lo, hi) {
  while (lo < hi) {
    const middle = (lo + hi) >>> 1;
    if (values[middle] > x) hi = middle;
    else lo = middle + 1;
  }
  return lo;
}

/* --- decoding ------------------------------------------------------------- */

function column(value, n, Type) {
  const out = new Type(n);
  if (Array.isArray(value)) out.set(value);
  else out.fill(value);
  return out;
}

function decodeRuns(from, t) {
  const n = from.n;
  const r = {
    n,
    kind: new Uint8Array(n), device: new Uint32Array(n),
    chunk: column(from.chunk, n, Uint32Array),
    mb: column(from.mb, n, Uint32Array),
    part: column(from.part, n, Uint16Array),
    parts: column(from.parts, n, Uint16Array),
    start: new Float64Array(n), end: new Float64Array(n),
    issued: new Float64Array(n),
    mem: column(from.mem, n, Float64Array),
    after: column(from.after, n, Float64Array),
    waits: column(from.waits, n, Int32Array),
    incoming: new Int32Array(n).fill(-1), outgoing: new Int32Array(n).fill(-1),
  };
  const gap = column(from.gap, n, Float64Array);
  const took = column(from.time, n, Float64Array);
  const held = column(from.held, n, Float64Array);
  const of = column(from.of, t.devices, Uint32Array);
  t.first = new Uint32Array(t.devices + 1);
  let i = 0;
  for (let d = 0; d < t.devices; d++) {
    let now = 0;
    t.first[d] = i;
    for (const end = i + of[d]; i < end; i++) {
      r.device[i] = d;
      r.kind[i] = KINDS.indexOf(from.kind[i]);
      r.start[i] = (now + gap[i]) * t.tick;
      now += gap[i] + took[i];
      r.end[i] = now * t.tick;
      r.issued[i] = (now + held[i]) * t.tick;
    }
  }
  t.first[t.devices] = i;
  return r;
}

function decodeMessages(from, t) {
  const n = from.n;
  const m = {
    n,
    link: column(from.link, n, Int32Array),
    from: column(from.from, n, Uint32Array),
    to: column(from.to, n, Uint32Array),
    made: column(from.made, n, Float64Array),
    ready: column(from.post, n, Float64Array),
    depart: column(from.queue, n, Float64Array),
    sent: column(from.send, n, Float64Array),
    arrive: column(from.fly, n, Float64Array),
  };
  for (let i = 0; i < n; i++) {
    m.made[i] *= t.tick;
    m.ready[i] = m.made[i] + m.ready[i] * t.tick;
    m.depart[i] = m.ready[i] + m.depart[i] * t.tick;
    m.sent[i] = m.depart[i] + m.sent[i] * t.tick;
    m.arrive[i] = m.sent[i] + m.arrive[i] * t.tick;
    t.runs.incoming[m.to[i]] = i;
    t.runs.outgoing[m.from[i]] = i;
  }
  return m;
}

function decodeCollectives(from, t) {
  const n = from.n;
  const c = {
    n,
    chunk: column(from.chunk, n, Uint32Array),
    device: column(from.device, n, Uint32Array),
    rs: column(from.rs, n, Uint8Array),
    ready: column(from.made, n, Float64Array),
    depart: column(from.queue, n, Float64Array),
    sent: column(from.send, n, Float64Array),
    arrive: column(from.fly, n, Float64Array),
  };
  for (let i = 0; i < n; i++) {
    c.ready[i] *= t.tick;
    c.depart[i] = c.ready[i] + c.depart[i] * t.tick;
    c.sent[i] = c.depart[i] + c.sent[i] * t.tick;
    c.arrive[i] = c.sent[i] + c.arrive[i] * t.tick;
  }
  return c;
}

function decodePath(from, t) {
  if (!from) return null;
  const n = from.n;
  const p = {
    n, step: from.step,
    index: column(from.index, n, Uint32Array),
    start: column(from.gap, n, Float64Array),
    end: column(from.time, n, Float64Array),
  };
  let now = 0;
  for (let i = 0; i < n; i++) {
    p.start[i] = (now += p.start[i]) * t.tick;
    p.end[i] = (now += p.end[i]) * t.tick;
  }
  return p;
}

/* Consecutive slices, with the running sum of each kind's time. */
class Track {
  constructor(start, end, kind, ids) {
    const n = start.length;
    Object.assign(this, { n, start, end, kind, ids });
    this.sums = [];
    for (let k = 0; k < KINDS.length; k++) {
      if (!kind.includes(k)) continue;
      const sum = new Float64Array(n + 1);
      for (let i = 0; i < n; i++)
        sum[i + 1] = sum[i] + (kind[i] === k ? end[i] - start[i] : 0);
      this.sums[k] = sum;
    }
  }

  /* Returns the time of kind k before time t; i is the number of slices begun
   * by t. */
  before(k, t, i) {
    const sum = this.sums[k];
    if (i === 0) return 0;
    const last = i - 1;
    const cut = this.kind[last] === k ? Math.max(0, this.end[last] - t) : 0;
    return sum[i] - cut;
  }

  busy() {
    return this.sums.reduce((all, sum) => all + sum[this.n], 0);
  }
}

/* A step function over time, with the maximum of each block. */
const BLOCK = 64;
class Steps {
  constructor(times, values) {
    Object.assign(this, { times, values, n: times.length });
    this.blocks = new Float64Array(Math.ceil(this.n / BLOCK));
    this.max = 0;
    for (let i = 0; i < this.n; i++) {
      const b = (i / BLOCK) | 0;
      if (i % BLOCK === 0 || values[i] > this.blocks[b])
        this.blocks[b] = values[i];
      if (values[i] > this.max) this.max = values[i];
    }
  }

  at(t) {
    const i = above(this.times, t, 0, this.n);
    return i ? this.values[i - 1] : 0;
  }

  /* Returns the maximum of values[lo..hi). */
  highest(lo, hi) {
    let best = -Infinity;
    while (lo < hi) {
      if (lo % BLOCK === 0 && lo + BLOCK <= hi) {
        best = Math.max(best, this.blocks[lo / BLOCK]);
        lo += BLOCK;
      } else {
        best = Math.max(best, this.values[lo++]);
      }
    }
    return best;
  }

  /* Returns the number of open intervals [from, to) at each time. */
  static count(from, to) {
    const a = Float64Array.from(from).sort();
    const b = Float64Array.from(to).sort();
    const times = [];
    const values = [];
    let i = 0;
    let j = 0;
    while (i < a.length || j < b.length) {
      const now = i < a.length && a[i] < b[j] ? a[i] : b[j];
      while (i < a.length && a[i] === now) i++;
      while (j < b.length && b[j] === now) j++;
      if (values.length === 0 ? i !== j : values[values.length - 1] !== i - j) {
        times.push(now);
        values.push(i - j);
      }
    }
    return new Steps(Float64Array.from(times), Float64Array.from(values));
  }
}

function deviceTracks(t) {
  const r = t.runs;
  t.tracks = [];
  for (let d = 0; d < t.devices; d++) {
    const lo = t.first[d];
    const hi = t.first[d + 1];
    const track = new Track(r.start.subarray(lo, hi), r.end.subarray(lo, hi),
      r.kind.subarray(lo, hi), null);
    track.chunk = r.chunk.subarray(lo, hi);
    t.tracks.push(track);
  }
}

function pick(values, ids) {
  return Float64Array.from(ids, (i) => values[i]);
}

/* Returns the links with nonzero time in the program's order, each with its
 * messages in order of departure. */
function linkTracks(t) {
  const m = t.messages;
  const lists = new Map();
  for (let i = 0; i < m.n; i++) {
    if (m.arrive[i] === m.ready[i]) continue;
    if (!lists.has(m.link[i])) lists.set(m.link[i], []);
    lists.get(m.link[i]).push(i);
  }
  t.linkRows = t.rows.links.map(([link, name, far, quiet]) => {
    const ids = lists.get(link).sort((a, b) => m.depart[a] - m.depart[b]);
    const ready = pick(m.ready, ids);
    const depart = pick(m.depart, ids);
    const sent = pick(m.sent, ids);
    const arrive = pick(m.arrive, ids);
    const kind = Uint8Array.from(ids, (i) => t.runs.kind[m.from[i]]);
    return {
      link, ids, arrive, ready, name, far: far === 1, quiet: quiet === 1,
      track: new Track(depart, sent, kind, ids),
      waiting: Steps.count(ready, depart),
      flying: Steps.count(sent, arrive),
      queued: ids.reduce((all, i) => all + m.depart[i] - m.ready[i], 0),
    };
  });
}

function collectiveTracks(t) {
  const c = t.collectives;
  t.collectiveRows = [];
  for (let i = 0; i < c.n; i++) {
    const d = c.device[i];
    (t.collectiveRows[d] = t.collectiveRows[d] || []).push(i);
  }
  t.collectiveRows = t.collectiveRows.map((ids) => {
    ids.sort((a, b) => c.depart[a] - c.depart[b]);
    return new Track(pick(c.depart, ids), pick(c.sent, ids),
      new Uint8Array(ids.length).fill(4), ids);
  });
}

function memorySteps(t) {
  const r = t.runs;
  t.memory = [];
  t.hasMemory = false;
  for (let d = 0; d < t.devices; d++) {
    const times = [0];
    const values = [t.static[d]];
    for (let i = t.first[d]; i < t.first[d + 1]; i++) {
      times.push(r.start[i], r.end[i]);
      values.push(r.mem[i], r.after[i]);
    }
    const steps = new Steps(Float64Array.from(times),
      Float64Array.from(values));
    t.hasMemory = t.hasMemory || values.some((v) => v !== 0);
    t.memory.push(steps);
  }
}

function decodeTrace(from) {
  const t = Object.assign({}, from);
  t.makespan *= t.tick;
  t.static = column(from.static, t.devices, Float64Array);
  t.site = column(from.site, t.devices, Uint32Array);
  t.runs = decodeRuns(from.runs, t);
  t.messages = decodeMessages(from.messages, t);
  t.collectives = decodeCollectives(from.collectives, t);
  t.path = decodePath(from.path, t);
  deviceTracks(t);
  linkTracks(t);
  collectiveTracks(t);
  memorySteps(t);
  t.digits = String(t.runs.mb.reduce((x, y) => Math.max(x, y), 0)).length;
  t.kinds = KINDS.map((_, k) => t.runs.kind.includes(k));
  return t;
}

/* Devices whose memory differs by less than this share of the largest peak are
 * drawn once. */
const SAME_MEMORY = 0.02;

/* Joins consecutive numbers: "3", "3\u20137". */
function rangeText(first, last) {
  return first === last ? String(first) : `${first}\u2013${last}`;
}

/* Groups consecutive devices of a site whose peak and mean memory and whose
 * limits are alike: [{first, last, d}], `d` the fullest of them. */
function memoryGroups(t) {
  const most = Math.max(1e-9, ...t.memory.map((m) => m.max));
  const mean = t.memory.map((m) => {
    let sum = 0;
    for (let i = 0; i < m.n; i++)
      sum += m.values[i] * ((i + 1 < m.n ? m.times[i + 1] : t.makespan) -
        m.times[i]);
    return sum / Math.max(1, t.makespan);
  });
  const alike = (a, b) => t.site[a] === t.site[b] && t.limit[a] === t.limit[b] &&
    Math.abs(t.memory[a].max - t.memory[b].max) < SAME_MEMORY * most &&
    Math.abs(mean[a] - mean[b]) < SAME_MEMORY * most;
  const groups = [];
  for (const d of t.rows.devices) {
    const group = groups[groups.length - 1];
    if (group && !t.per && d === group.last + 1 && alike(group.first, d)) {
      group.last = d;
      if (t.memory[d].max > t.memory[group.d].max) group.d = d;
    } else {
      groups.push({ first: d, last: d, d });
    }
  }
  return groups;
}

/* If replicas are displayed side by side, a device is one stage of one
 * replica. */
function deviceName(t, d) {
  return t.per ? `stage ${d % t.per}` : t.rows.labels[d];
}

function passName(t, i) {
  const r = t.runs;
  const part = r.parts[i] > 1 ? `:${r.part[i]}/${r.parts[i]}` : '';
  return `${r.chunk[i]}${KINDS[r.kind[i]]}${r.mb[i]}${part}`;
}
