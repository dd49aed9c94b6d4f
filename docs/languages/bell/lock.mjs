// Locks of kvlock for a client that cannot block: waits through a session with a bell.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const URL = process.env.KVLOCK_URL ?? 'redis://127.0.0.1:6379/';
const LEASE_MS = 1_000; // the lock stays taken this long if its holder dies; 10,000 to 30,000 is usual
const OFFER_MS = 500; // lease of a grant until the client renews it, because the client may have died; 2,000 is usual
const SESSION_MS = 10_000; // the session keeps its places this long without a read

// A clock that also runs while the machine is suspended (Linux); performance.now() stops.
const nowMs = () => Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1_000;

// One connection for all commands of the process, and one for messages. No command blocks, so each
// reply must come soon.
const redis = new Redis(URL, { commandTimeout: LEASE_MS / 3 });
const messages = new Redis(URL);

class Session {
  static async open() {
    const session = new Session();
    [session.id] = await redis.call('SESSION.OPEN', SESSION_MS, 'BELL');
    session.ack = 0;
    session.waits = new Map();
    const read = () => session.read().catch(() => {}); // the next one reads what this one missed
    messages.on('message', read);
    messages.on('ready', read); // a message may have been lost with a connection
    await messages.subscribe(`kvlock_session:${session.id}`);
    session.timer = setInterval(read, SESSION_MS / 10); // keeps the session, and finds lost messages
    await session.read();
    return session;
  }

  // Reads all outcomes that are ready. Calls run one after another.
  read() {
    this.reading = (this.reading ?? Promise.resolve()).catch(() => {}).then(() => this.#next());
    return this.reading;
  }

  async #next() {
    try {
      for (;;) {
        const [, outcomes] = await redis.call('SESSION.NEXT', this.id, this.ack, 0);
        if (outcomes.length === 0) return;
        for (const [number, kind, key, owner, outcome] of outcomes) {
          if (number <= this.ack) continue; // sent again after a broken connection
          this.ack = number;
          this.waits.get(owner)?.(outcome);
          if (outcome === 'granted' && !this.waits.has(owner)) await redis.call('LOCK.RELEASE', key, owner, 'ALL');
        }
      }
    } catch (error) { // after NOSESSION the session has lost all its places: end all waits
      if (String(error.message).startsWith('NOSESSION')) for (const end of this.waits.values()) end('gone');
      throw error;
    }
  }

  // Waits for the lock. Returns 'granted', 'timeout' or another outcome of SESSION.NEXT.
  async wait(key, owner, timeoutMs) {
    const outcome = new Promise((end) => this.waits.set(owner, end));
    try {
      const reply = await redis.call(
        'LOCK.WAIT', key, owner, OFFER_MS, timeoutMs, 'HOLDS', 1, 'SESSION', this.id);
      return reply[0] === 'queued' ? await outcome : 'granted';
    } finally {
      this.waits.delete(owner);
    }
  }

  async close() {
    clearInterval(this.timer);
    await redis.call('SESSION.CLOSE', this.id);
  }
}

class Lock {
  token = null;
  validUntil = 0;

  constructor(key, session) {
    this.key = key;
    this.session = session;
    this.owner = `${randomUUID()}:1`;
  }

  // Takes the lock, or waits for it.
  async wait(timeoutMs) {
    try {
      const outcome = await this.session.wait(this.key, this.owner, timeoutMs);
      if (outcome !== 'granted' || !(await this.renew())) return false; // the full lease starts here
    } catch (error) { // the outcome is unknown: make sure that we do not hold it
      await redis.call('LOCK.CANCEL', this.key, this.owner);
      await redis.call('LOCK.RELEASE', this.key, this.owner, 'ALL');
      throw error;
    }
    this.stop = new AbortController();
    this.watchdog = this.#watch(this.stop.signal);
    return true;
  }

  // Renews the lease and reads the token. False: the lock is lost.
  async renew() {
    const sent = nowMs(); // the lease counts from before the command was sent
    const grant = await redis.call('LOCK.ACQUIRE', this.key, this.owner, LEASE_MS, 'HOLDS', 1, 'HELD');
    if (grant !== null) this.token = grant[0]; // below 2^53: a number is exact
    this.validUntil = grant !== null ? sent + LEASE_MS * 0.99 : 0;
    return grant !== null;
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
  write({ token, owner }, text) {
    if (token < this.token || (token === this.token && owner !== this.owner)) return console.log(`refused: ${text}`);
    Object.assign(this, { token, owner });
    console.log(`written: ${text}`);
  },
};

const session = await Session.open();
const [alice, bob] = [new Lock('orders:42', session), new Lock('orders:42', session)];
assert(await alice.wait(10_000));
assert(!(await bob.wait(1)));

const bobWorks = (async () => {
  assert(await bob.wait(10_000));
  store.write(bob, 'by bob, who waited');
  assert(await bob.release());
})();

await sleep(1.5 * LEASE_MS); // longer than the lease: it is renewed
assert(alice.held());
store.write(alice, 'by alice, who holds the lock');
assert(await alice.release());
await bobWorks;
store.write(alice, 'by alice, who comes too late');
await session.close();
redis.disconnect();
messages.disconnect();
