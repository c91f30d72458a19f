/* SPDX-License-Identifier: Apache-2.0 */
/* The memory explorer: sliders for a layout; the program computes the memory of
 * its stages (cmd_memory.c). */

const POWERS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/* Keys of a layout: name, section of the job, values. */
const KNOBS = {
  tensor: ['tensor', 'layout', POWERS.slice(0, 7)],
  context: ['context', 'layout', POWERS.slice(0, 7)],
  expert: ['expert', 'layout', POWERS.slice(0, 9)],
  pipeline: ['pipeline', 'layout', Array.from({ length: 64 }, (_, i) => i + 1)],
  chunks_per_device: ['chunks per device', 'layout', [1, 2, 3, 4, 5, 6, 7, 8]],
  data: ['data', 'layout', POWERS],
  micro_batch: ['micro-batch', 'layout', POWERS.slice(0, 6)],
  zero: ['ZeRO stage', 'training', [0, 1, 2, 3]],
  recompute: ['recomputation', 'training', ['none', 'selective', 'full']],
};

const knobs = new Map();

function knobValue(key) {
  const { input, values } = knobs.get(key);
  return values[Number(input.value)];
}

function setKnob(key, value) {
  const knob = knobs.get(key);
  if (!knob.values.map(String).includes(String(value))) {
    if (!(Number(value) > 0)) return;
    knob.values = [...knob.values, Number(value)].sort((a, b) => a - b);
    knob.input.max = knob.values.length - 1;
  }
  knob.input.value = knob.values.findIndex((v) => String(v) === String(value));
  showKnob(key);
}

function showKnob(key) {
  const { input, output } = knobs.get(key);
  output.value = String(knobValue(key));
  input.setAttribute('aria-valuetext', output.value);
}

function buildSliders() {
  for (const [key, [name, , values]] of Object.entries(KNOBS)) {
    const input = el('input', { type: 'range', min: 0, max: values.length - 1,
      step: 1, value: 0, id: `knob-${key}` });
    const output = el('output', { for: `knob-${key}` });
    input.oninput = () => {
      showKnob(key);
      askMemory();
    };
    knobs.set(key, { input, output, values });
    $('sliders').append(el('label', { 'data-knob': key }, el('span', {}, name),
      input, output));
    showKnob(key);
  }
  $('fix-layout').onclick = fixLayout;
}

/* Sets the sliders to the layout of a plan, and shows the plan's own memory until
 * a slider moves. */
function setSliders(plan) {
  const layout = { ...plan.layout, zero: plan.zero, recompute: plan.recompute };
  for (const key of Object.keys(KNOBS))
    if (layout[key] !== undefined) setKnob(key, layout[key]);
  state.planned = { text: state.text, knobs: knobsNow().join(' '), found: {
    method: layout.schedule, of_plan: true,
    gpus: layout.tensor * layout.context * layout.pipeline * layout.data,
    iteration_ns: plan.iteration_s * 1e9,
    stages: (plan.memory || []).map((rank, i) => ({
      limit: plan.pipeline.memory_limit[i],
      parts: Object.entries(rank).filter(([key]) => key.endsWith('_bytes'))
        .map(([key, bytes]) => [key.replace('_bytes', ''), bytes]) })) } };
  askMemory();
}

function knobsNow() {
  return Object.keys(KNOBS).map((key) => `${key}=${knobValue(key)}`);
}

/* For another job: the layout that it gives, else a usual one. */
function openJob() {
  const { job } = state;
  const given = (path) => (valueAt(state.values, path) || {}).value;
  const key = JSON.stringify([job.model, job.gpus]);
  $('sliders').querySelector('[data-knob=expert]').hidden = !job.experts;
  if (state.exploredJob !== key) {
    state.exploredJob = key;
    for (const [name, value] of Object.entries({ context: 1, expert: job.experts
      ? 8 : 1, chunks_per_device: 1, micro_batch: 1, zero: 1,
    recompute: 'none', tensor: Math.min(8, job.gpus),
    pipeline: Math.max(1, Math.min(job.layers, 2 * job.datacenters)) }))
      setKnob(name, given(`${KNOBS[name][1]}.${name}`) || value);
    const rest = job.gpus / (knobValue('tensor') * knobValue('context') *
      knobValue('pipeline'));
    setKnob('data', given('layout.data') ||
      Math.max(1, ...POWERS.filter((n) => n <= rest)));
  }
  askMemory();
}

/* Asks the program; a question during an answer waits for its end. */
function askMemory() {
  if (!state.job) return;
  const { planned } = state;
  if (planned && planned.text === state.text && planned.found.stages.length &&
    planned.knobs === knobsNow().join(' ')) {
    state.askAgain = false;
    state.explored++; /* drops the answer to a question before */
    showStages(planned.found);
    root.dataset.exploring = '0';
    return;
  }
  root.dataset.exploring = '1';
  if (state.asking) {
    state.askAgain = true;
    return;
  }
  state.asking = true;
  state.explorer.postMessage({ id: ++state.explored, args: ['longhaul', 'memory',
    'job.yaml', ...knobsNow()],
  files: jobFiles() });
}

function hearMemory(told) {
  if (told.ready || told.progress !== undefined) return;
  state.asking = false;
  if (state.askAgain) {
    state.askAgain = false;
    askMemory();
    return;
  }
  if (told.id !== state.explored) return;
  const wrong = told.broken || (told.code !== 0 && told.err);
  if (wrong) showWrong(wrong);
  else showStages(JSON.parse(told.out));
  root.dataset.exploring = '0';
}

function gib(bytes) {
  return `${(bytes / 2 ** 30).toFixed(bytes < 2 ** 30 ? 2 : 1)} GiB`;
}

/* Joins consecutive stages with equal memory. */
function stageGroups(stages) {
  const groups = [];
  stages.forEach((stage, i) => {
    const last = groups[groups.length - 1];
    if (last && JSON.stringify(last.stage) === JSON.stringify(stage)) last.last = i;
    else groups.push({ first: i, last: i, stage });
  });
  return groups;
}

function showWrong(wrong) {
  $('fix-layout').disabled = true;
  say('explored', wrong.replace(/^longhaul: /, '').replace(/\nTry [^]*/, '')
    .replace(/^job.yaml: /, ''), true);
  $('stages').replaceChildren();
}

/* Share of the usable memory from which a stage counts as nearly full. */
const NEARLY_FULL = 0.95;

function fullness(used, limit) {
  if (used > limit) return ' over';
  return used >= NEARLY_FULL * limit ? ' near' : '';
}

function showStages(found) {
  $('fix-layout').disabled = false;
  const sum = (stage) => stage.parts.reduce((all, [, bytes]) => all + bytes, 0);
  const whole = Math.max(...found.stages.map((s) => Math.max(s.limit, sum(s))));
  const over = found.stages.filter((s) => sum(s) > s.limit).length;
  const near = found.stages.filter((s) =>
    fullness(sum(s), s.limit) === ' near').length;
  say('explored', `${found.gpus.toLocaleString('en')} of ` +
    `${state.job.gpus.toLocaleString('en')} GPUs; ` + (over
    ? `${over} of ${found.stages.length} stages do not fit` : 'fits') + (near
    ? `, ${near} with less than 5 % of its memory free` : '') +
    `; a modelled iteration of ${(found.iteration_ns / 1e9).toFixed(3)} s ` +
    (found.of_plan ? `with the plan's schedule ${found.method}`
      : `with schedule ${found.method}, which a plan may improve`), over > 0);
  const kinds = found.stages[0].parts.map(([kind]) => kind);
  $('stages').replaceChildren(...stageGroups(found.stages).map(
    ({ first, last, stage }) => el('div', { class: 'stack-row memory-row' +
      fullness(sum(stage), stage.limit) },
    el('span', {}, first === last ? `stage ${first}`
      : `stages ${first}\u2013${last}`),
    el('div', { class: 'stack-bar' }, ...stage.parts.map(([kind, bytes], k) =>
      el('i', { title: `${kind}: ${gib(bytes)}`,
        style: `width:${100 * bytes / whole}%;background:var(--k${k})` })),
    el('b', { class: 'limit', 'aria-hidden': 'true',
      style: `left:${100 * stage.limit / whole}%` })),
    el('b', {}, `${gib(sum(stage))}, ` +
      `${(100 * sum(stage) / stage.limit).toFixed(1)} %`))),
  el('div', { class: 'legend' }, ...kinds.map((kind, k) => el('span', {},
    el('i', { style: `background:var(--k${k})` }), kind)),
  el('span', {}, 'dashed: usable memory')));
}

/* Writes the sliders' values into the job's text, one key after the other: the
 * program reads the positions of the values in between. */
async function fixLayout() {
  const keys = Object.keys(KNOBS).filter((key) =>
    key !== 'expert' || state.job.experts);
  for (const key of keys) {
    const path = `${KNOBS[key][1]}.${key}`;
    const value = String(knobValue(key));
    const now = valueAt(state.values, path);
    if (now && now.value === value) continue;
    $('text').value = now ? withValue(state.text, state.values, path, value)
      : withKey(state.text, state.values, path, value);
    edited();
    await readNow();
  }
}
