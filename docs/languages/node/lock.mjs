// Locks of kvlock from Node: acquire, wait, renew, release, and a token for every write.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const URL = process.env.KVLOCK_URL ?? 'redis://127.0.0.1:6379/';
const LEASE_MS = 1_000; // the lock stays taken this long if its holder dies; 10,000 to 30,000 is usual
const OFFER_MS = 500; // lease of a grant until the client renews it, because the client may have died; 2,000 is usual

// A clock that also runs while the machine is suspended (Linux); performance.now() stops.
const nowMs = () => Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1_000;

const connect = (commandTimeout) => new Redis(URL, { commandTimeout });
const redis = connect(LEASE_MS / 3);

class Lock {
  token = null;
  validUntil = 0;

  constructor(key) {
    this.key = key;
    this.owner = `${randomUUID()}:1`;
  }

  // Takes the lock if it is free.
  acquire() {
    return this.#take(redis, 'LOCK.ACQUIRE', this.key, this.owner, OFFER_MS, 'HOLDS', 1);
  }

  // Takes the lock, or waits for it. Uses a separate connection, because the reply may take that long.
  async wait(timeoutMs) {
    const waiting = connect(timeoutMs + 5_000);
    try {
      return await this.#take(waiting, 'LOCK.WAIT', this.key, this.owner, OFFER_MS, timeoutMs, 'HOLDS', 1);
    } finally {
      waiting.disconnect();
    }
  }

  async #take(connection, ...command) {
    try {
      const grant = await connection.call(...command);
      if (grant === null || !(await this.renew())) return false; // the full lease starts here
      this.token = grant[0]; // below 2^53: a number is exact
    } catch (error) { // the outcome is unknown: make sure that we do not hold it
      await redis.call('LOCK.CANCEL', this.key, this.owner);
      await redis.call('LOCK.RELEASE', this.key, this.owner, 'ALL');
      throw error;
    }
    this.stop = new AbortController();
    this.watchdog = this.#watch(this.stop.signal);
    return true;
  }

  // Renews the lease. False: the lock is lost.
  async renew() {
    const sent = nowMs(); // the lease counts from before the command was sent
    const held = (await redis.call('LOCK.RENEW', this.key, this.owner, LEASE_MS)) !== null;
    this.validUntil = held ? sent + LEASE_MS * 0.99 : 0;
    return held;
  }

  // True if the lock is certainly held. Check before each step of the work.
  held() {
    return nowMs() < this.validUntil;
  }

  async #watch(signal) {
    while (this.held()) {
      await sleep(LEASE_MS / 3, null, { signal }).catch(() => {});
      if (signal.aborted) return;
      await this.renew().catch(() => {}); // tries again while the lease lasts
    }
  }

  // Releases the lock, which then goes to the first waiter. False: it was lost before.
  async release() {
    this.stop.abort();
    await this.watchdog; // no renewal comes after the release
    this.validUntil = 0;
    return (await redis.call('LOCK.RELEASE', this.key, this.owner)) !== null;
  }
}

// The resource that the lock guards. It remembers the newest token and refuses older ones.
const store = {
  token: 0,
  owner: '',
  write(token, owner, text) {
    if (token < this.token || (token === this.token && owner !== this.owner)) return console.log(`refused: ${text}`);
    Object.assign(this, { token, owner });
    console.log(`written: ${text}`);
  },
};

const [alice, bob] = [new Lock('orders:42'), new Lock('orders:42')];
assert(await alice.acquire());
assert(!(await bob.acquire()));

const bobWorks = (async () => {
  assert(await bob.wait(10_000));
  store.write(bob.token, bob.owner, 'by bob, who waited');
  assert(await bob.release());
})();

await sleep(1.5 * LEASE_MS); // longer than the lease: it is renewed
assert(alice.held());
store.write(alice.token, alice.owner, 'by alice, who holds the lock');
assert(await alice.release());
await bobWorks;
store.write(alice.token, alice.owner, 'by alice, who comes too late');
redis.disconnect();
