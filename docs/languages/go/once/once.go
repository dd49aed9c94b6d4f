// A result that one process computes for all: LOCK.WAIT … UNLESS, then LOCK.RELEASE … STORE.
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
)

const (
	lease = 30 * time.Second // longer than the work takes; else renew it, as lock.go does
	ttl   = time.Minute      // how long the result is kept
)

var ctx = context.Background()

// once returns the value of the key. One caller computes it, the others wait for it.
func once(key string, work func() (string, error)) (string, error) {
	lock, owner := "{"+key+"}:lock", rand.Text()
	options, err := redis.ParseURL(cmp.Or(os.Getenv("KVLOCK_URL"), "redis://127.0.0.1:6379/"))
	if err != nil {
		return "", err
	}
	options.ReadTimeout = -1 // the reply may take as long as another process works
	connection := redis.NewClient(options)
	defer connection.Close()
	for {
		if value, err := connection.Get(ctx, key).Result(); !errors.Is(err, redis.Nil) {
			return value, err
		}
		wait := []any{"LOCK.WAIT", lock, owner, lease.Milliseconds(), 0, "HOLDS", 1, "UNLESS", key}
		grant, err := connection.Do(ctx, wait...).Result()
		if err != nil {
			return "", err
		}
		if grant == "ready" {
			continue // read it; if it has expired since, wait again
		}
		value, err := work()
		if err != nil {
			connection.Do(ctx, "LOCK.RELEASE", lock, owner, "ALL") // the next waiter works
			return "", err
		}
		// Stores nothing if the lease is over.
		release := []any{"LOCK.RELEASE", lock, owner, "STORE", key, value, "PX", ttl.Milliseconds()}
		if err := connection.Do(ctx, release...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return "", err
		}
		return value, nil
	}
}

func main() {
	var works, results atomic.Int64
	key := "report:" + rand.Text()
	work := func() (string, error) {
		works.Add(1)
		time.Sleep(300 * time.Millisecond)
		return "12,345 orders", nil
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if value, err := once(key, work); err != nil || value != "12,345 orders" {
				panic(fmt.Sprint(value, err))
			}
			results.Add(1)
		})
	}
	all.Wait()
	fmt.Printf("worked: %d time, for %d who have the result\n", works.Load(), results.Load())
}
