/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two configurations: lists the differences and, on demand, all
 * values. */

/* Keeps numbers on one line; long lists of names wrap. */
function kind(text) {
  return text.length > 32 ? 'num long' : 'num';
}

function differenceRows(rows, all) {
  const shown = rows.filter(([, , first, second]) => all || first !== second);
  if (!shown.length)
    return [el('tr', {}, el('td', { colspan: 4 },
      `No differences in ${rows.length} rows.`))];
  const list_ = [];
  let last = null;
  for (const [group, name, first, second, by, better] of shown) {
    if (group !== last)
      list_.push(el('tr', { class: 'group' }, el('th', { colspan: 4,
        scope: 'colgroup' }, group[0].toUpperCase() + group.slice(1))));
    last = group;
    list_.push(el('tr', {}, cell(name), cell(first, kind(first)),
      cell(second, kind(second)), cell(by, 'num' +
        (better > 0 ? ' down' : better < 0 ? ' up' : ''))));
  }
  return list_;
}

function showDifferences(list_) {
  if (!list_.length) return;
  $('differences').hidden = false;
  for (const { first, second, rows } of list_) {
    const body = el('tbody', {}, ...differenceRows(rows, false));
    const alike = rows.filter(([, , a, b]) => a === b).length;
    const button = el('button', { type: 'button', 'aria-pressed': 'false',
      onclick: () => {
        const all = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', String(all));
        body.replaceChildren(...differenceRows(rows, all));
      } }, `Show equal rows (${alike})`);
    $('differences').append(el('div', { class: 'panel-head' },
      el('h2', {}, 'Differences'), button),
    el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {},
      ...['', first, second, 'Change'].map((name, i) => el('th', {
        class: i ? 'num' : '', scope: 'col' }, name)))), body)));
  }
}
