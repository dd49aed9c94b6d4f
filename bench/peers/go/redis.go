package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var ctx = context.Background()

type redsyncSession struct{ sync *redsync.Redsync }

func connectRedsync() func() session {
	options := must(redis.ParseURL(arguments["url"]))
	sync := redsync.New(goredis.NewPool(redis.NewClient(options)))
	return func() session { return redsyncSession{sync} }
}

// By default it gives up after 32 tries, so this repeats them.
func (s redsyncSession) acquire(key string) func() {
	mutex := s.sync.NewMutex(key, redsync.WithExpiry(leaseTime()))
	for {
		err := mutex.Lock()
		var taken *redsync.ErrTaken
		if err == nil {
			break
		} else if !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			panic(err)
		}
	}
	return func() { must(mutex.Unlock()) }
}

type rueidisSession struct{ locker rueidislock.Locker }

// Majority and tracking are as its documentation recommends for one server. By default it waits 20 ms for a
// reply. On a busy machine it then releases a lock whose reply was late and, with this tracking, gets no
// notice of that, so it waits forever. Its leases are always renewed.
func connectRueidislock() func() session {
	address := strings.Trim(strings.TrimPrefix(arguments["url"], "redis://"), "/")
	locker := must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   5 * time.Second,
	}))
	return func() session { return rueidisSession{locker} }
}

func (s rueidisSession) acquire(key string) func() {
	_, cancel, err := s.locker.WithContext(ctx, key)
	must(0, err)
	return cancel
}
