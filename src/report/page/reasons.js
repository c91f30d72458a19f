/* SPDX-License-Identifier: Apache-2.0 */
/* Explanations of a plan: breakdown bars and text tables. */

function partColor(i) {
  return `--p${i % 9}`;
}

/* A bar, and a legend of its parts below it. */
function partsBar({ parts: title, list }) {
  const all = list.reduce((sum, [, ns]) => sum + ns, 0);
  const shown = list.map(([name, ns], i) => [name, ns,
    partColor(i)]).filter(([, ns]) => ns > 0);
  const share = (ns) => (all > 0 ? 100 * ns / all : 0);
  return el('div', { class: 'parts' },
    el('h3', {}, `${title}: ${time(all)}`),
    el('div', { class: 'stack-bar', 'aria-hidden': 'true' },
      ...shown.map(([name, ns, color]) => el('i', { title: name,
        style: `width:${share(ns)}%;background:var(${color})` }))),
    el('div', { class: 'legend' }, ...shown.map(([name, ns, color]) =>
      el('span', {}, el('i', { style: `background:var(${color})` }),
        `${name} ${time(ns)} (${share(ns).toFixed(1)} %)`))));
}

function textTable(title, head, rows) {
  const numeric = head.map((name) => name.startsWith('#'));
  const kind = (i) => (numeric[i] ? 'num' : '');
  /* Below a decision, a table opens on demand. */
  const box = el(data.decision ? 'details' : 'div', {}, data.decision
    ? el('summary', {}, `${title} (${rows.length})`) : el('h3', {}, title),
  el('div', { class: 'scroll' },
    el('table', { class: 'texts' }, el('thead', {}, el('tr', {},
      ...head.map((name, i) => el('th', { class: kind(i), scope: 'col' },
        numeric[i] ? name.slice(1) : name)))),
    el('tbody', {}, ...rows.map((cells) => el('tr', {},
      ...cells.map((text, i) => cell(text, kind(i)))))))));
  /* Keeps continuation rows behind their first row. */
  if (rows.every((cells) => cells[0] !== '')) sortable(box.querySelector('table'));
  return box;
}

function showReasons() {
  const { reasons } = data;
  if (!reasons.length) return;
  $('reasons').hidden = false;
  if (document.querySelector('.course')) /* from a run, not from a plan */
    $('reasons').querySelector('h2').textContent = 'Decisions and their reasons';
  reasons.forEach((item, i) => {
    if (item.parts !== undefined && data.decision) {
      return; /* a part of the decision */
    } else if (item.parts !== undefined) {
      $('reason-list').append(partsBar(item));
    } else if (item.table !== undefined) {
      let last = i + 1;
      while (last < reasons.length && reasons[last].cells) last++;
      $('reason-list').append(textTable(item.table, item.head,
        reasons.slice(i + 1, last).map((row) => row.cells)));
    }
  });
}
