/* SPDX-License-Identifier: Apache-2.0 */
/* Traces decoded from the page's data, and the timeline that is drawn from
 * them. Times are nanoseconds as doubles, exact below 2^53.
 *
 * What is drawn grows with the pixels, not with the passes: what is in view is
 * found by binary search, and where passes are narrower than a pixel each
 * column is divided, by running sums, as the kinds shared its time. */

const KINDS = ['F', 'D', 'W', 'B', 'dp'];
const KIND_NAMES = ['forward', 'input gradient', 'weight gradient', 'backward',
  'data-parallel communication'];

/* --- small helpers -------------------------------------------------------- */

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

/* Four digits that count. */
function time(ns) {
  if (ns === 0) return '0';
  const [size, name] = unitOf(ns);
  const value = ns / size;
  const whole = Math.abs(value) >= 1000 ? 4
    : String(Math.trunc(Math.abs(value))).length;
  return trim(value.toFixed(Math.max(0, 4 - whole))) + '\u00a0' + name;
}

/* To the nanosecond. */
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

/* The first index in [lo, hi) whose value is above x; hi if there is none. */
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

/* Slices one after the other, with the running sum of each kind's time. */
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

  /* Time of kind k before time t; i is the number of slices begun by t. */
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

/* A quantity that changes in steps, with the highest value of each block. */
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

  /* The highest of values[lo..hi). */
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

  /* How many intervals [from, to) there are at each time. */
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
    t.tracks.push(new Track(r.start.subarray(lo, hi), r.end.subarray(lo, hi),
      r.kind.subarray(lo, hi), null));
  }
}

function pick(values, ids) {
  return Float64Array.from(ids, (i) => values[i]);
}

/* Links that take any time, each with its messages in order of departure. */
function linkTracks(t) {
  const m = t.messages;
  const lists = new Map();
  for (let i = 0; i < m.n; i++) {
    if (m.arrive[i] === m.ready[i]) continue;
    if (!lists.has(m.link[i])) lists.set(m.link[i], []);
    lists.get(m.link[i]).push(i);
  }
  t.linkRows = [...lists.keys()].sort((a, b) => a - b).map((link) => {
    const ids = lists.get(link).sort((a, b) => m.depart[a] - m.depart[b]);
    const ready = pick(m.ready, ids);
    const depart = pick(m.depart, ids);
    const sent = pick(m.sent, ids);
    const arrive = pick(m.arrive, ids);
    const kind = Uint8Array.from(ids, (i) => t.runs.kind[m.from[i]]);
    return {
      link, ids, arrive, ready,
      name: link < 0 ? 'no link' : t.links[link],
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

function passName(t, i) {
  const r = t.runs;
  const part = r.parts[i] > 1 ? `:${r.part[i]}/${r.parts[i]}` : '';
  return `${r.chunk[i]}${KINDS[r.kind[i]]}${r.mb[i]}${part}`;
}

/* --- colours -------------------------------------------------------------- */

let colors = {};

function rgb(text) {
  const n = parseInt(text.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue('--' + name).trim();
  for (const name of ['panel', 'ink', 'soft', 'faint', 'line', 'line-soft',
    'track', 'site', 'on-dark', 'on-light', 'critical', 'found', 'queue',
    'mem', 'limit', 'accent'])
    colors[name] = get(name);
  colors.kinds = KINDS.map((k) => get(k.toLowerCase()));
  colors.rgb = colors.kinds.map(rgb);
  /* As a word of an image's bytes: red first, alpha last. */
  colors.packed = colors.rgb.map((c) =>
    new Uint32Array(new Uint8ClampedArray([...c, 255]).buffer)[0]);
  colors.labels = KINDS.map((k) => ('FB'.includes(k) ? colors['on-dark']
    : colors['on-light']));
}

/* --- one trace's rows ----------------------------------------------------- */

const LEFT = 132;
const RIGHT = 66;
const AXIS = 26;
const FONT = 'system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif';

function deviceHeight(n) {
  return n <= 8 ? 30 : n <= 16 ? 23 : n <= 32 ? 16 : n <= 64 ? 11 : 8;
}

class Panel {
  constructor(trace, state) {
    this.t = trace;
    this.state = state;
    this.canvas = el('canvas', {
      tabindex: 0, role: 'img',
      'aria-label': `Timeline of ${trace.label}: ${trace.devices} devices, ` +
        `${trace.runs.n} passes, makespan ${time(trace.makespan)}`,
    });
    this.spacer = el('div');
    this.view = el('div', { class: 'view' }, this.canvas, this.spacer);
    this.node = el('div', { class: 'trace' }, this.view);
    this.ctx = this.canvas.getContext('2d',
      { willReadFrequently: state.checked });
    this.strip = document.createElement('canvas');
    this.layOut();
  }

  layOut() {
    const { t, state } = this;
    const rows = [];
    let y = AXIS;
    const push = (row) => {
      rows.push(Object.assign(row, { y }));
      y += row.h + row.gap;
    };
    const h = deviceHeight(t.devices);
    this.deviceRow = [];
    this.dpRow = [];
    this.linkRow = new Map();
    t.sites.forEach((name, s) => {
      if (name || t.sites.length > 1)
        push({ type: 'head', name: name || `site ${s}`, h: 20, gap: 3 });
      for (let d = 0; d < t.devices; d++) {
        if (t.site[d] !== s) continue;
        this.deviceRow[d] = rows.length;
        push({ type: 'device', d, h, gap: h > 12 ? 3 : 1 });
        if (!t.collectiveRows[d]) continue;
        this.dpRow[d] = rows.length;
        push({ type: 'dp', d, h: 8, gap: 3 });
      }
    });
    if (state.links && t.linkRows.length) {
      push({ type: 'head', name: 'Links', h: 20, gap: 3 });
      for (const link of t.linkRows) {
        const bands = {
          wait: link.waiting.max > 0 ? 10 : 0,
          send: link.track.busy() > 0 ? 10 : 0,
          fly: link.flying.max > 0 ? 14 : 0,
        };
        this.linkRow.set(link.link, rows.length);
        push({ type: 'link', link, bands, gap: 4,
          h: Math.max(12, bands.wait + bands.send + bands.fly) });
      }
    }
    if (state.memory && t.hasMemory) {
      const unit = t.unit && t.unit !== 'bytes' ? ` (${t.unit})` : '';
      push({ type: 'head', name: 'Memory' + unit, h: 20, gap: 3 });
      const limits = t.limit.filter((v) => v !== null);
      const peak = Math.max(1e-9, ...t.memory.map((m) => m.max));
      this.memTop = Math.max(peak, ...limits.filter((v) => v < 3 * peak));
      const mh = t.devices <= 16 ? 30 : t.devices <= 64 ? 16 : 10;
      for (let d = 0; d < t.devices; d++)
        push({ type: 'mem', d, h: mh, gap: 3 });
    }
    this.rows = rows;
    this.height = y + 6;
  }

  x(t) {
    const { a, b } = this.state;
    return LEFT + (t - a) * this.plot / (b - a);
  }

  timeAt(x) {
    const { a, b } = this.state;
    return a + (x - LEFT) * (b - a) / this.plot;
  }

  resize() {
    const width = this.view.clientWidth;
    const limit = this.state.printing ? Infinity
      : Math.max(260, Math.floor(window.innerHeight * 0.78));
    const height = Math.min(this.height, limit);
    const scale = window.devicePixelRatio || 1;
    this.view.style.height = height + 2 + 'px';
    this.spacer.style.height = Math.max(0, this.height - height) + 'px';
    this.canvas.style.height = height + 'px';
    const w = Math.max(1, Math.round(width * scale));
    const h = Math.max(1, Math.round(height * scale));
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    this.width = width;
    this.viewHeight = height;
    this.scale = scale;
    this.plot = Math.max(50, width - LEFT - RIGHT);
  }

  draw() {
    const { ctx, state } = this;
    const top = this.view.scrollTop;
    ctx.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    ctx.fillStyle = colors.panel;
    ctx.fillRect(0, 0, this.width, this.viewHeight);
    this.ticks = this.makeTicks();
    ctx.save();
    ctx.translate(0, -top);
    const visible = this.rows.filter(
      (r) => r.y + r.h > top && r.y < top + this.viewHeight);
    for (const row of visible) this.drawBackground(row);
    this.drawGrid();
    const dim = state.critical && this.t.path !== null;
    for (const row of visible) this.drawRow(row, dim);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, 0, this.plot, this.height);
    ctx.clip();
    if (dim) this.drawPath();
    this.drawMatches();
    this.drawPicked();
    ctx.restore();
    this.drawEnd();
    ctx.restore();
    this.drawAxis();
    this.drawCursor();
  }

  /* --- axis --- */

  makeTicks() {
    const { a, b } = this.state;
    const want = (b - a) / Math.max(2, this.plot / 105);
    const power = 10 ** Math.floor(Math.log10(want));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= want);
    const [size, name] = unitOf(Math.max(Math.abs(b), step));
    const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
    const ticks = [];
    for (let i = Math.ceil(a / step); i * step <= b; i++)
      ticks.push([i * step, (i * step / size).toFixed(digits)]);
    return { ticks, name };
  }

  drawGrid() {
    const { ctx } = this;
    ctx.fillStyle = colors.line;
    for (const [t] of this.ticks.ticks)
      ctx.fillRect(Math.round(this.x(t)), AXIS, 1, this.height - AXIS);
  }

  drawAxis() {
    const { ctx } = this;
    ctx.fillStyle = colors.panel;
    ctx.fillRect(0, 0, this.width, AXIS - 3);
    ctx.fillStyle = colors.soft;
    ctx.font = `11px ${FONT}`;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'center';
    for (const [t, text] of this.ticks.ticks) {
      const x = this.x(t);
      if (x > LEFT + this.plot + 1) continue;
      ctx.fillText(text, x, 11);
      ctx.fillRect(Math.round(x), 18, 1, 5);
    }
    ctx.textAlign = 'right';
    ctx.fillText(this.ticks.name, this.width - 10, 11);
    ctx.textAlign = 'left';
    ctx.fillStyle = colors.faint;
    ctx.fillText('time', 10, 11);
    ctx.fillStyle = colors.line;
    ctx.fillRect(0, AXIS - 3, this.width, 1);
  }

  drawEnd() {
    const { ctx } = this;
    const x = this.x(this.t.makespan);
    if (x < LEFT || x > LEFT + this.plot + 1) return;
    ctx.fillStyle = colors.ink;
    ctx.fillRect(Math.round(x), AXIS - 3, 1.5, this.height - AXIS);
  }

  drawCursor() {
    const { ctx, state } = this;
    if (state.cursor === null) return;
    const x = this.x(state.cursor);
    if (x < LEFT || x > LEFT + this.plot) return;
    ctx.fillStyle = colors.faint;
    ctx.globalAlpha = 0.6;
    ctx.fillRect(Math.round(x), AXIS - 3, 1, this.viewHeight);
    ctx.globalAlpha = 1;
    if (state.over !== this) return;
    const text = exact(Math.round(state.cursor));
    ctx.font = `600 11px ${FONT}`;
    const w = ctx.measureText(text).width + 10;
    const left = Math.min(Math.max(LEFT, x - w / 2), LEFT + this.plot - w);
    ctx.fillStyle = colors.ink;
    ctx.fillRect(left, 2, w, 18);
    ctx.fillStyle = colors.panel;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.fillText(text, left + w / 2, 11.5);
  }

  /* --- rows --- */

  drawBackground(row) {
    const { ctx } = this;
    if (row.type === 'head') {
      ctx.fillStyle = colors.site;
      ctx.fillRect(0, row.y, this.width, row.h);
      return;
    }
    ctx.fillStyle = colors.track;
    ctx.fillRect(LEFT, row.y, this.plot, row.h);
  }

  drawRow(row, dim) {
    const { ctx, t } = this;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    const middle = row.y + row.h / 2 + 0.5;
    if (row.type === 'head') {
      ctx.font = `600 12px ${FONT}`;
      ctx.fillStyle = colors.ink;
      ctx.fillText(row.name, 10, middle);
      return;
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, row.y, this.plot, row.h);
    ctx.clip();
    if (row.type === 'device') {
      this.drawTrack(t.tracks[row.d], row.y, row.h, dim,
        (i) => this.label(t.first[row.d] + i));
      this.drawHeld(row);
    } else if (row.type === 'dp') {
      this.drawTrack(t.collectiveRows[row.d], row.y, row.h, dim, null);
    } else if (row.type === 'link') {
      this.drawLink(row, dim);
    } else {
      this.drawMemory(row);
    }
    ctx.restore();
    this.drawGutter(row, middle);
  }

  drawGutter(row, middle) {
    const { ctx, t } = this;
    const size = Math.min(12, row.h + 1);
    if (size < 9 && (row.type !== 'dp')) return;
    let name;
    let right;
    if (row.type === 'device') {
      name = `device ${row.d}`;
      right = percent(t.tracks[row.d].busy() / t.makespan);
    } else if (row.type === 'dp') {
      name = '  data parallel';
    } else if (row.type === 'link') {
      name = row.link.name;
      right = percent(row.link.track.busy() / t.makespan);
    } else {
      name = `device ${row.d}`;
      right = memory(t.memory[row.d].max, t.unit === 'bytes' ? 'bytes' : '');
    }
    ctx.font = `${row.type === 'dp' ? 9 : size}px ${FONT}`;
    ctx.fillStyle = row.type === 'dp' ? colors.faint : colors.soft;
    ctx.textAlign = 'left';
    ctx.fillText(this.fit(name, LEFT - 20), 12, middle);
    if (!right) return;
    ctx.font = `${Math.min(11, size)}px ${FONT}`;
    ctx.textAlign = 'right';
    ctx.fillText(right, this.width - 8, middle);
  }

  fit(text, width) {
    if (this.ctx.measureText(text).width <= width) return text;
    while (text.length > 1 &&
      this.ctx.measureText(text + '\u2026').width > width)
      text = text.slice(0, -1);
    return text + '\u2026';
  }

  /* From long to short; the last only where all of its kind would fit. */
  label(i) {
    const r = this.t.runs;
    const short = String(r.mb[i]);
    return [passName(this.t, i), KINDS[r.kind[i]] + short,
      short.padStart(this.t.digits, '\u2007')];
  }

  /* The longest that fits; the shortest may come close to the edges. */
  labelFor(texts, digit, width) {
    const last = texts.length - 1;
    return texts.find((s, i) => s.length * digit + (i < last ? 4 : 0.5) <= width);
  }

  /* The font size of labels, and how wide a digit is. */
  labelFont(h, weight) {
    const size = h >= 20 ? 11 : 10;
    this.ctx.font = `${weight}${size}px ${FONT}`;
    this.ctx.textAlign = 'center';
    return this.ctx.measureText('0').width;
  }

  /* Slices as boxes, or where there are more of them than pixels as shares. */
  drawTrack(track, y, h, dim, label) {
    const { a, b } = this.state;
    const lo = above(track.end, a, 0, track.n);
    const hi = above(track.start, b, lo, track.n);
    if (hi - lo > this.plot * 0.6) this.drawShares(track, y, h, dim);
    else this.drawSlices(track, lo, hi, y, h, dim, label);
  }

  drawSlices(track, lo, hi, y, h, dim, label) {
    const { ctx } = this;
    ctx.globalAlpha = dim ? 0.25 : 1;
    for (let k = 0; k < KINDS.length; k++) {
      if (!track.sums[k]) continue;
      ctx.fillStyle = colors.kinds[k];
      for (let i = lo; i < hi; i++) {
        if (track.kind[i] !== k) continue;
        const x = this.x(track.start[i]);
        const w = this.x(track.end[i]) - x;
        ctx.fillRect(x, y, w > 4 ? w - 0.8 : Math.max(w, 0.5), h);
      }
    }
    if (label && h >= 11 && !dim) this.drawLabels(track, lo, hi, y, h, label);
    ctx.globalAlpha = 1;
  }

  drawLabels(track, lo, hi, y, h, label) {
    const { ctx } = this;
    const each = this.labelFont(h, '');
    for (let i = lo; i < hi; i++) {
      const x = Math.max(LEFT, this.x(track.start[i]));
      const right = Math.min(LEFT + this.plot, this.x(track.end[i]));
      if (right - x < each + 3) continue;
      const text = this.labelFor(label(i), each, right - x - 0.8);
      if (!text) continue;
      ctx.fillStyle = colors.labels[track.kind[i]];
      ctx.fillText(text.trim(), (x + right) / 2, y + h / 2 + 0.5);
    }
    ctx.textAlign = 'left';
  }

  /* Each column of pixels divided between the kinds that ran in it. */
  drawShares(track, y, h, dim) {
    const { a, b } = this.state;
    const n = Math.max(1, Math.round(this.plot * this.scale));
    const tall = Math.max(1, Math.round(h * this.scale));
    const image = new ImageData(n, tall);
    const pixels = new Uint32Array(image.data.buffer);
    const step = (b - a) / n;
    const kinds = KINDS.map((_, k) => k).filter((k) => track.sums[k]);
    let i = above(track.start, a, 0, track.n);
    const before = kinds.map((k) => track.before(k, a, i));
    for (let c = 0; c < n; c++) {
      const t = a + (c + 1) * step;
      i = above(track.start, t, i, track.n);
      let sum = 0;
      let row = tall;
      for (let j = 0; j < kinds.length; j++) {
        const now = track.before(kinds[j], t, i);
        sum += (now - before[j]) / step;
        before[j] = now;
        const top = Math.max(0, tall - Math.round(sum * tall));
        while (row > top) pixels[--row * n + c] = colors.packed[kinds[j]];
      }
    }
    this.strip.width = n;
    this.strip.height = tall;
    this.strip.getContext('2d').putImageData(image, 0, 0);
    this.ctx.globalAlpha = dim ? 0.25 : 1;
    this.ctx.imageSmoothingEnabled = false;
    this.ctx.drawImage(this.strip, LEFT, y, this.plot, h);
    this.ctx.globalAlpha = 1;
  }

  /* A device that may not go on because its sends are stuck. */
  drawHeld(row) {
    const { ctx, t } = this;
    const r = t.runs;
    const { a, b } = this.state;
    if (t.hasHeld === undefined)
      t.hasHeld = r.issued.some((v, i) => v > r.end[i]);
    if (!t.hasHeld) return;
    const lo = above(r.issued, a, t.first[row.d], t.first[row.d + 1]);
    const hi = above(r.start, b, lo, t.first[row.d + 1]);
    ctx.fillStyle = colors.queue;
    for (let i = lo; i < hi; i++) {
      if (r.issued[i] <= r.end[i]) continue;
      const x = this.x(r.end[i]);
      ctx.fillRect(x, row.y + row.h / 2 - 1.5,
        Math.max(0.7, this.x(r.issued[i]) - x), 3);
    }
  }

  drawSteps(steps, y, h, top, color) {
    const { ctx, state } = this;
    const lo = Math.max(0, above(steps.times, state.a, 0, steps.n) - 1);
    const hi = above(steps.times, state.b, lo, steps.n);
    const bottom = y + h;
    const level = (v) => bottom - Math.max(0, v) * h / top;
    const right = Math.min(LEFT + this.plot, this.x(this.t.makespan));
    ctx.fillStyle = color;
    ctx.beginPath();
    ctx.moveTo(LEFT, bottom);
    if (hi - lo <= 2 * this.plot) {
      for (let i = lo; i < hi; i++) {
        const x = Math.max(LEFT, this.x(steps.times[i]));
        ctx.lineTo(x, i > lo ? level(steps.values[i - 1]) : bottom);
        ctx.lineTo(x, level(steps.values[i]));
      }
      if (hi > lo) ctx.lineTo(right, level(steps.values[hi - 1]));
    } else {
      let i = lo;
      for (let x = LEFT; x < right; x++) {
        const next = above(steps.times, this.timeAt(x + 1), i, hi);
        const v = steps.highest(Math.max(lo, i - 1), Math.max(next, i));
        ctx.lineTo(x, level(v));
        ctx.lineTo(x + 1, level(v));
        i = next;
      }
    }
    ctx.lineTo(right, bottom);
    ctx.fill();
  }

  drawMemory(row) {
    const { ctx, t } = this;
    const top = this.memTop * 1.04;
    this.drawSteps(t.memory[row.d], row.y, row.h, top, colors.mem);
    const limit = t.limit[row.d];
    if (limit === null || limit > top) return;
    const y = row.y + row.h - limit * row.h / top;
    ctx.strokeStyle = colors.limit;
    ctx.lineWidth = 1.2;
    ctx.setLineDash([5, 3]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y);
    ctx.lineTo(LEFT + this.plot, y);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /* From top to bottom: how many wait, what is sent, what is in flight. */
  drawLink(row, dim) {
    const { bands, link } = row;
    let { y } = row;
    if (bands.wait) {
      this.drawSteps(link.waiting, y, bands.wait - 1, link.waiting.max,
        colors.queue);
      y += bands.wait;
    }
    if (bands.send) {
      this.drawTrack(link.track, y, bands.send - 1, dim,
        bands.send > 10 ? (i) => [passName(this.t, i)] : null);
      y += bands.send;
    }
    if (bands.fly) this.drawFlights(link, y, bands.fly - 1, dim);
  }

  /* Few flights as lines from departure (top) to arrival (bottom). */
  drawFlights(link, y, h, dim) {
    const { ctx, state } = this;
    const { track, arrive } = link;
    const lo = above(arrive, state.a, 0, track.n);
    const hi = above(track.end, state.b, lo, track.n);
    if (hi - lo > 240) {
      ctx.globalAlpha = dim ? 0.25 : 0.55;
      this.drawSteps(link.flying, y, h, link.flying.max, colors.mem);
      ctx.globalAlpha = 1;
      return;
    }
    ctx.globalAlpha = dim ? 0.3 : 1;
    ctx.lineWidth = 1.6;
    for (let i = lo; i < hi; i++) {
      ctx.strokeStyle = colors.kinds[track.kind[i]];
      ctx.beginPath();
      ctx.moveTo(this.x(track.end[i]), y + 1);
      ctx.lineTo(this.x(arrive[i]), y + h - 1);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  /* --- on top --- */

  /* Row, top and height of a step of the critical path; null: not shown. */
  placeOf(step, index) {
    const { t } = this;
    if (step === 'p') {
      const row = this.rows[this.deviceRow[t.runs.device[index]]];
      return { y: row.y, h: row.h, kind: t.runs.kind[index] };
    }
    if (step === 'c') {
      const row = this.rows[this.dpRow[t.collectives.device[index]]];
      return { y: row.y, h: row.h, kind: 4 };
    }
    const i = 'qtl'.includes(step) ? this.linkRow.get(t.messages.link[index])
      : undefined;
    if (i === undefined) return null;
    const row = this.rows[i];
    const { wait, send, fly } = row.bands;
    const kind = t.runs.kind[t.messages.from[index]];
    if (step === 'q') return { y: row.y, h: wait || row.h, kind };
    if (step === 't') return { y: row.y + wait, h: send || row.h, kind };
    return { y: row.y + wait + send, h: fly || row.h, kind, flight: true };
  }

  drawPath() {
    const { ctx, state } = this;
    const { path } = this.t;
    const lo = above(path.end, state.a, 0, path.n);
    const hi = above(path.start, state.b, lo, path.n);
    const last = new Map(); /* rightmost pixel drawn, by row */
    const points = [];
    for (let i = lo; i < hi; i++) {
      const place = this.placeOf(path.step[i], path.index[i]);
      if (!place) continue;
      const x = this.x(path.start[i]);
      const right = this.x(path.end[i]);
      if (right < (last.get(place.y) ?? -1) + 0.7 && hi - lo > 2000) continue;
      last.set(place.y, right);
      const w = Math.max(right - x, 0.8);
      if (!place.flight) {
        ctx.fillStyle = colors.kinds[place.kind];
        ctx.fillRect(x, place.y, w > 4 ? w - 0.8 : w, place.h);
        ctx.fillStyle = colors.critical;
        const line = place.h >= 16 ? 3.5 : 2.5;
        ctx.fillRect(x, place.y + place.h - line, w, line);
        if (path.step[i] === 'p' && place.h >= 11 && w > 12)
          this.drawPathLabel(path.index[i], x, right, place);
      }
      const mid = place.y + place.h - 2;
      if (place.flight)
        points.push([x, place.y + 1], [right, place.y + place.h - 2]);
      else
        points.push([x, mid], [right, mid]);
    }
    if (hi - lo > 1500) return;
    ctx.strokeStyle = colors.critical;
    ctx.lineWidth = 1.8;
    ctx.lineJoin = 'round';
    ctx.beginPath();
    points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
  }

  drawPathLabel(i, x, right, place) {
    const { ctx } = this;
    x = Math.max(x, LEFT);
    right = Math.min(right, LEFT + this.plot);
    const each = this.labelFont(place.h, '600 ');
    const text = this.this.labelFor(label(i), each, right - x - 0.8);
    if (!text) return;
    ctx.textBaseline = 'middle';
    ctx.fillStyle = colors.labels[place.kind];
    ctx.fillText(text.trim(), (x + right) / 2, place.y + place.h / 2 - 0.5);
    ctx.textAlign = 'left';
  }

  outline(i, color, width) {
    const { ctx, t } = this;
    const row = this.rows[this.deviceRow[t.runs.device[i]]];
    const x = this.x(t.runs.start[i]);
    const w = Math.max(2, this.x(t.runs.end[i]) - x);
    if (x > LEFT + this.plot || x + w < LEFT) return;
    ctx.lineWidth = width + 2;
    ctx.strokeStyle = colors.panel;
    ctx.strokeRect(x, row.y, w, row.h);
    ctx.lineWidth = width;
    ctx.strokeStyle = color;
    ctx.strokeRect(x, row.y, w, row.h);
  }

  drawMatches() {
    const { state } = this;
    const mine = state.matches.filter((m) => m.panel === this);
    const last = new Map();
    for (const m of mine) {
      const d = this.t.runs.device[m.run];
      const x = this.x(this.t.runs.start[m.run]);
      if (x < (last.get(d) ?? -9) + 2 && mine.length > 300) continue;
      last.set(d, x);
      this.outline(m.run, colors.found, 2);
    }
  }

  /* The pass under the pointer, and the messages that come and go. */
  drawPicked() {
    const { state, ctx, t } = this;
    const picked = state.pinned || state.hover;
    if (!picked || picked.panel !== this) return;
    let run = picked.run;
    let messages = [];
    if (run !== undefined) {
      this.outline(run, colors.ink, 2);
      messages = [t.runs.incoming[run], t.runs.outgoing[run]];
    } else if (picked.message !== undefined) {
      messages = [picked.message];
      this.outline(t.messages.from[picked.message], colors.ink, 1.5);
      this.outline(t.messages.to[picked.message], colors.ink, 1.5);
    }
    for (const m of messages) {
      if (m < 0) continue;
      const from = t.messages.from[m];
      const to = t.messages.to[m];
      const a = this.rows[this.deviceRow[t.runs.device[from]]];
      const b = this.rows[this.deviceRow[t.runs.device[to]]];
      this.arrow(ctx, this.x(t.messages.made[m]), a.y + a.h / 2,
        this.x(t.messages.arrive[m]), b.y + b.h / 2);
    }
  }

  arrow(ctx, x1, y1, x2, y2) {
    const bend = Math.max(12, Math.min(60, Math.abs(x2 - x1) / 2));
    for (const [color, width] of [[colors.panel, 4], [colors.ink, 1.7]]) {
      ctx.strokeStyle = color;
      ctx.fillStyle = color;
      ctx.lineWidth = width;
      ctx.beginPath();
      ctx.moveTo(x1, y1);
      ctx.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x1, y1, width + 1, 0, 7);
      ctx.fill();
      ctx.beginPath();
      ctx.moveTo(x2 + 1, y2);
      ctx.lineTo(x2 - 7, y2 - 4);
      ctx.lineTo(x2 - 7, y2 + 4);
      ctx.fill();
    }
  }

  /* --- what is where --- */

  hit(x, y) {
    y += this.view.scrollTop;
    if (x < LEFT || x > LEFT + this.plot) return null;
    const row = this.rows.find((r) => y >= r.y && y < r.y + r.h + r.gap);
    if (!row) return null;
    const t = this.timeAt(x);
    const slack = 2 * (this.state.b - this.state.a) / this.plot;
    if (row.type === 'device') {
      const i = this.hitTrack(this.t.tracks[row.d], t, slack);
      return i < 0 ? { panel: this, row }
        : { panel: this, row, run: this.t.first[row.d] + i };
    }
    if (row.type === 'dp') {
      const track = this.t.collectiveRows[row.d];
      const i = this.hitTrack(track, t, slack);
      return i < 0 ? null : { panel: this, row, collective: track.ids[i] };
    }
    if (row.type === 'link') return this.hitLink(row, t, y, slack);
    return row.type === 'mem' ? { panel: this, row } : null;
  }

  hitTrack(track, t, slack) {
    const i = above(track.start, t, 0, track.n) - 1;
    if (i >= 0 && t <= track.end[i]) return i;
    const before = i >= 0 ? t - track.end[i] : Infinity;
    const after = i + 1 < track.n ? track.start[i + 1] - t : Infinity;
    if (Math.min(before, after) > slack) return -1;
    return before < after ? i : i + 1;
  }

  hitLink(row, t, y, slack) {
    const { link, bands } = row;
    const result = { panel: this, row };
    const at = y - row.y;
    let i = -1;
    if (bands.send && at >= bands.wait && at < bands.wait + bands.send) {
      i = this.hitTrack(link.track, t, slack);
    } else if (bands.fly && at >= bands.wait + bands.send) {
      const h = bands.fly - 1;
      let best = 4;
      const lo = above(link.arrive, t - slack, 0, link.track.n);
      const hi = Math.min(lo + 2000,
        above(link.track.end, t + slack, lo, link.track.n));
      for (let j = lo; j < hi; j++) {
        const time = link.arrive[j] - link.track.end[j] || 1;
        const line = (t - link.track.end[j]) / time * h;
        const away = Math.abs(at - bands.wait - bands.send - line);
        if (away < best) {
          best = away;
          i = j;
        }
      }
    }
    if (i >= 0) result.message = link.ids[i];
    return result;
  }
}
