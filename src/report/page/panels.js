/* SPDX-License-Identifier: Apache-2.0 */
/* User interaction with panels and tables, and their summary sentences. */

/* --- folding ------------------------------------------------------------------ */

/* Makes every panel's heading fold it. */
function wireFolding() {
  for (const panel of document.querySelectorAll('main > .panel')) {
    const heading = panel.querySelector('.panel-head h2');
    if (!heading || heading.querySelector('button')) continue;
    const button = el('button', { type: 'button', class: 'fold',
      'aria-expanded': 'true', onclick: () => {
        const folded = panel.classList.toggle('folded');
        button.setAttribute('aria-expanded', String(!folded));
        if (!folded) resize();
      } }, ...heading.childNodes);
    heading.append(button);
  }
}

/* Replaces a panel's content; a folded panel stays folded. */
function refill(panel, ...children) {
  const folded = panel.classList.contains('folded');
  panel.replaceChildren(...children);
  wireFolding();
  if (folded) panel.querySelector('.fold').setAttribute('aria-expanded', 'false');
}

/* --- sorting ------------------------------------------------------------------- */

const SORTED_UNITS = { ns: 1, '\u00b5s': 1e3, us: 1e3, ms: 1e6, s: 1e9, min: 6e10,
  h: 3.6e12, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/* Parses "12.3 ms" as a number; text such as "-" sorts last. */
function numberIn(text) {
  const m = /^([+\u2212-]?)([\d.,]+(?:e[+-]?\d+)?)\s*([^\s\d]+)?/i.exec(text);
  if (!m) return NaN;
  const value = Number(m[2].replace(/,/g, '')) * (SORTED_UNITS[m[3]] || 1);
  return m[1] && m[1] !== '+' ? -value : value;
}

function sortTable(table, column, rising) {
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) =>
    [row, row.cells[column] ? row.cells[column].textContent.trim() : '']));
  const numeric = table.tHead.rows[0].cells[column].classList.contains('num');
  const less = (a, b) => {
    if (!numeric) return texts.get(a).localeCompare(texts.get(b), 'en');
    const [x, y] = [numberIn(texts.get(a)), numberIn(texts.get(b))];
    if (Number.isNaN(x) || Number.isNaN(y))
      return (Number.isNaN(x) - Number.isNaN(y)) * (rising ? 1 : -1);
    return x - y;
  };
  rows.sort((a, b) => less(a, b) * (rising ? 1 : -1));
  table.tBodies[0].append(...rows);
}

/* Makes a table's column headings sort it, except for tables with their own
 * sorting. */
function sortable(table) {
  if (!table.tHead || !table.tBodies.length) return;
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (head.textContent.trim() === '' || head.querySelector('button')) return;
    head.append(el('button', { type: 'button', title: 'Sort by this',
      onclick: () => {
        const rising = head.getAttribute('aria-sort') !== 'ascending';
        for (const other of table.tHead.rows[0].cells)
          other.removeAttribute('aria-sort');
        head.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
        sortTable(table, i, rising);
      } }, ...head.childNodes));
  });
}

/* --- waiting for messages ------------------------------------------------------- */

/* Returns {device, of, kind, link, ns}: the device with the longest wait for
 * messages that another device sends after passes of a kind; null: no device
 * waits. */
function longestWait(t) {
  const r = t.runs;
  const m = t.messages;
  const sums = new Map();
  for (let i = 0; i < r.n; i++) {
    const message = r.incoming[i];
    if (message < 0) continue;
    const first = i === t.first[r.device[i]];
    const free = first ? 0 : r.issued[i - 1];
    const ns = Math.min(r.start[i], m.arrive[message]) - free;
    if (ns <= 0) continue;
    const from = m.from[message];
    const key = [r.device[i], r.device[from], r.kind[from], m.link[message]];
    const name = key.join();
    const sum = sums.get(name) || { key, ns: 0 };
    sum.ns += ns;
    sums.set(name, sum);
  }
  let most = null;
  for (const sum of sums.values()) if (!most || sum.ns > most.ns) most = sum;
  if (!most) return null;
  const [device, of, kind, link] = most.key;
  return { device, of, kind, link, ns: most.ns };
}

/* "Device 2 waits longest: 125 ms, 24.9 % of the time, for ..." */
function waitSentence(t) {
  const wait = longestWait(t);
  if (!wait) return 'No device waits for another one.';
  const link = wait.link < 0 ? '' : ` over link ${t.links[wait.link]}`;
  return `Device ${wait.device} waits longest: ${time(wait.ns)}, ` +
    `${percent(wait.ns / t.makespan)} of the time, for ` +
    `${KIND_NAMES[wait.kind]} passes of device ${wait.of}${link}.`;
}

/* --- memory by kind -------------------------------------------------------------- */

/* Share of the limit from which memory counts as nearly full. */
const NEAR = 0.95;

function memorySum(d) {
  return d.parts.reduce((all, [, bytes]) => all + bytes, 0);
}

function isNearlyFull(d) {
  return d.limit > 0 && memorySum(d) >= NEAR * d.limit;
}

/* Joins consecutive stages of a site with the same parts, to SAME_MEMORY of the
 * limit: [{first, last, d}], `d` the fullest of them. */
function memoryRows(list) {
  const t = traces[0];
  const site = (i) => (t && t.devices === list.length ? t.site[i] : 0);
  const groups = [];
  list.forEach((d, i) => {
    const group = groups[groups.length - 1];
    const scale = SAME_MEMORY * Math.max(d.limit, memorySum(d));
    const alike = group && site(group.first) === site(i) &&
      list[group.first].limit === d.limit && d.parts.every(([, bytes], k) =>
      Math.abs(bytes - list[group.first].parts[k][1]) < scale);
    if (!alike) {
      groups.push({ first: i, last: i, d });
      return;
    }
    group.last = i;
    if (memorySum(d) > memorySum(group.d)) group.d = d;
  });
  return groups;
}

/* The parts of a device's memory as one bar; `whole`: bytes of a full bar. */
function memoryBar(d, whole) {
  return el('div', { class: 'stack-bar' }, ...d.parts.map(
    ([kind, bytes], k) => el('i', { title: `${kind}: ${memory(bytes, 'B')}`,
      style: `width:${100 * bytes / whole}%;background:var(--k${k % 8})` })));
}

function memoryLegend(d) {
  return el('div', { class: 'legend' }, ...d.parts.map(([kind], k) =>
    el('span', {}, el('i', { style: `background:var(--k${k % 8})` }), kind)));
}

/* A legend with the size of each part, and of the free memory. */
function memorySizes(d) {
  const whole = Math.max(d.limit, memorySum(d));
  const item = (kind, bytes, color) => el('span', {},
    el('i', { style: `background:var(${color})` }),
    `${kind} ${memory(bytes, 'B')} (${percent(bytes / whole)})`);
  return el('div', { class: 'legend' }, ...d.parts.map(([kind, bytes], k) =>
    (bytes > 0 ? item(kind, bytes, `--k${k % 8}`) : null)).filter((x) => x),
  whole > memorySum(d) ? item('free', whole - memorySum(d), '--track') : null);
}

/* Returns the device with the least free memory, or null. */
function fullestOf(list) {
  const free = (d) => (d.limit > 0 ? d.limit : 0) - memorySum(d);
  return (list || []).reduce((x, d) => (!x || free(d) < free(x) ? d : x), null);
}

/* Shows {name, limit, parts: [[kind, bytes]]} for each device. */
function showMemory(list) {
  if (!list || !list.length) return;
  $('memory').hidden = false;
  const whole = Math.max(...list.map((d) => Math.max(d.limit, memorySum(d))));
  const near = list.filter(isNearlyFull);
  const row = ({ first, last, d }) => {
    const all = memorySum(d);
    const bar = memoryBar(d, whole);
    if (d.limit > 0)
      bar.append(el('b', { class: 'limit', 'aria-hidden': 'true',
        style: `left:${100 * d.limit / whole}%` }));
    return el('div', { class: 'stack-row memory-row' +
      (isNearlyFull(d) ? ' near' : '') }, el('span', {}, first === last ? d.name
      : `${d.name.replace(/ \d+$/, '')}s ${rangeText(first, last)}`), bar,
    el('b', {}, memory(all, 'B') + (d.limit > 0
      ? `, ${percent(all / d.limit)}` : '')));
  };
  const rows = memoryRows(list);
  $('memory').replaceChildren(el('div', { class: 'panel-head' },
    el('h2', {}, 'Memory'), el('p', { class: near.length ? 'note up' : 'note' },
      !list[0].limit ? 'peak of each device' : near.length
        ? `${near.length} of ${list.length} devices have less than ` +
          `${percent(1 - NEAR)} of their limit left`
        : 'peak of each device; the line marks its limit')),
  ...rows.slice(0, 256).map(row), memoryLegend(list[0]));
  if (rows.length < list.length)
    $('memory').append(el('p', { class: 'note' }, 'A row of several stages ' +
      'shows the fullest; their parts differ from the first stage\u2019s by ' +
      `less than ${percent(SAME_MEMORY)} of the limit.`));
  if (rows.length > 256)
    $('memory').append(el('p', { class: 'note' },
      `The first 256 of ${rows.length} rows.`));
}

/* --- units ------------------------------------------------------------------------ */

/* Converts bytes within one of the program's sentences: "takes 86539949376
 * bytes more". */
function readable(text, unit) {
  return unit !== 'bytes' && unit !== 'B' ? text
    : text.replace(/\b(\d{5,})( bytes)?\b/g, (_, n) => memory(Number(n), unit));
}
