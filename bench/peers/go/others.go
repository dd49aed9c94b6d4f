package main

import (
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

type etcdSession struct{ session *concurrency.Session }

func dialEtcd() *clientv3.Client {
	return must(clientv3.New(clientv3.Config{
		Endpoints: []string{arguments["url"]}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	}))
}

func newSession(client *clientv3.Client) *concurrency.Session {
	return must(concurrency.NewSession(client, concurrency.WithTTL(number("lease_ms")/1_000)))
}

// In etcd a session is an owner, so each task has one; they share the connection. With mode=keep the process
// has one session.
func connectEtcd() func() session {
	client := dialEtcd()
	if arguments["mode"] == "keep" {
		kept := newSession(client)
		return func() session { return etcdSession{kept} }
	}
	return func() session { return etcdSession{must(concurrency.NewSession(client))} }
}

func (s etcdSession) acquire(key string) func() {
	mutex := concurrency.NewMutex(s.session, key)
	must(0, mutex.Lock(ctx))
	return func() { must(0, mutex.Unlock(ctx)) }
}

type postgresSession struct{ connection *pgx.Conn }

// An advisory lock belongs to its connection, so each task has one.
func connectPostgres() func() session {
	return func() session { return postgresSession{must(pgx.Connect(ctx, arguments["url"]))} }
}

func (s postgresSession) acquire(key string) func() {
	must(s.connection.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", key))
	return func() {
		must(s.connection.Exec(ctx, "select pg_advisory_unlock(hashtextextended($1, 0))", key))
	}
}
