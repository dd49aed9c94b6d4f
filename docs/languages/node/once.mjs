// A result that one process computes for all: LOCK.WAIT … UNLESS, then LOCK.RELEASE … STORE.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const URL = process.env.KVLOCK_URL ?? 'redis://127.0.0.1:6379/';
const LEASE_MS = 30_000; // longer than the work takes; else renew it, as lock.mjs does
const TTL_MS = 60_000; // how long the result is kept

// Returns the value of the key. One caller computes it, the others wait for it.
async function once(key, work) {
  const [lock, owner] = [`{${key}}:lock`, randomUUID()];
  // A separate connection, because the reply may take as long as another process works.
  const connection = new Redis(URL);
  try {
    for (;;) {
      const found = await connection.get(key);
      if (found !== null) return found;
      const grant = await connection.call('LOCK.WAIT', lock, owner, LEASE_MS, 0, 'HOLDS', 1, 'UNLESS', key);
      if (grant === 'ready') continue; // read it; if it has expired since, wait again
      let value;
      try {
        value = await work();
      } catch (error) {
        await connection.call('LOCK.RELEASE', lock, owner, 'ALL'); // the next waiter works
        throw error;
      }
      // Stores nothing if the lease is over.
      await connection.call('LOCK.RELEASE', lock, owner, 'STORE', key, value, 'PX', TTL_MS);
      return value;
    }
  } finally {
    connection.disconnect();
  }
}

let works = 0;
const work = async () => {
  works += 1;
  await sleep(300);
  return '12,345 orders';
};

const key = `report:${randomUUID()}`;
const results = await Promise.all(Array.from({ length: 10 }, () => once(key, work)));
assert.deepEqual(results, Array(10).fill('12,345 orders'));
console.log(`worked: ${works} time, for ${results.length} who have the result`);
