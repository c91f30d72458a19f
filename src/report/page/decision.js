/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a decision, at the top of the page: recommendation, map of the
 * sites, where time and memory go, alternatives, Pareto front. */

/* --- map of the sites ---------------------------------------------------------- */

/* Returns the sites' indices in the order in which a microbatch visits them;
 * idle sites are last. */
function siteOrder(sites) {
  const visited = traces[0] && traces[0].rows.grouped ? traces[0].rows.heads : [];
  const place = (i) => {
    const at = visited.indexOf(sites[i].texts[0]);
    return at < 0 ? visited.length : at;
  };
  return sites.map((_, i) => i).sort((a, b) => place(a) - place(b) || a - b);
}

function siteBox({ texts: [name, gpus, holds], used }) {
  return el('div', { class: used > 0 ? 'site-box' : 'site-box idle' },
    el('h3', {}, name), el('p', { class: 'site-gpus' }, gpus),
    el('div', { class: 'bar', 'aria-hidden': 'true' },
      el('i', { style: `width:${used / 1e4}%` })),
    el('p', { class: 'note' }, holds));
}

/* One line for each direction: its use as a bar, and its traffic. */
function linkBox(links, sites, named) {
  const name = (i) => sites[i].texts[0];
  const values = [...new Set(links.map((link) => link.texts[0]))].join('; ');
  const carries = [...new Set(links.map((link) => link.texts[1]))].join('; ');
  return el('div', { class: named ? 'link-box named' : 'link-box' },
    el('div', { class: 'link-line', 'aria-hidden': 'true' }),
    el('p', {}, (named ? `${name(links[0].from)}\u2013${name(links[0].to)}: `
      : '') + values),
    ...links.map((link) => el('div', { class: 'link-use' },
      el('span', {}, `to ${name(link.to)}`),
      el('div', { class: 'bar', 'aria-hidden': 'true' }, el('i',
        { style: `width:${Math.min(100, Math.max(0, link.use) / 1e4)}%` })),
      el('b', {}, link.use < 0 ? '\u2013' : percent(link.use / 1e6)))),
    el('p', { class: 'note' }, carries));
}

function siteMap({ sites, links }) {
  const order = siteOrder(sites);
  const between = (a, b) => links.filter((link) =>
    (link.from === a && link.to === b) || (link.from === b && link.to === a));
  const chain = el('div', { class: 'site-map' });
  const left = new Set(links);
  order.forEach((site, i) => {
    if (i > 0) {
      const here = between(order[i - 1], site);
      here.forEach((link) => left.delete(link));
      chain.append(here.length ? linkBox(here, sites, false)
        : el('div', { class: 'link-box' }));
    }
    chain.append(siteBox(sites[site]));
  });
  const others = [];
  for (const link of left) {
    const pair = between(link.from, link.to).filter((x) => left.has(x));
    pair.forEach((x) => left.delete(x));
    if (pair.length) others.push(linkBox(pair, sites, true));
  }
  return el('div', {}, chain,
    others.length ? el('div', { class: 'site-map' }, ...others) : null);
}

/* --- time against cost or memory -------------------------------------------------- */

/* The Pareto front; names the plan and the marked point. */
function tradeoffChart(points) {
  const priced = points.every((p) => p.usd >= 0);
  const y = (p) => (priced ? p.usd / 1e9 : p.bytes / 2 ** 30);
  const unit = priced ? 'USD per iteration' : 'memory of the fullest GPU, GiB';
  const W = 620;
  const H = 260;
  const box = { left: 62, right: W - 20, top: 14, bottom: H - 42 };
  const range = (values) => {
    const lo = Math.min(...values);
    const hi = Math.max(...values);
    const room = (hi - lo) * 0.08 || hi * 0.05 || 1;
    return [lo - room, hi + room];
  };
  const [x0, x1] = range(points.map((p) => p.ns / 1e9));
  const [y0, y1] = range(points.map(y));
  const X = (v) => box.left + (v - x0) / (x1 - x0) * (box.right - box.left);
  const Y = (v) => box.bottom - (v - y0) / (y1 - y0) * (box.bottom - box.top);
  const chart = svg('svg', { class: 'chart', viewBox: `0 0 ${W} ${H}`,
    role: 'img', 'aria-label': `Iteration time against ${unit}: ` +
      `${points.length} evaluated plans that no other one improves` });
  const step = niceStep(y1 - y0, 5);
  for (let i = Math.ceil(y0 / step); i * step <= y1; i++)
    chart.append(svg('line', { class: 'grid', x1: box.left, x2: box.right,
      y1: Y(i * step), y2: Y(i * step) }), svg('text', { x: box.left - 7,
      y: Y(i * step) + 4, 'text-anchor': 'end' }, plainNumber(i * step)));
  const xStep = niceStep(x1 - x0, 6);
  for (let i = Math.ceil(x0 / xStep); i * xStep <= x1; i++)
    chart.append(svg('text', { x: X(i * xStep), y: box.bottom + 17,
      'text-anchor': 'middle' }, plainNumber(i * xStep)));
  chart.append(svg('line', { class: 'axis', x1: box.left, x2: box.right,
    y1: box.bottom, y2: box.bottom }), svg('text', { x: box.left, y: H - 6 },
  `across: iteration, s; upwards: ${unit}`));
  /* A point above a faster one is on the front for the third quantity. */
  let least = Infinity;
  const front = points.filter((p) => y(p) < least && (least = y(p)) >= 0);
  chart.append(svg('polyline', { class: 'front', points: front.map((p) =>
    `${X(p.ns / 1e9)},${Y(y(p))}`).join(' ') }));
  const marked = points.filter((p) => p.texts[1]);
  for (const p of points.slice().sort((a, b) =>
    front.includes(a) - front.includes(b) ||
    Boolean(a.texts[1]) - Boolean(b.texts[1]))) {
    const kind = p.texts[1] ? ' marked' : front.includes(p) ? '' : ' other';
    const dot = svg('circle', { class: `point${kind}`, cx: X(p.ns / 1e9),
      cy: Y(y(p)), r: p.texts[1] ? 8 : 4 });
    dot.append(svg('title', {}, `${time(p.ns)}, ${memory(p.bytes, 'B')}` +
      (p.usd < 0 ? '' : `, USD ${plainNumber(p.usd / 1e9)}`) +
      `: ${p.texts[0]}`));
    chart.append(dot);
    if (!p.texts[1]) continue;
    const letter = String.fromCharCode(65 + marked.indexOf(p));
    chart.append(svg('text', { class: 'letter', x: X(p.ns / 1e9),
      y: Y(y(p)) + 4, 'text-anchor': 'middle', 'aria-hidden': 'true' }, letter));
  }
  return el('div', { class: 'tradeoffs' }, chart, el('ol', { class: 'marks' },
    ...marked.map((p) => el('li', {}, `${p.texts[1]} (${time(p.ns)}, ` +
      `${p.usd < 0 ? memory(p.bytes, 'B') : `USD ${plainNumber(p.usd / 1e9)}`}` +
      ')'))));
}

/* --- the decision ------------------------------------------------------------------ */

/* The fullest device's memory as one bar, with the free part. */
function memoryOfPlan() {
  const d = fullestOf(data.memory);
  if (!d || d.limit <= 0) return null;
  const used = memorySum(d);
  return el('div', { class: 'parts' },
    el('h3', isNearlyFull(d) ? { class: 'near' } : {},
      `Memory of the fullest GPU (${d.name}): ${memory(used, 'B')} ` +
      `of ${memory(d.limit, 'B')}` + (isNearlyFull(d) && used < d.limit
        ? `, only ${memory(d.limit - used, 'B')} free` : '')),
    memoryBar(d, Math.max(d.limit, used)),
    memorySizes(d));
}

function showDecision(decision) {
  if (!decision) return;
  const { sentences, notes, sites, tradeoffs } = decision;
  const facts = [];
  for (let i = 0; i < notes.length; i += 2)
    facts.push(el('dt', {}, notes[i]), el('dd', {}, notes[i + 1]));
  const parts = data.reasons.find((item) => item.parts !== undefined);
  $('decision').hidden = false;
  $('decision').append(
    el('div', { class: 'panel-head' }, el('h2', {}, 'Recommendation')),
    el('div', { class: 'advice' }, ...sentences.map((text) =>
      el('p', {}, together(text)))),
    ...(sites.length ? [siteMap(decision)] : []),
    el('div', { class: 'bars' }, parts ? partsBar(parts) : null, memoryOfPlan()),
    el('h3', {}, 'What would change the choice'),
    el('dl', { class: 'notes' }, ...facts));
  if (tradeoffs.length > 1)
    $('decision').append(el('h3', {}, 'Time against ' +
      (tradeoffs.every((p) => p.usd >= 0) ? 'cost' : 'memory')),
    el('p', { class: 'note' }, 'Evaluated plans that no other one improves in ' +
      'time, memory and cost; the line joins those that are best in the two ' +
      'quantities of the chart.'), tradeoffChart(tradeoffs));
  $('about').hidden = false;
  $('about').append(el('div', { class: 'panel-head' }, el('h2', {},
    'Job, search and version')), $('facts'));
}

/* Folds all panels below the decision, except for the timeline and a panel that
 * the address uses. */
function foldDetails() {
  const open = ['decision', 'timeline'];
  if (itemsOfAddress(true).length) open.push('what-if');
  for (const panel of document.querySelectorAll('main > .panel')) {
    if (open.includes(panel.id)) continue;
    panel.classList.add('folded');
    const button = panel.querySelector('.panel-head .fold');
    if (button) button.setAttribute('aria-expanded', 'false');
  }
}
