/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of one trace on a canvas.
 *
 * The drawing time grows with the pixels, not with the passes. Binary search
 * finds the visible passes. Where passes are narrower than a pixel, running
 * sums divide each pixel column among the kinds by their time. */

const LEFT = 132;
const RIGHT = 84;
const AXIS = 26;
const PAPER = 990; /* pixels across a printed page */
const FONT = 'system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif';

function deviceHeight(n) {
  return n <= 8 ? 30 : n <= 16 ? 23 : n <= 32 ? 16 : n <= 64 ? 11 : 8;
}

class Panel {
  constructor(trace, state) {
    this.t = trace;
    this.ghost = null; /* the previous trace, before a change */
    this.state = state;
    this.canvas = el('canvas', {
      tabindex: 0, role: 'img', 'aria-label': this.name(),
    });
    this.spacer = el('div');
    this.view = el('div', { class: 'view' }, this.canvas, this.spacer);
    this.node = el('div', { class: 'trace' }, this.view);
    this.ctx = this.canvas.getContext('2d',
      { willReadFrequently: state.checked });
    this.strip = document.createElement('canvas');
    this.layOut();
  }

  name() {
    const { t } = this;
    return `Timeline of ${t.label}: ${t.devices} devices, ${t.runs.n} passes, ` +
      `makespan ${time(t.makespan)}`;
  }

  /* Replaces the trace. */
  show(trace) {
    this.t = trace;
    this.canvas.setAttribute('aria-label', this.name());
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
    t.rows.sites.forEach((s, i) => {
      if (t.rows.grouped)
        push({ type: 'head', name: t.rows.heads[i], h: 20, gap: 3 });
      for (const d of t.rows.devices) {
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
      let folded = false;
      for (const link of t.linkRows) {
        if (link.quiet && !folded) {
          folded = true;
          push({ type: 'fold', name: t.rows.quiet, h: 18, gap: 3 });
        }
        if (link.quiet && !state.quiet) continue;
        const bands = {
          wait: link.waiting.max > 0 ? 10 : 0,
          send: link.track.busy() > 0 ? 10 : 0,
          fly: link.flying.max > 0 ? (link.far ? 22 : 14) : 0,
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
      const groups = memoryGroups(t);
      const mh = groups.length <= 16 ? 30 : groups.length <= 64 ? 16 : 10;
      for (const { first, last, d } of groups)
        push({ type: 'mem', d, h: mh, gap: 3, name: first === last
          ? deviceName(t, d) : `devices ${rangeText(first, last)}` });
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
    const width = this.state.printing ? PAPER : this.view.clientWidth;
    const limit = this.state.printing ? Infinity
      : Math.max(260, Math.floor(window.innerHeight * 0.78));
    const height = Math.min(this.height, limit);
    const scale = this.state.printing ? 2 : window.devicePixelRatio || 1;
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
    if (dim) drawPath(this);
    drawMatches(this);
    drawPicked(this);
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
    if (this.ghost) {
      const was = this.x(this.ghost.makespan);
      ctx.fillStyle = colors.soft;
      for (let y = AXIS; was >= LEFT && was <= LEFT + this.plot + 1 &&
        y < this.height; y += 8)
        ctx.fillRect(Math.round(was), y, 1.5, 4);
    }
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
    }
    if (row.type === 'head' || row.type === 'fold') return;
    ctx.fillStyle = colors.track;
    ctx.fillRect(LEFT, row.y, this.plot, row.h);
  }

  drawRow(row, dim) {
    const { ctx, t, state } = this;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    const middle = row.y + row.h / 2 + 0.5;
    if (row.type === 'head') {
      ctx.font = `600 12px ${FONT}`;
      ctx.fillStyle = colors.ink;
      ctx.fillText(row.name, 10, middle);
      return;
    }
    if (row.type === 'fold') {
      ctx.font = `12px ${FONT}`;
      ctx.fillStyle = colors.soft;
      ctx.fillText(`${state.quiet ? '\u25be' : '\u25b8'} ${row.name}, each in ` +
        'use for less than 5\u00a0% of the time', 10, middle);
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
      this.drawGhost(row);
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
    const size = Math.min(12, row.h - 1);
    if (size < 9 && (row.type !== 'dp')) return;
    let name;
    let right;
    if (row.type === 'device') {
      name = deviceName(t, row.d);
      right = percent(t.tracks[row.d].busy() / t.makespan);
    } else if (row.type === 'dp') {
      name = '  data parallel';
    } else if (row.type === 'link') {
      name = row.link.name;
      right = percent(row.link.track.busy() / t.makespan);
    } else {
      name = row.name;
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

  /* From long to short; the last one only if all labels of its kind fit. */
  label(i) {
    const r = this.t.runs;
    const short = String(r.mb[i]);
    return [passName(this.t, i), KINDS[r.kind[i]] + short,
      short.padStart(this.t.digits, '\u2007')];
  }

  /* Returns the longest label that fits; the shortest may touch the edges. */
  labelFor(texts, digit, width) {
    const last = texts.length - 1;
    return texts.find((s, i) => s.length * digit + (i < last ? 4 : 0.5) <= width);
  }

  /* The font size of labels, and the width of a digit. */
  labelFont(h, weight) {
    const size = h >= 20 ? 11 : 10;
    this.ctx.font = `${weight}${size}px ${FONT}`;
    this.ctx.textAlign = 'center';
    return this.ctx.measureText('0').width;
  }

  /* Draws slices as boxes; if there are more slices than pixels, as shares. */
  drawTrack(track, y, h, dim, label) {
    const { a, b } = this.state;
    const lo = above(track.end, a, 0, track.n);
    const hi = above(track.start, b, lo, track.n);
    if (hi - lo > this.plot * 0.6) this.drawShares(track, y, h, dim);
    else this.drawSlices(track, lo, hi, y, h, dim, label);
  }

  drawSlices(track, lo, hi, y, h, dim, label) {
    const { ctx } = this;
    const shades = shadesOf(this.t);
    ctx.globalAlpha = dim ? 0.25 : 1;
    for (let k = 0; k < KINDS.length; k++) {
      if (!track.sums[k]) continue;
      let shade = -1;
      for (let i = lo; i < hi; i++) {
        if (track.kind[i] !== k) continue;
        const turn = track.chunk ? this.t.rows.turns[track.chunk[i]] : 0;
        if (turn !== shade) ctx.fillStyle = shades[k][shade = turn];
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

  /* Divides each pixel column among the kinds that ran in it. */
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

  /* Draws the same device before the change as a shadow along the row's
   * foot. */
  drawGhost(row) {
    if (!this.ghost || !this.ghost.tracks[row.d]) return;
    const { ctx } = this;
    const h = Math.max(3, Math.round(row.h * 0.28));
    const y = row.y + row.h - h;
    ctx.fillStyle = colors.panel;
    ctx.fillRect(LEFT, y - 1, this.plot, h + 1);
    this.drawTrack(this.ghost.tracks[row.d], y, h, true, null);
  }

  /* A device that is blocked because its sends are blocked. */
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
    ctx.strokeStyle = colors.ink;
    ctx.lineWidth = 1.2;
    ctx.setLineDash([5, 3]);
    ctx.beginPath();
    ctx.moveTo(LEFT, y);
    ctx.lineTo(LEFT + this.plot, y);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /* From top to bottom: number of waiting messages, sends, messages in
   * flight. */
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

  /* Draws few messages as lines from departure (top) to arrival (bottom). */
  drawFlights(link, y, h, dim) {
    const { ctx, state } = this;
    const { track, arrive } = link;
    const lo = above(arrive, state.a, 0, track.n);
    const hi = above(track.end, state.b, lo, track.n);
    if (hi - lo > 240) {
      ctx.globalAlpha = dim ? 0.25 : 0.55;
      this.drawSteps(link.flying, y, h, link.flying.max, colors.flight);
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

  /* --- hit tests ------- */

  hit(x, y) {
    y += this.view.scrollTop;
    const row = this.rows.find((r) => y >= r.y && y < r.y + r.h + r.gap);
    if (!row) return null;
    if (row.type === 'fold') return { panel: this, row };
    if (x < LEFT || x > LEFT + this.plot) return null;
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
