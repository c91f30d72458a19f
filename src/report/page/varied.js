/* SPDX-License-Identifier: Apache-2.0 */
/* Varying iterations: a histogram and its marked values. */

/* Stacks marks whose texts would overlap. */
function stackedMarks(marks, x) {
  const ends = [];
  return marks.sort((p, q) => p.ns - q.ns).map((mark) => {
    const at = x(mark.ns);
    let line = 0;
    while (ends[line] !== undefined && ends[line] > at) line++;
    ends[line] = at + 12 + 6.4 * mark.text.length;
    return { ...mark, at, line };
  });
}

function histogram(v) {
  const W = 860;
  const H = 250;
  const box = { left: 52, right: W - 130, top: 58, bottom: H - 38 };
  const end = v.from + v.width * v.counts.length;
  const most = Math.max(...v.counts);
  const marks = [{ ns: v.mean, text: `mean ${time(v.mean)}` },
    { ns: v.p95, text: `95 % within ${time(v.p95)}` },
    { ns: v.p99, text: `99 % within ${time(v.p99)}` }];
  if (v.usual > 0)
    marks.push({ ns: v.usual, text: `without jitter ${time(v.usual)}`,
      kind: 'usual' });
  const lo = Math.min(v.from, v.usual > 0 ? v.usual : v.from);
  const x = (ns) => box.left + (ns - lo) / (end - lo) * (box.right - box.left);
  const y = (n) => box.bottom - n / most * (box.bottom - box.top);
  const chart = svg('svg', { class: 'chart', viewBox: `0 0 ${W} ${H}`,
    role: 'img', 'aria-label': varyingSentence(v) });
  const step = Math.max(1, niceStep(most, 4));
  for (let n = 0; n <= most; n += step)
    chart.append(svg('line', { class: 'grid', x1: box.left, x2: box.right,
      y1: y(n), y2: y(n) }), svg('text', { x: box.left - 7, y: y(n) + 4,
      'text-anchor': 'end' }, n.toLocaleString('en')));
  v.counts.forEach((count, i) => {
    if (!count) return;
    const from = v.from + i * v.width;
    const bar = svg('rect', { class: 'times', x: x(from), y: y(count),
      width: Math.max(1, x(from + v.width) - x(from) - 1),
      height: box.bottom - y(count) });
    bar.append(svg('title', {}, `${time(from)} to ${time(from + v.width)}: ` +
      `${count.toLocaleString('en')} iterations`));
    chart.append(bar);
  });
  const [size, unit] = unitOf(end);
  const tick = niceStep(end - lo, 7);
  for (let ns = Math.ceil(lo / tick) * tick; ns <= end; ns += tick)
    chart.append(svg('line', { class: 'axis', x1: x(ns), x2: x(ns),
      y1: box.bottom, y2: box.bottom + 4 }), svg('text', { x: x(ns),
      y: box.bottom + 17, 'text-anchor': 'middle' }, plainNumber(ns / size)));
  chart.append(svg('line', { class: 'axis', x1: box.left, x2: box.right,
    y1: box.bottom, y2: box.bottom }), svg('text', {
    x: (box.left + box.right) / 2, y: H - 4, 'text-anchor': 'middle' },
  `iteration (${unit})`));
  for (const { at, line, text, kind } of stackedMarks(marks, x))
    chart.append(svg('line', { class: `mark ${kind || ''}`, x1: at, x2: at,
      y1: 2 + 13 * line, y2: box.bottom }), svg('text', {
      class: `mark-text ${kind || ''}`, x: at + 4, y: 11 + 13 * line }, text));
  return chart;
}

function varyingSentence(v) {
  const over = v.usual > 0
    ? `, ${change(v.usual, v.mean)} relative to no jitter` : '';
  return `${v.n.toLocaleString('en')} iterations: mean ${time(v.mean)}${over}; ` +
    `half within ${time(v.p50)}, 95 % within ${time(v.p95)}, 99 % within ` +
    `${time(v.p99)}; ${time(v.least)} to ${time(v.most)}.`;
}

function showVaried(list) {
  if (!list.length) return;
  $('varied').hidden = false;
  for (const v of list)
    $('varied').append(el('div', { class: 'panel-head' }, el('h2', {}, v.title)),
      el('p', { class: 'note' }, varyingSentence(v)),
      el('div', { class: 'sweep-list wide' }, histogram(v)));
}
