/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of every method over the latency between sites, under the what-if
 * changes. The worker computes one point at a time, and the page draws all
 * available points. Between points, the worker searches the latency at which
 * another method becomes the fastest. */

/* Also runs in the worker (whatif.js copies its source text there).
 * `rowsAt(ns)` returns the rows of all methods at a latency, or null after
 * cancellation. Results go to `tell({rows, ns})`, and at the end to
 * `tell({changes})`. */
async function sweepLatency(points, rowsAt, tell) {
  const STEPS = 10; /* bisection steps between two points */
  const fastest = (rows, before) => {
    const good = rows.filter((r) => r.status === 'ok' && r.makespan >= 0);
    const least = Math.min(...good.map((r) => r.makespan));
    /* Ties keep the previous fastest method. */
    const all = good.filter((r) => r.makespan === least).map((r) => r.method);
    return all.includes(before) ? before : all[0];
  };
  const seen = [];
  for (const ns of points) {
    const rows = await rowsAt(ns);
    if (!rows) return;
    seen.push({ ns, rows });
    tell({ ns, rows });
  }
  const changes = [];
  let winner = fastest(seen[0].rows);
  for (let i = 1; i < seen.length; i++) {
    let from = seen[i - 1].ns;
    while (fastest(seen[i].rows, winner) !== winner) {
      let to = seen[i];
      for (let step = 0; step < STEPS && to.ns - from > 1; step++) {
        const ns = Math.round((from + to.ns) / 2);
        const rows = await rowsAt(ns);
        if (!rows) return;
        if (fastest(rows, winner) === winner) from = ns;
        else to = { ns, rows };
      }
      winner = fastest(to.rows, winner);
      changes.push({ ns: to.ns, to: winner });
      from = to.ns;
    }
  }
  tell({ first: fastest(seen[0].rows), changes });
}

/* --- drawing ------------------------------------------------------------------ */

const curves = { points: [], found: null };

/* Latencies to evaluate, in ns, in ascending order. */
function curvePoints() {
  const { links } = ask.controls;
  const longest = Math.max(...links.map((l) => l.latency));
  const t = ask.first;
  const reach = longest > 0 ? 3 * longest
    : 4 * Math.max(...t.runs.end.map((end_, i) => end_ - t.runs.start[i]));
  return Array.from({ length: 10 }, (_, i) => Math.round(reach * i / 9));
}

function curvesOpen() {
  return $('curves-box') && $('curves-box').open;
}

/* "1f1b is the fastest up to 3 ms, then greedy." */
function winnersText({ first, changes }) {
  if (!first) return 'No schedule supports this pipeline.';
  if (!changes.length) return `${first} is the fastest at every latency.`;
  return `${first} is the fastest up to ${time(changes[0].ns)}` +
    changes.map(({ to }, i) => `, then ${to}` + (changes[i + 1]
      ? ` up to ${time(changes[i + 1].ns)}` : '')).join('') + '.';
}

function drawCurves() {
  const { points, found } = curves;
  const names = ask.controls.methods.filter((m) => m.row).map((m) => m.name);
  const at = (point, name) => {
    const row = point.rows.find((r) => r.method === name);
    return row && row.status === 'ok' ? row.makespan : -1;
  };
  const series = names.map((name) => [name, ...points.map((p) => at(p, name))])
    .filter(([, ...ns]) => ns.some((v) => v >= 0));
  const now = new Set(ask.controls.links.map((l) => l.latency));
  const marks = found ? found.changes.map(({ ns, to }) => ({ x: ns / 1e6,
    text: to })) : [];
  if (now.size === 1)
    marks.push({ x: [...now][0] / 1e6, text: 'the report', soft: true });
  $('curves-list').replaceChildren(sweepChart({ x: 'latency between sites, ms',
    xs: points.map((p) => p.ns / 1e6), baseline: ask.first.makespan, series,
    marks }));
  $('curves-told').textContent = found ? winnersText(found)
    : `${points.length} of ${curvePoints().length} latencies`;
}

/* The worker's results for the latest request. */
function hearCurves(told) {
  if (told.rows) {
    curves.points.push(told);
  } else {
    curves.found = told;
    document.documentElement.dataset.curves = '0';
  }
  drawCurves();
}

function beginCurves() {
  curves.points = [];
  curves.found = null;
  document.documentElement.dataset.curves = '1';
}

/* The box; opening it starts the computation. */
function curvesBox() {
  const box = el('details', { id: 'curves-box', ontoggle: () => {
    if (box.open) request(ask.line || '');
  } }, el('summary', {}, 'Every schedule over the latency between sites'),
  el('p', { id: 'curves-told', class: 'note', 'aria-live': 'polite' }),
  el('p', { class: 'note' }, 'makespan relative to the report\'s; all links ' +
    'between sites have the latency; a dashed line marks a change of the ' +
    'fastest schedule'),
  el('div', { id: 'curves-list', class: 'sweep-list wide' }));
  return box;
}
