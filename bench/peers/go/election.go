package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// A candidate: acquiring is a campaign, and releasing is a resignation.
type candidate struct{ session *concurrency.Session }

func connectElection() func() session {
	client := dialEtcd()
	return func() session { return candidate{newSession(client)} }
}

func (c candidate) acquire(key string) func() {
	election := concurrency.NewElection(c.session, key)
	must(0, election.Campaign(ctx, "10.0.0.7:80"))
	return func() { must(0, election.Resign(ctx)) }
}

type heard struct {
	number, moment int64
}

// observe prints a line for each change: the times at which the last of the observers knew the leader, and half
// of them, in nanoseconds since the previous leader began to resign.
func observe(version string) {
	observers, key := number("tasks"), arguments["key"]
	hearing := make(chan heard, observers)
	sessions := make([]*concurrency.Session, number("clients"))
	for i := range sessions {
		sessions[i] = newSession(dialEtcd())
	}
	for i := range observers {
		election := concurrency.NewElection(sessions[i%len(sessions)], key)
		go func() {
			for leader := range election.Observe(ctx) {
				at := now()
				hearing <- heard{must(strconv.ParseInt(string(leader.Kvs[0].Value), 10, 64)), at}
			}
		}()
	}
	candidates := [2]*concurrency.Election{}
	for i := range candidates {
		candidates[i] = concurrency.NewElection(newSession(dialEtcd()), key)
	}
	must(0, candidates[0].Campaign(ctx, "0"))
	allHeard(hearing, observers, 0)
	fmt.Println("ready", version)
	line := must(bufio.NewReader(os.Stdin).ReadString('\n'))
	must(fmt.Sscanf(line, "go %d %d", &startsAt, &endsAt))
	for change := int64(1); now() < endsAt; change++ {
		leader, next := candidates[(change+1)%2], candidates[change%2]
		elected := make(chan error)
		go func() { elected <- next.Campaign(ctx, strconv.FormatInt(change, 10)) }()
		// After this the next candidate is queued, and nothing is in flight.
		time.Sleep(150 * time.Millisecond)
		begun := now()
		must(0, leader.Resign(ctx))
		must(0, <-elected)
		moments := allHeard(hearing, observers, change)
		slices.Sort(moments)
		fmt.Println(moments[observers-1]-begun, moments[observers/2]-begun)
	}
	fmt.Println("done")
	os.Exit(0)
}

func allHeard(hearing chan heard, observers int, change int64) []int64 {
	var moments []int64
	for len(moments) < observers {
		if h := <-hearing; h.number == change {
			moments = append(moments, h.moment)
		}
	}
	return moments
}
