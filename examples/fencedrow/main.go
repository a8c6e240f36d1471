// Command fencedrow adds an amount to an account in a database, under a lock, and with the lock's token in its transactions: a process that was paused, and
// whose lock has gone on to somebody else, cannot write any more.
//
//	fencedrow -servers zk1:2181,zk2:2181,zk3:2181 -db shop.db acme 50
//
// The database is SQLite, so that there is nothing to install; the statements are those for any other.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // registers the driver

	"github.com/zkrecipes/zkrecipes"
)

func main() {
	connect := flag.String("servers", "127.0.0.1:2181", "connect `string`")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how soon a holder that died is replaced")
	file := flag.String("db", "shop.db", "`file` of the database")
	think := flag.Duration("think", 0, "how long it takes to work out the new balance")
	flag.Parse()
	amount, err := strconv.ParseInt(flag.Arg(1), 10, 64)
	if flag.NArg() != 2 || err != nil {
		fmt.Fprintln(os.Stderr, "usage: fencedrow [flags] ACCOUNT AMOUNT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *connect, *timeout, *file, *think, flag.Arg(0), amount); err != nil {
		fmt.Fprintln(os.Stderr, "fencedrow:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, connect string, timeout time.Duration, file string, think time.Duration, account string, amount int64) error {
	db, err := open(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	servers, chroot, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return err
	}
	session, err := zkrecipes.Dial(ctx, servers, zkrecipes.WithNamespace(chroot), zkrecipes.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer session.Close()
	if _, err := db.ExecContext(ctx, `INSERT INTO account (name, balance) VALUES (?, 0) ON CONFLICT DO NOTHING`, account); err != nil {
		return err
	}
	return zkrecipes.Do(ctx, zkrecipes.NewMutex(session, "/accounts/"+url.PathEscape(account)), func(ctx context.Context) error {
		lease, _ := zkrecipes.LeaseFromContext(ctx)
		balance, err := claim(ctx, db, account, lease.Token())
		if err != nil {
			return err
		}
		fmt.Printf("the balance is %d, token %d\n", balance, lease.Token())
		select {
		case <-time.After(think): // asks another service, say
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := book(ctx, db, account, amount, balance+amount, lease.Token()); err != nil {
			return err
		}
		fmt.Println("the balance is", balance+amount)
		return nil
	})
}

// open lets the processes that write wait for one another, as a server of a database does.
func open(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}
