// Load through @sesamecare-oss/redlock, the maintained successor of node-redlock. ../README.md describes
// the arguments and the output.

import { readFileSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { ExecutionError, Redlock } from '@sesamecare-oss/redlock';
import { Redis } from 'ioredis';

const args = Object.fromEntries(process.argv.slice(2).map((argument) => argument.split(/=(.*)/s, 2)));
const number = (name) => Number(args[name]);
const now = () => process.hrtime.bigint();
let newestOwner = null;
let [startsAt, endsAt] = [0n, 0n];

async function sleepUntil(moment) {
  const left = Number(moment - now()) / 1e6;
  if (left > 0) await sleep(left);
}

// By default it gives up after ten tries, so this repeats them.
async function acquire(redlock, key) {
  for (;;) {
    try {
      return await redlock.acquire([key], number('lease_ms'));
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

async function warmUp(redlock, task) {
  const enough = now() + BigInt(number('warm_ms')) * 1_000_000n;
  do {
    await (await acquire(redlock, `${args.key}:warm:${args.process}:${task}`)).release();
  } while (now() < enough);
}

async function cycle(redlock, task, cycles) {
  await sleepUntil(startsAt);
  const key = `${args.key}:${task % number('keys')}`;
  while (now() < endsAt) {
    // Times of a cycle: request, grant, release, and the reply to the release; 0 for events that have not happened.
    const moments = [now(), 0, 0, 0];
    cycles.push(moments);
    const lock = await acquire(redlock, key);
    moments[1] = now();
    newestOwner = task;
    if (number('hold_us') > 0) await sleep(number('hold_us') / 1_000);
    moments[2] = now();
    if (args.release !== 'no') await lock.release();
    moments[3] = now();
    while (args.yields === 'yes' && newestOwner === task) await sleep(1);
  }
}

const clients = Array.from({ length: number('clients') }, () => new Redlock([new Redis(args.url)]));
const client = (task) => clients[Math.floor(task / number('keys')) % clients.length];
const tasks = Array.from({ length: number('tasks') }, (_, task) => client(task));
const records = tasks.map(() => []);
await Promise.all(tasks.map(warmUp));
const { version } = JSON.parse(readFileSync(new URL('node_modules/@sesamecare-oss/redlock/package.json', import.meta.url)));
console.log(`ready ${version}`);
for await (const line of createInterface({ input: process.stdin })) {
  [startsAt, endsAt] = line.split(' ').slice(1).map(BigInt);
  break;
}
tasks.forEach((redlock, task) => cycle(redlock, task, records[task]));
await sleepUntil(endsAt);
const lines = records.flatMap((cycles, task) => cycles.map((moments) => `${task} ${moments.join(' ')}\n`));
let text = Buffer.from(`${lines.join('')}done\n`);
while (text.length > 0) {
  try {
    text = text.subarray(writeSync(1, text));
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error; // the pipe is full
  }
}
process.exit(0);
