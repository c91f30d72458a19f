// SPDX-License-Identifier: Apache-2.0
// What a report's page answers, without a browser: runs the page's own worker
// and what it offers to take away.
//
//     node ask.js REPORT.html <LINES
//     node ask.js REPORT.html NS,NS...
//
// For each line of changes a line of JSON: {makespan, cpu_ms, rows_cpu_ms, file,
// command, schedule} or {error}; the times are the processor's, until the answer
// and until all schedules are judged. Of latencies, the curves over them.
'use strict';
const fs = require('fs');

const html = fs.readFileSync(process.argv[2], 'utf8');
const element = (id) => new RegExp(`id="${id}">([^]*?)</script>`).exec(html)[1];
const source = (head) => {
  const at = html.indexOf(`function ${head}(`);
  return html.slice(at, html.indexOf('\n}\n', at) + 3);
};

const asked = JSON.parse(element('asked'));
const ask = {};
const { pipelineFile, command } = new Function('asked', 'ask',
  `${source('pipelineFile')}${source('command')}
  return { pipelineFile, command };`)(asked, ask);

const self = {};
new Function('self', `${source('simulator')}simulator();
  self.sweepLatency = async ${source('sweepLatency')}`)(self);
let heard = null;
self.postMessage = (message) => heard(message);

function send(message) {
  return new Promise((resolve) => {
    heard = (back) => (back.rows || back.curves ? null : resolve(back));
    self.onmessage({ data: message });
  });
}

/* The rows of what was sent last. */
function rows() {
  return new Promise((resolve) => {
    heard = (back) => (back.rows || back.broken ? resolve(back) : null);
  });
}

function cpuSince(from) {
  const { user, system } = process.cpuUsage(from);
  return (user + system) / 1000;
}

/* All that is told of the curves over these latencies. */
function sweep(points, methods) {
  const all = [];
  return new Promise((resolve, reject) => {
    heard = (back) => {
      if (back.broken) reject(new Error(back.broken));
      if (back.curves) all.push(back.curves);
      if (back.curves && back.curves.changes) resolve(all);
    };
    self.onmessage({ data: { id: 0, line: '', methods, points } });
  });
}

async function main() {
  const opened = await send({ wasm: element('wasm'), asked });
  if (opened.broken) throw new Error(opened.broken);
  if (process.argv[3]) {
    const told = await sweep(process.argv[3].split(',').map(Number),
      opened.controls.methods.filter((m) => m.row).map((m) => m.name));
    console.log(JSON.stringify(told));
    return;
  }
  const lines = fs.readFileSync(0, 'utf8').split('\n').slice(0, -1);
  for (const [id, line] of lines.entries()) {
    const from = process.cpuUsage();
    const { answer, broken } = await send({ id, line, points: [],
      methods: process.env.ALL_METHODS ? opened.controls.methods
        .filter((m) => m.row).map((m) => m.name) : [] });
    const cpu_ms = cpuSince(from);
    if (process.env.ALL_METHODS && !answer.error) await rows();
    const rows_cpu_ms = cpuSince(from);
    await new Promise((resolve) => { setTimeout(resolve); });
    if (broken) throw new Error(`${line}: ${broken}`);
    ask.answer = answer;
    console.log(JSON.stringify(answer.error ? { error: answer.error } : {
      makespan: answer.makespan, cpu_ms, rows_cpu_ms, file: pipelineFile(),
      command: command(), schedule: answer.schedule,
    }));
  }
}

main().catch((error) => {
  console.error(`ask.js: ${error.stack}`);
  process.exit(1);
});
