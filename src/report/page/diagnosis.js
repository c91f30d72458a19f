/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a diagnosis: maps of slow workers, steps with measured and typical
 * times, remedies. The timelines are those of every page. The upper one has the
 * step's own times, the lower one typical times or those under a remedy. */

const played = { step: 0, help: -1, cache: new Map() };

/* --- timelines ------------------------------------------------------------ */

function decodePlayed(key, from, per) {
  if (!played.cache.has(key))
    played.cache.set(key, decodeTrace(Object.assign({ per }, from)));
  return played.cache.get(key);
}

/* Returns the displayed traces: a step, and its comparison. */
function playedTraces() {
  const x = data.diagnosis;
  if (!x.steps.length) return [];
  const per = x.told.stages;
  const step = x.steps[played.step];
  const below = played.help < 0
    ? decodePlayed('i' + step.ideal, x.ideals[step.ideal], per)
    : decodePlayed('h' + played.help, x.helps[played.help],
      isPlayed(played.help) ? per : 0);
  return [decodePlayed('s' + played.step, step.own, per), below];
}

/* A remedy is either a replayed step with all its drawings, or one replica. */
function isPlayed(help) {
  const { helps, drawn, told } = data.diagnosis;
  return helps[help].sites.length === drawn.length &&
    helps[help].devices === drawn.length * told.stages &&
    helps[help].sites[0] !== '';
}

function seconds(value) {
  return time(value * 1e9);
}

function stepTold(k) {
  const x = data.diagnosis;
  return x.told.steps[x.steps[k].index];
}

function stepText(k) {
  const told = stepTold(k);
  return `step ${told.step}: measured ${seconds(told.measured_s)}, ` +
    `replayed ${seconds(told.t_s)}, with usual times ${seconds(told.ideal_s)}`;
}

function headings() {
  const x = data.diagnosis;
  const told = stepTold(played.step);
  const above = [`Step ${told.step}, measured times`,
    `replayed ${seconds(told.t_s)}`];
  if (played.help < 0)
    return [above, [`Step ${told.step}, usual times`, seconds(told.ideal_s)]];
  const { what } = x.told.helps[played.help];
  const ends = time(traces[1].makespan);
  return [above, [what, isPlayed(played.help)
    ? `step ${stepTold(x.typical).step} would take ${ends}`
    : `the slowest replica, simulated with mean times: ${ends} for its passes`]];
}

/* Replaces the displayed traces by the selected ones. */
function showPlayed() {
  playedTraces().forEach((t, i) => {
    traces[i] = t;
    panels[i].show(t);
    const [name, more] = headings()[i];
    panels[i].node.querySelector('h3').replaceChildren(name,
      el('small', {}, more));
  });
  state.pinned = state.hover = null;
  overview.key = null;
  $('step').value = played.step;
  $('step').setAttribute('aria-valuetext', stepText(played.step));
  $('step-text').textContent = stepText(played.step);
  $('show-1').textContent = traces[1].label;
  document.querySelectorAll('#helps button').forEach((button) =>
    button.setAttribute('aria-pressed',
      String(Number(button.dataset.help) === played.help)));
  fillStepMap();
  find($('find').value);
  resize();
}

function chooseHelp(help) {
  played.help = played.help === help ? -1 : help;
  if (played.help >= 0 && isPlayed(help)) played.step = data.diagnosis.typical;
  showPlayed();
}

/* --- maps ----------------------------------------------------------------- */

const HEAT = [1.02, 1.05, 1.1, 1.25, 1.5, 2];
const MOST_TEXTS = 24; /* maximum number of columns with visible numbers */

function heat(value) {
  return HEAT.filter((from) => value >= from).length;
}

/* Tab focuses one cell; arrow keys move from there to the others. */
function moveInMap(event) {
  const { mapped } = data.diagnosis;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -mapped.length,
    ArrowDown: mapped.length }[event.key];
  if (!by) return;
  const cells = [...event.currentTarget.querySelectorAll('.cell')];
  const to = cells[cells.indexOf(event.target) + by];
  event.preventDefault();
  event.stopPropagation();
  if (!to) return;
  event.target.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/* Returns a worker's first pass in the upper timeline. */
function goToWorker(stage, replica) {
  const { drawn, told } = data.diagnosis;
  const at = drawn.indexOf(replica);
  if (at < 0 || !panels.length) return;
  if (panels[0].node.hidden) show(0, true);
  $('timeline').scrollIntoView({ block: 'nearest' });
  goTo(panels[0], panels[0].t.first[at * told.stages + stage]);
}

function makeMap(id, name) {
  const { mapped, told } = data.diagnosis;
  const texts = mapped.length <= MOST_TEXTS;
  const table = el('table', { class: texts ? 'heat' : 'heat dense', id,
    'aria-label': name, onkeydown: moveInMap });
  table.append(el('tr', {}, el('td', {}), ...mapped.map((r) =>
    el('th', { scope: 'col', title: `replica ${r}` }, texts ? `replica ${r}`
      : ''))));
  for (let s = 0; s < told.stages; s++)
    table.append(el('tr', {}, el('th', { scope: 'row' }, `stage ${s}`),
      ...mapped.map((r, k) => el('td', {}, el('button', { type: 'button',
        class: 'cell', tabindex: s + k ? -1 : 0,
        onclick: () => goToWorker(s, r) })))));
  return table;
}

function fillMap(id, values, what) {
  const { mapped } = data.diagnosis;
  const texts = mapped.length <= MOST_TEXTS;
  $(id).querySelectorAll('.cell').forEach((cell, i) => {
    const stage = Math.floor(i / mapped.length);
    const text = `stage ${stage}, replica ${mapped[i % mapped.length]}: ` +
      `${what} ${values[i].toFixed(3)}`;
    cell.className = `cell h${heat(values[i])}`;
    cell.title = text;
    cell.setAttribute('aria-label', text);
    cell.textContent = texts ? values[i].toFixed(2) : '';
  });
}

function fillStepMap() {
  const x = data.diagnosis;
  if (!x.steps.length) return;
  $('step-map-title').textContent = `Step ${stepTold(played.step).step}: ` +
    'pass times relative to usual times';
  fillMap('step-map', x.steps[played.step].map.map((v) => v / 1e4),
    'pass times relative to usual times,');
}

function showMaps() {
  const x = data.diagnosis;
  const add = (id, title, name) => $('maps').append(el('div', {},
    el('h3', { id: id + '-title' }, title),
    el('div', { class: 'scroll' }, makeMap(id, name))));
  add('all-map', 'All steps: slowdown by a worker',
    'Slowdown of the job by each worker');
  fillMap('all-map', x.map, 'slowdown');
  if (x.steps.length)
    add('step-map', '', 'Pass times of each worker in the step, relative to usual times');
  const from = ['', ...HEAT];
  $('maps').append(el('div', { class: 'legend heat-legend' },
    ...from.map((v, i) => el('span', {}, el('i', { class: `h${i}` }),
      i ? `${v} and more` : `below ${HEAT[0]}`))));
}

/* --- numbers -------------------------------------------------------------- */

function diagnosisCards() {
  const { told } = data.diagnosis;
  const cards = $('cards');
  cards.append(card('A step, measured', seconds(told.measured_s),
    `mean of ${told.n_steps}; replayed ${seconds(told.t_s)}`));
  cards.append(card('With usual times', seconds(told.ideal_s),
    'equal in all stages, replicas and steps'));
  cards.append(card('Slowdown', told.slowdown.toFixed(3), told.n_steps > 1
    ? `\u00b1 ${told.slowdown_error.toFixed(3)}, standard error`
    : 'in one step'));
  const slow = told.slowest_workers.length;
  cards.append(card('Lost to the slowest', percent(told.worker_share),
    `${slow} of ${told.stages * told.replicas} workers`));
  cards.append(card('Lost to the last stage', percent(told.last_stage_share),
    `stage ${told.stages - 1}`));
  if (told.helps.length)
    cards.append(card('Best remedy', '\u2212' +
      percent(told.helps[0].gain), seconds(told.helps[0].predicted_s) +
      ' a step, predicted'));
}

const MOST_BARS = 8;

/* Slowdowns of one kind of component, the largest first. */
function slowdownTable(name, values) {
  const rows = Object.entries(values).sort((x, y) => y[1] - x[1]);
  const reach = Math.max(1e-9, ...rows.map(([, v]) => v - 1));
  const table = el('table', {}, el('tr', {}, el('th', {}, name),
    el('th', { class: 'num' }, 'slowdown'), el('th', {})));
  for (const [of, value] of rows.slice(0, MOST_BARS))
    table.append(el('tr', {}, el('td', {}, of),
      el('td', { class: 'num' }, value.toFixed(3)),
      el('td', {}, el('div', { class: 'bar' }, el('i', {
        style: `width:${(100 * Math.max(0, value - 1) / reach).toFixed(1)}%`,
      })))));
  if (rows.length > MOST_BARS)
    table.append(el('tr', {}, el('td', { colspan: 3 },
      `and ${rows.length - MOST_BARS} more, none above`)));
  return table;
}

function showHelps() {
  const x = data.diagnosis;
  const table = $('helps');
  $('helps-panel').hidden = false;
  if (!x.told.helps.length) {
    table.replaceWith(el('p', { class: 'note' },
      'No evaluated remedy gains 0.2 %.'));
    return;
  }
  table.append(el('tr', {}, el('th', {}, 'what'),
    el('th', { class: 'num' }, 'a step'), el('th', { class: 'num' }, 'gain'),
    el('th', {}, 'if')));
  x.told.helps.forEach((h, i) => table.append(el('tr', {},
    el('td', {}, x.helps[i] && x.steps.length
      ? el('button', { type: 'button', 'data-help': i, 'aria-pressed': 'false',
        title: 'Show or hide its timeline', onclick: () => chooseHelp(i) },
      h.what) : h.what),
    el('td', { class: 'num' }, seconds(h.predicted_s)),
    el('td', { class: 'num' }, percent(h.gain)),
    el('td', { class: 'why' }, h.assumes))));
}

/* Describes the data that the page omits because of its size. */
function leftOut() {
  const x = data.diagnosis;
  const said = [];
  const replicas = (shown) => `${shown.length} of ${x.told.replicas} replicas ` +
    '(the slowest, and a median one)';
  if (!x.steps.length)
    return 'Timelines are omitted: one step exceeds the limit of passes.';
  if (x.steps.length < x.told.n_steps)
    said.push(`${x.steps.length} of ${x.told.n_steps} steps`);
  if (x.drawn.length < x.told.replicas)
    said.push(`${replicas(x.drawn)} in timelines`);
  if (x.mapped.length < x.told.replicas)
    said.push(`${replicas(x.mapped)} in maps`);
  return 'Timelines show passes; the gaps between them are messages, ' +
    'collectives and waiting.' + (said.length
    ? ` To limit its size, the page shows ${said.join(', ')}.` : '');
}

function wireSteps() {
  const x = data.diagnosis;
  if (!x.steps.length) return;
  $('steps').hidden = false;
  $('step').max = x.steps.length - 1;
  $('step').addEventListener('input', () => {
    played.step = Number($('step').value);
    showPlayed();
  });
}

/* Selects the step with that number if it exists; a remedy by its index. */
function applyPlayed(want) {
  const x = data.diagnosis;
  if (!x || !x.steps.length) return;
  const step = x.steps.findIndex((_, k) =>
    String(stepTold(k).step) === want.get('step'));
  const help = Number(want.get('help'));
  if (want.has('help') && x.helps[help]) {
    played.help = help;
    if (isPlayed(help)) played.step = x.typical;
  }
  if (step >= 0) played.step = step;
  showPlayed();
}

function showDiagnosis() {
  const x = data.diagnosis;
  $('diagnosis').hidden = false;
  $('left-out').textContent = leftOut();
  for (const text of x.sentences)
    $('sentences').append(el('li', {}, text[0].toUpperCase() + text.slice(1)));
  showMaps();
  $('slowdowns').append(slowdownTable('stage', x.told.by_stage),
    slowdownTable('replica', x.told.by_replica),
    slowdownTable('operation', x.told.by_operation));
  showHelps();
  wireSteps();
}
