// Locks of kvlock from Go: acquire, wait, renew, release, and a token for every write.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const (
	lease = time.Second            // the lock stays taken this long if its holder dies; 10 to 30 s is usual
	offer = 500 * time.Millisecond // lease of a grant until the client renews it, because the client may have died; 2 s is usual
)

var (
	ctx = context.Background()
	url = cmp.Or(os.Getenv("KVLOCK_URL"), "redis://127.0.0.1:6379/")
	rdb = connect(lease / 3)
)

func connect(patience time.Duration) *redis.Client {
	options := must(redis.ParseURL(url))
	options.ReadTimeout = patience
	return redis.NewClient(options)
}

// now is a clock that also runs while the machine is suspended (Linux); the clock of package time stops.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}

type Lock struct {
	key, owner string
	token      int64
	validUntil atomic.Int64
	stop       context.CancelFunc
	watchdog   sync.WaitGroup
}

func NewLock(key string) *Lock { return &Lock{key: key, owner: rand.Text() + ":1"} }

// Acquire takes the lock if it is free.
func (l *Lock) Acquire() (bool, error) {
	return l.take(rdb, "LOCK.ACQUIRE", l.key, l.owner, offer.Milliseconds(), "HOLDS", 1)
}

// Wait takes the lock, or waits for it. It uses a separate connection, because the reply may take that long.
func (l *Lock) Wait(timeout time.Duration) (bool, error) {
	waiting := connect(timeout + 5*time.Second)
	defer waiting.Close()
	return l.take(waiting, "LOCK.WAIT", l.key, l.owner, offer.Milliseconds(), timeout.Milliseconds(), "HOLDS", 1)
}

func (l *Lock) take(connection *redis.Client, command ...any) (bool, error) {
	grant, err := connection.Do(ctx, command...).Int64Slice()
	held := false
	if err == nil {
		held, err = l.Renew() // the full lease starts here
	} else if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil { // the outcome is unknown: make sure that we do not hold it
		rdb.Do(ctx, "LOCK.CANCEL", l.key, l.owner)
		rdb.Do(ctx, "LOCK.RELEASE", l.key, l.owner, "ALL")
	}
	if held {
		l.token = grant[0]
		var watched context.Context
		watched, l.stop = context.WithCancel(ctx)
		l.watchdog.Go(func() { l.watch(watched) })
	}
	return held, err
}

// Renew renews the lease. False: the lock is lost.
func (l *Lock) Renew() (bool, error) {
	sent := now() // the lease counts from before the command was sent
	err := rdb.Do(ctx, "LOCK.RENEW", l.key, l.owner, lease.Milliseconds()).Err()
	if err == nil {
		l.validUntil.Store(int64(sent + lease*99/100))
	} else if errors.Is(err, redis.Nil) {
		l.validUntil.Store(0)
		return false, nil
	}
	return err == nil, err
}

// Held reports whether the lock is certainly held. Check before each step of the work.
func (l *Lock) Held() bool { return int64(now()) < l.validUntil.Load() }

func (l *Lock) watch(watched context.Context) {
	for l.Held() {
		select {
		case <-watched.Done():
			return
		case <-time.After(lease / 3):
			_, _ = l.Renew() // after an error, tries again while the lease lasts
		}
	}
}

// Release releases the lock, which then goes to the first waiter. False: it was lost before.
func (l *Lock) Release() (bool, error) {
	l.stop()
	l.watchdog.Wait() // no renewal comes after the release
	l.validUntil.Store(0)
	err := rdb.Do(ctx, "LOCK.RELEASE", l.key, l.owner).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// Store is the resource that the lock guards. It remembers the newest token and refuses older ones.
type Store struct {
	token int64
	owner string
}

func (s *Store) Write(l *Lock, text string) {
	if l.token < s.token || (l.token == s.token && l.owner != s.owner) {
		fmt.Println("refused:", text)
		return
	}
	s.token, s.owner = l.token, l.owner
	fmt.Println("written:", text)
}

func main() {
	store, alice, bob := &Store{}, NewLock("orders:42"), NewLock("orders:42")
	expect(must(alice.Acquire()))
	expect(!must(bob.Acquire()))

	var bobWorks sync.WaitGroup
	bobWorks.Go(func() {
		expect(must(bob.Wait(10 * time.Second)))
		store.Write(bob, "by bob, who waited")
		expect(must(bob.Release()))
	})

	time.Sleep(lease * 3 / 2) // longer than the lease: it is renewed
	expect(alice.Held())
	store.Write(alice, "by alice, who holds the lock")
	expect(must(alice.Release()))
	bobWorks.Wait()
	store.Write(alice, "by alice, who comes too late")
}

func expect(as bool) {
	if !as {
		panic("not as expected")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
