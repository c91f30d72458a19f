/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and charts beside the timeline. */

/* --- comparison of methods ------------------------------------------------ */

function cell(text, kind) {
  return el('td', { class: kind || '' }, text);
}

/* Explanations of a plan's row states. */
const STATES = { memory: 'does not fit', bounded: 'too slow at best' };

/* Returns the duration of a schedule's row; for a plan, the iteration time. */
function rowsTake() {
  return data.cards.some(([name]) => name === 'Iteration') ? 'Iteration'
    : 'Makespan';
}

function showRows(rows, takes = 'Makespan') {
  if (!rows.length) return;
  $('compare').hidden = false;
  const good = rows.filter((r) => r.makespan >= 0 && r.status === 'ok');
  const best = Math.min(...good.map((r) => r.makespan));
  const worst = Math.max(...good.map((r) => r.makespan));
  const unit = (traces[0] || {}).unit || '';
  /* A plan's rows have the peak of the device with the least free memory. */
  const peak = !limitsDiffer(traces[0]) ? 'Peak memory'
    : takes === 'Iteration' ? 'Peak with least free memory' : 'Highest peak';
  const columns = [['Schedule', 'method'], [takes, 'makespan'],
    ['', null], ['Relative to best', 'makespan'], ['Bubble', 'bubble'],
    [peak, 'peak'], ['\u00a0\u00a0Status', 'status'], ['Why', 'why']];
  const numeric = new Set([takes, 'Relative to best', 'Bubble', peak]);
  const body = el('tbody');
  const fill = (list_) => body.replaceChildren(...list_.map((r) => {
    const ok = r.status === 'ok' && r.makespan >= 0;
    const isBest = ok && r.makespan === best;
    return el('tr', { class: isBest ? 'best' : ok ? '' : 'failed' },
      cell(r.method), cell(r.makespan < 0 ? '\u2013' : time(r.makespan), 'num'),
      el('td', {}, ok ? el('div', { class: 'bar', 'aria-hidden': 'true' },
        el('i', { style: `width:${100 * r.makespan / worst}%` })) : null),
      cell(!ok ? '\u2013' : isBest ? 'best'
        : '+' + percent(r.makespan / best - 1), 'num'),
      cell(r.bubble < 0 || !ok ? '\u2013' : percent(r.bubble), 'num'),
      cell(r.peak < 0 ? '\u2013' : memory(r.peak, unit), 'num'),
      cell(STATES[r.status] || r.status, 'status'), cell(readable(r.why, unit), 'why'));
  }));
  let order = null;
  let rising = true;
  const sort = (key) => {
    rising = order === key ? !rising : true;
    order = key;
    const value = (r) => (typeof r[key] === 'number' && r[key] < 0 ? Infinity
      : r[key]);
    fill(rows.slice().sort((x, y) => (value(x) < value(y) ? -1
      : value(x) > value(y) ? 1 : 0) * (rising ? 1 : -1)));
  };
  $('rows').replaceChildren(el('thead', {}, el('tr', {}, ...columns.map(([name, key]) =>
    el('th', { class: numeric.has(name) ? 'num' : '', scope: 'col' },
      key ? el('button', { type: 'button', title: 'Sort by this',
        onclick: () => sort(key) }, name) : name)))), body);
  fill(rows);
}

/* --- comparison of two traces --------------------------------------------- */

function mean(sum, n) {
  return n ? sum / n : 0;
}

function versusRows(p, q) {
  const kinds = KINDS.slice(0, 4).map(() => ({ n: 0, p: 0, q: 0, off: 0 }));
  for (let i = 0; i < p.runs.n; i++) {
    const j = findRun(q, p, i);
    if (j < 0) continue;
    const k = kinds[p.runs.kind[i]];
    const a = p.runs.end[i] - p.runs.start[i];
    const b = q.runs.end[j] - q.runs.start[j];
    k.n++;
    k.p += a;
    k.q += b;
    k.off += Math.abs(b - a);
  }
  return kinds;
}

function versusTable(p, q) {
  const row = (name, n, a, b) => el('tr', {}, cell(name), cell(n, 'num'),
    cell(time(a), 'num'), cell(time(b), 'num'), cell(change(a, b), 'num'));
  const head = ['', 'Passes', p.label, q.label, 'Change'];
  return el('table', {}, el('thead', {}, el('tr', {}, ...head.map((name, i) =>
    el('th', { class: i ? 'num' : '', scope: 'col' }, name)))),
  el('tbody', {}, row('Makespan', '', p.makespan, q.makespan),
    ...versusRows(p, q).map((k, i) => k.n && row(`${KINDS[i]}, mean time`,
      k.n.toLocaleString('en'), mean(k.p, k.n), mean(k.q, k.n)))
      .filter((r) => r)));
}

function showVersus() {
  if (traces.length !== 2) return;
  const [p, q] = traces;
  $('versus').hidden = false;
  $('versus').replaceChildren(el('div', { class: 'panel-head' },
    el('h2', {}, `${q.label} against ${p.label}`)), versusTable(p, q));
}

/* --- idle time by cause ---------------------------------------------------- */

/* `reach` is the share of the total that a full bar represents. */
function stackRow(name, parts, whole, reach, dense) {
  const bar = el('div', { class: 'stack-bar' });
  let idle = 0;
  for (const [cause, ns, c] of parts) {
    idle += ns;
    bar.append(el('i', { title: `${cause}: ${time(ns)} (${percent(ns / whole)})`,
      style: `width:${100 * ns / whole / reach}%;background:var(--i${c % 9})` }));
  }
  return el('div', { class: 'stack-row' + (dense ? ' dense' : '') },
    el('span', {}, name), bar, el('b', {}, percent(idle / whole)));
}

function idleOf(t, reach) {
  const n = t.causes.length;
  const totals = causeTotals(t);
  const box = el('div', {});
  if (traces.length > 1) box.append(el('h3', {}, t.label));
  const all = t.makespan * t.devices;
  box.append(stackRow('all devices', totals, all, reach, false));
  if (t.devices <= 64)
    for (const d of t.rows.devices)
      box.append(stackRow(deviceName(t, d), t.causes.map((name, c) =>
        [name, t.idle[d * n + c], c]).filter((x) => x[1] > 0), t.makespan,
      reach, t.devices > 16));
  const legend = el('div', { class: 'legend', style: 'margin-top:9px' },
    ...totals.map(([name, sum, c]) => el('span', {},
      el('i', { style: `background:var(--i${c % 9})` }),
      `${name} ${percent(sum / all)}`)));
  box.append(legend);
  return box;
}

/* Returns the largest idle share of the makespan over all devices. */
function worstIdle(t) {
  const n = t.causes.length;
  let worst = 0;
  for (let d = 0; d < t.devices; d++)
    worst = Math.max(worst, t.idle.slice(d * n, d * n + n)
      .reduce((x, y) => x + y, 0) / t.makespan);
  return worst;
}

function showIdle() {
  const known = traces.filter((t) => t.causes);
  $('idle').hidden = !known.length;
  if (!known.length) return;
  const worst = Math.max(...known.map(worstIdle));
  const reach = [0.01, 0.05, 0.1, 0.25, 0.5].find((r) => worst <= r) || 1;
  refill($('idle'),el('div', { class: 'panel-head' },
    el('h2', {}, 'Idle time by cause'),
    el('p', { class: 'note' }, `share of the makespan; bars reach to ` +
      `${100 * reach}\u00a0%`)),
  el('ul', { class: 'sentences' }, ...known.map((t) => el('li', {},
    (known.length > 1 ? `${t.label}: ` : '') + waitSentence(t)))),
  el('div', { class: 'stacks' }, ...known.map((t) => idleOf(t, reach))));
}

/* --- slowdown over a sweep -------------------------------------------------- */

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes))
    node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/* Nine colours and two lists of dash patterns, of coprime lengths, distinguish
 * 315 curves. */
const DASHES = ['', '7 3', '2 3', '9 3 2 3', '4 2', '12 4', '6 2 2 2'];
const MARKERS = ['circle', 'square', 'diamond', 'up', 'down'];

function lineStyle(n) {
  return [`--s${n % 9}`, DASHES[n % DASHES.length],
    MARKERS[n % MARKERS.length]];
}

function marker(shape, x, y, fill) {
  const points = {
    square: [[-3, -3], [3, -3], [3, 3], [-3, 3]],
    diamond: [[0, -4], [4, 0], [0, 4], [-4, 0]],
    up: [[0, -4], [4, 3], [-4, 3]], down: [[0, 4], [4, -3], [-4, -3]],
  }[shape];
  if (!points) return svg('circle', { cx: x, cy: y, r: 3.2, style: fill });
  return svg('polygon', { style: fill,
    points: points.map(([dx, dy]) => `${x + dx},${y + dy}`).join(' ') });
}

function niceStep(range, want) {
  const power = 10 ** Math.floor(Math.log10(range / want));
  return [1, 2, 2.5, 5, 10].map((f) => f * power)
    .find((s) => range / s <= want + 1e-9);
}

function plainNumber(v) {
  return trim(v.toPrecision(6)).replace(/e.*/, (e) => e);
}

/* Labels at the ends of lines, separated to avoid overlap. */
function spread(ends, lo, hi) {
  ends.sort((p, q) => p.y - q.y);
  let last = -Infinity;
  for (const e of ends) {
    e.at = Math.max(e.y, last + 13, lo);
    last = e.at;
  }
  let next = hi + 13;
  for (const e of ends.slice().reverse()) {
    e.at = Math.min(e.at, next - 13);
    next = e.at;
  }
}

function sweepChart(sweep) {
  const W = 620;
  const H = Math.max(300, 66 + 13 * sweep.series.length);
  const longest = Math.max(...sweep.series.map(([name]) => name.length));
  const box = { left: 46, right: W - 40 - Math.min(30, longest) * 7, top: 12,
    bottom: H - 40 };
  const value = (ns) => (ns < 0 ? null : ns / sweep.baseline);
  const series = sweep.series.map(([name, ...ns]) => ({ name,
    ys: ns.map(value) }));
  const all = series.flatMap((s) => s.ys).filter((v) => v !== null);
  if (!all.length || !sweep.xs.length) return el('p', {}, 'No points.');
  const x0 = sweep.xs[0];
  const x1 = sweep.xs[sweep.xs.length - 1];
  const y0 = Math.min(1, ...all);
  const y1 = Math.max(y0 + 0.01, ...all);
  const X = (v) => box.left + (x1 > x0 ? (v - x0) / (x1 - x0) : 0.5) *
    (box.right - box.left);
  const top = y1 + (y1 - y0) * 0.04;
  const Y = (v) => box.bottom - (v - y0) / (top - y0) *
    (box.bottom - box.top);
  const chart = svg('svg', { class: 'chart', viewBox: `0 0 ${W} ${H}`,
    role: 'img', 'aria-label': `Slowdown over ${sweep.x}: ` +
      series.map((s) => s.name).join(', ') });
  const yStep = niceStep(top - y0, 6);
  for (let i = Math.ceil(y0 / yStep); i * yStep <= top; i++) {
    const y = Y(i * yStep);
    chart.append(svg('line', { class: 'grid', x1: box.left, x2: box.right,
      y1: y, y2: y }), svg('text', { x: box.left - 7, y: y + 4,
      'text-anchor': 'end' }, plainNumber(i * yStep)));
  }
  const xStep = x1 > x0 ? niceStep(x1 - x0, 8) : 1;
  for (let i = Math.ceil(x0 / xStep - 1e-9); i * xStep <= x1 + 1e-9; i++)
    chart.append(svg('line', { class: 'axis', x1: X(i * xStep),
      x2: X(i * xStep), y1: box.bottom, y2: box.bottom + 4 }),
    svg('text', { x: X(i * xStep), y: box.bottom + 17,
      'text-anchor': 'middle' }, plainNumber(i * xStep)));
  chart.append(svg('line', { class: 'axis', x1: box.left, x2: box.right,
    y1: box.bottom, y2: box.bottom }), svg('text', {
    x: (box.left + box.right) / 2, y: H - 6, 'text-anchor': 'middle' },
  sweep.x));
  (sweep.marks || []).forEach(({ x, text, soft }, i) => {
    if (x < x0 || x > x1) return;
    chart.append(svg('line', { class: soft ? 'mark soft' : 'mark', x1: X(x),
      x2: X(x), y1: box.top, y2: box.bottom }), svg('text', {
      class: soft ? 'mark-text soft' : 'mark-text', x: X(x) + 4,
      y: box.top + 9 + 13 * (i % 6) }, text));
  });
  const ends = [];
  series.forEach((s, n) => {
    const [color, dash, shape] = lineStyle(n);
    const points = sweep.xs.map((x, i) => [X(x), s.ys[i], i])
      .filter((p) => p[1] !== null).map(([x, y, i]) => [x, Y(y), i]);
    if (!points.length) return;
    chart.append(svg('polyline', { fill: 'none',
      style: `stroke:var(${color})`, 'stroke-width': 2,
      'stroke-dasharray': dash, 'stroke-linejoin': 'round',
      points: points.map((p) => `${p[0]},${p[1]}`).join(' ') }));
    for (const [x, y, i] of points.length <= 40 ? points : []) {
      const dot = marker(shape, x, y, `fill:var(${color})`);
      dot.append(svg('title', {}, `${s.name}, ${sweep.x} ` +
        `${plainNumber(sweep.xs[i])}: ${s.ys[i].toFixed(3)} ` +
        `(${time(s.ys[i] * sweep.baseline)})`));
      chart.append(dot);
    }
    const [x, y] = points[points.length - 1];
    ends.push({ x, y, name: s.name, color, shape });
  });
  spread(ends, box.top + 4, box.bottom);
  for (const e of ends)
    chart.append(svg('line', { x1: e.x + 5, y1: e.y, x2: box.right + 16,
      y2: e.at, style: `stroke:var(${e.color});opacity:.45` }),
    marker(e.shape, box.right + 22, e.at, `fill:var(${e.color})`),
    svg('text', { class: 'end', x: box.right + 30, y: e.at + 4 }, e.name));
  return chart;
}

function showSweeps() {
  if (!data.sweeps.length) return;
  $('sweeps').hidden = false;
  const bases = new Set(data.sweeps.map((s) => s.baseline));
  $('sweeps-note').textContent = bases.size === 1
    ? `makespan over ${time(data.sweeps[0].baseline)}`
    : 'makespan over the baseline of each chart';
  for (const sweep of data.sweeps)
    $('sweep-list').append(el('div', {},
      sweep.title ? el('h3', {}, sweep.title) : null, sweepChart(sweep)));
}

/* --- link use --------------------------------------------------------------- */

function linkTable(t) {
  const head = ['Link', 'Messages', 'Busy', '', 'Queueing time',
    'Longest queue', 'Most in flight'];
  const rows = t.linkRows.slice().sort((x, y) =>
    y.track.busy() - x.track.busy()).slice(0, 40);
  const table = el('table', {}, el('thead', {}, el('tr', {}, ...head.map((name, i) =>
    el('th', { class: i && name ? 'num' : '', scope: 'col' }, name)))),
  el('tbody', {}, ...rows.map((row) => {
    const busy = row.track.busy() / t.makespan;
    return el('tr', {}, cell(row.name),
      cell(row.ids.length.toLocaleString('en'), 'num'),
      cell(percent(busy), 'num'),
      el('td', {}, el('div', { class: 'bar', 'aria-hidden': 'true' },
        el('i', { style: `width:${100 * Math.min(1, busy)}%` }))),
      cell(row.queued ? time(row.queued) : '\u2013', 'num'),
      cell(row.waiting.max ? String(row.waiting.max) : '\u2013', 'num'),
      cell(row.flying.max ? String(row.flying.max) : '\u2013', 'num'));
  })));
  sortable(table);
  return table;
}

function showLinks() {
  const known = traces.filter((t) => t.linkRows.length);
  $('links').hidden = !known.length;
  if (!known.length) return;
  refill($('links'), el('div', { class: 'panel-head' },
    el('h2', {}, 'Link use')));
  for (const t of known) {
    if (traces.length > 1) $('links').append(el('h3', {}, t.label));
    $('links').append(el('div', { class: 'scroll' }, linkTable(t)));
    if (t.linkRows.length > 40)
      $('links').append(el('p', { class: 'note' },
        `The busiest 40 of ${t.linkRows.length} links.`));
  }
}
