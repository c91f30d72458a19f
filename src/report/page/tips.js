/* SPDX-License-Identifier: Apache-2.0 */
/* Tooltip texts for the pass, message or row under the pointer. */

function list(...pairs) {
  return el('dl', {}, ...pairs.filter((p) => p).flatMap(([name, value]) =>
    [el('dt', {}, name), el('dd', {}, value)]));
}

function heading(kind, text) {
  return el('h4', {}, el('i', { class: 'swatch',
    style: `background:var(--${KINDS[kind].toLowerCase()})` }), text);
}

function place(t, d) {
  const site = t.sites[t.site[d]];
  return `${deviceName(t, d)}${site ? ` (${site})` : ''}`;
}

/* Finds the same pass in the other traces. */
function others(t, i) {
  return panels.filter((p) => p.t !== t).map((p) => {
    const j = findRun(p.t, t, i);
    if (j < 0) return null;
    const start = p.t.runs.start[j] - t.runs.start[i];
    const took = p.t.runs.end[j] - p.t.runs.start[j] -
      (t.runs.end[i] - t.runs.start[i]);
    const sign = (v) => (v < 0 ? '\u2212' : '+') + time(Math.abs(v));
    return [p.t.label, `start ${sign(start)}, duration ${sign(took)}`];
  });
}

/* Replicas run the same passes, so the device distinguishes them. */
function runKey(t, i) {
  const r = t.runs;
  return (t.per ? r.device[i] : '') + ':' +
    ((r.mb[i] * 65536 + r.chunk[i]) * 4 + r.kind[i]) + ':' + r.part[i] + '/' +
    r.parts[i];
}

function findRun(in_, t, i) {
  if (!in_.byPass) {
    in_.byPass = new Map();
    for (let j = 0; j < in_.runs.n; j++)
      in_.byPass.set(runKey(in_, j), j);
  }
  return in_.byPass.get(runKey(t, i)) ?? -1;
}

function runTip(t, i) {
  const r = t.runs;
  return [heading(r.kind[i], passName(t, i)),
    el('p', {}, `${KIND_NAMES[r.kind[i]]} of chunk ${r.chunk[i]}, microbatch ` +
      `${r.mb[i]}` + (r.parts[i] > 1 ? `, part ${r.part[i]} of ${r.parts[i]}`
        : '') + `, ${place(t, r.device[i])}`),
    list(['start', exact(r.start[i])], ['end', exact(r.end[i])],
      ['duration', exact(r.end[i] - r.start[i])],
      t.hasMemory && ['memory', `${memory(r.mem[i], t.unit)}` +
        (r.after[i] !== r.mem[i] ? `, then ${memory(r.after[i], t.unit)}`
          : '')],
      ...others(t, i)),
    waitText(t, i)];
}

function messageTip(t, m) {
  const x = t.messages;
  const span = (from, to) => to > from && exact(to - from);
  const row = (name, from, to) => to > from && [name, span(from, to)];
  return [heading(t.runs.kind[x.from[m]],
    `${passName(t, x.from[m])} \u2192 ${passName(t, x.to[m])}`),
  el('p', {}, `message from ${place(t, t.runs.device[x.from[m]])} to ` +
    `${place(t, t.runs.device[x.to[m]])}, ` +
    (x.link[m] < 0 ? 'no link' : `link ${t.links[x.link[m]]}`)),
  list(['made', exact(x.made[m])],
    row('receive not posted for', x.made[m], x.ready[m]),
    row('in the queue', x.ready[m], x.depart[m]),
    row('transfer', x.depart[m], x.sent[m]),
    row('latency', x.sent[m], x.arrive[m]),
    ['arrived', exact(x.arrive[m])])];
}

function collectiveTip(t, c) {
  const x = t.collectives;
  return [heading(4, `${x.rs[c] ? 'reduce-scatter' : 'all-gather'} of chunk ` +
    `${x.chunk[c]}`),
  el('p', {}, `data-parallel link of ${place(t, x.device[c])}` +
    (t.dpLink[x.device[c]] ? `: ${t.dpLink[x.device[c]]}` : '')),
  list(['starts', exact(x.depart[c])],
    x.depart[c] > x.ready[c] && ['in the queue',
      exact(x.depart[c] - x.ready[c])],
    ['transfer', exact(x.sent[c] - x.depart[c])],
    x.arrive[c] > x.sent[c] && ['latency', exact(x.arrive[c] - x.sent[c])],
    ['done', exact(x.arrive[c])])];
}

function rowTip(hit) {
  const { t } = hit.panel;
  const at = state.cursor;
  if (hit.row.type === 'link') {
    const { link } = hit.row;
    return [el('h4', {}, `link ${link.name}`),
      list(['waiting', String(link.waiting.at(at))],
        ['in flight', String(link.flying.at(at))])];
  }
  if (hit.row.type === 'mem')
    return [el('h4', {}, place(t, hit.row.d)),
      list(['memory', memory(t.memory[hit.row.d].at(at), t.unit)],
        ['peak', memory(t.memory[hit.row.d].max, t.unit)],
        t.limit[hit.row.d] !== null &&
          ['limit', memory(t.limit[hit.row.d], t.unit)])];
  return null;
}

function tipOf(hit) {
  if (!hit) return null;
  const { t } = hit.panel;
  if (hit.run !== undefined) return runTip(t, hit.run);
  if (hit.message !== undefined) return messageTip(t, hit.message);
  if (hit.collective !== undefined) return collectiveTip(t, hit.collective);
  return rowTip(hit);
}

function showTip(hit, x, y) {
  const tip = $('tip');
  const content = tipOf(hit);
  tip.hidden = !content;
  if (!content) return;
  tip.replaceChildren(...content);
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > window.innerWidth - 8
    ? x - box.width - 14 : x + 16;
  const top = Math.min(y + 14, window.innerHeight - box.height - 8);
  tip.style.left = Math.max(8, left) + 'px';
  tip.style.top = Math.max(8, top) + 'px';
}
