// Load through lock libraries in Go. ../README.md describes the arguments and the output.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A session is the client of one task.
type session interface {
	// acquire waits until it has the lock, and returns a function that releases it.
	acquire(key string) (release func())
}

// A library makes a session for each task. Tasks of one client share connections, as in one process.
type library struct {
	module  string
	connect func() (newSession func() session)
}

var libraries = map[string]library{
	"redsync":       {"github.com/go-redsync/redsync/v4", connectRedsync},
	"rueidislock":   {"github.com/redis/rueidis", connectRueidislock},
	"etcd":          {"go.etcd.io/etcd/client/v3", connectEtcd},
	"etcd-election": {"go.etcd.io/etcd/client/v3", connectElection},
	"postgres":      {"github.com/jackc/pgx/v5", connectPostgres},
}

var arguments = map[string]string{}

func number(name string) int {
	return must(strconv.Atoi(arguments[name]))
}

func leaseTime() time.Duration {
	return time.Duration(number("lease_ms")) * time.Millisecond
}

func main() {
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		arguments[name] = value
	}
	chosen, found := libraries[arguments["proto"]]
	if !found {
		panic("no such library: " + arguments["proto"])
	}
	if arguments["mode"] == "observe" {
		observe(version(chosen.module))
	}
	clients := make([]func() session, number("clients"))
	for i := range clients {
		clients[i] = chosen.connect()
	}
	tasks := make([]*task, number("tasks"))
	var warm sync.WaitGroup
	start := make(chan struct{})
	for i := range tasks {
		tasks[i] = &task{number: i, session: clients[i/number("keys")%len(clients)]()}
		warm.Add(1)
		go tasks[i].live(&warm, start)
	}
	warm.Wait()
	fmt.Println("ready", version(chosen.module))
	line := must(bufio.NewReader(os.Stdin).ReadString('\n'))
	must(fmt.Sscanf(line, "go %d %d", &startsAt, &endsAt))
	close(start)
	if arguments["mode"] == "keep" {
		printKept(len(tasks))
	}
	sleepUntil(endsAt)
	printRecords(tasks)
	os.Exit(0)
}

var (
	startsAt, endsAt int64
	newestOwner      atomic.Int64
	// Time at which each task had its lock.
	kept = make(chan int64)
)

// printKept prints the times at which the first and the last task had their locks. All tasks hold them until
// the process is killed.
func printKept(tasks int) {
	moments := make([]int64, tasks)
	for i := range moments {
		moments[i] = <-kept
	}
	fmt.Println(slices.Min(moments), slices.Max(moments))
	select {}
}

type task struct {
	number  int
	session session
	mutex   sync.Mutex
	// Times of a cycle: request, grant, release, and the reply to the release; 0 for events that have not happened.
	cycles [][4]int64
}

func (t *task) live(warm *sync.WaitGroup, start chan struct{}) {
	own := fmt.Sprintf("%s:warm:%s:%d", arguments["key"], arguments["process"], t.number)
	for enough := now() + int64(number("warm_ms"))*1_000_000; ; {
		t.session.acquire(own)()
		if now() >= enough {
			break
		}
	}
	warm.Done()
	<-start
	sleepUntil(startsAt)

	key := fmt.Sprintf("%s:%d", arguments["key"], t.number%number("keys"))
	if arguments["mode"] == "keep" {
		t.session.acquire(key)
		kept <- now()
		return
	}
	hold := time.Duration(number("hold_us")) * time.Microsecond
	abandons, yields := arguments["release"] == "no", arguments["yields"] == "yes"
	for now() < endsAt {
		t.mutex.Lock()
		t.cycles = append(t.cycles, [4]int64{now()})
		t.mutex.Unlock()
		release := t.session.acquire(key)
		t.note(1)
		newestOwner.Store(int64(t.number))
		if hold > 0 {
			time.Sleep(hold)
		}
		t.note(2)
		if !abandons {
			release()
		}
		t.note(3)
		for yields && newestOwner.Load() == int64(t.number) {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

func (t *task) note(what int) {
	t.mutex.Lock()
	t.cycles[len(t.cycles)-1][what] = now()
	t.mutex.Unlock()
}

func printRecords(tasks []*task) {
	out := bufio.NewWriter(os.Stdout)
	for _, t := range tasks {
		t.mutex.Lock()
		for _, c := range t.cycles {
			fmt.Fprintln(out, t.number, c[0], c[1], c[2], c[3])
		}
	}
	fmt.Fprintln(out, "done")
	must(0, out.Flush())
}

// now is the clock that all processes share, in nanoseconds.
func now() int64 {
	var t unix.Timespec
	must(0, unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
	return t.Nano()
}

func sleepUntil(moment int64) {
	time.Sleep(time.Duration(moment - now()))
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "?"
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
