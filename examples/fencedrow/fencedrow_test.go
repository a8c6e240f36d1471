package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/examples/internal/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// newDB is a database with one account, and what is in it.
func newDB(t *testing.T) (db *sql.DB, file string, state func() string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.db")
	db, err := open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.ExecContext(t.Context(), `INSERT INTO account (name, balance) VALUES ('acme', 0)`); err != nil {
		t.Fatal(err)
	}
	return db, file, func() string {
		var balance, entries int64
		if err := db.QueryRowContext(t.Context(), `SELECT balance, (SELECT COALESCE(SUM(amount), 0) FROM entry) FROM account`).Scan(&balance, &entries); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("balance %d, entries %d", balance, entries)
	}
}

// Many processes at once: nothing is lost.
func TestProcessesTakeTurns(t *testing.T) {
	servers := program.Servers(t)
	_, file, state := newDB(t)
	var all []*program.Process
	for range 5 {
		all = append(all, program.Start(t, "-servers", servers, "-db", file, "-think", "20ms", "acme", "50"))
	}
	for _, p := range all {
		if code := p.Exit(); code != 0 {
			t.Error("exit code", code)
		}
	}
	if got := state(); got != "balance 250, entries 250" {
		t.Error(got)
	}
}

// A holder is paused at the worst moment, and knows nothing of its loss when it writes: not by its lease, not by its ctx. Only the row can tell, and does, wherever
// the next one is by then.
func TestAStaleHolderIsRefused(t *testing.T) {
	servers := program.Servers(t)
	session := program.Session(t, servers)
	mutex := zkrecipes.NewMutex(session, "/accounts/acme")
	grant := func() zkrecipes.Token {
		lease, err := mutex.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Conn().Delete(lease.Node(), -1); err != nil { // the next is granted, whatever this one does
			t.Fatal(err)
		}
		return lease.Token()
	}
	ctx := context.Background()
	for name, tc := range map[string]struct {
		stale func(db *sql.DB, token zkrecipes.Token, step int) error // is called before and after the next one's claim, and at the end
		want  string
	}{
		"paused before it writes": {func(db *sql.DB, token zkrecipes.Token, step int) error {
			if step == 0 {
				_, err := claim(ctx, db, "acme", token)
				return err
			}
			return book(ctx, db, "acme", 7, 7, token)
		}, "balance 50, entries 50"},
		"paused before it reads": {func(db *sql.DB, token zkrecipes.Token, step int) error {
			if step == 0 {
				return nil
			}
			_, err := claim(ctx, db, "acme", token)
			return err
		}, "balance 50, entries 50"},
	} {
		t.Run(name, func(t *testing.T) {
			db, _, state := newDB(t)
			old, next := grant(), grant()
			if err := tc.stale(db, old, 0); err != nil {
				t.Fatal(err)
			}
			balance, err := claim(ctx, db, "acme", next)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.stale(db, old, 1); !errors.Is(err, errFenced) {
				t.Error("between the next one's accesses:", err)
			}
			if err := book(ctx, db, "acme", 50, balance+50, next); err != nil {
				t.Fatal(err)
			}
			if err := tc.stale(db, old, 2); !errors.Is(err, errFenced) {
				t.Error("after them:", err)
			}
			if got := state(); got != tc.want {
				t.Error(got)
			}
		})
	}
}

func TestAnAccountThatIsNotThere(t *testing.T) {
	db, _, _ := newDB(t)
	if _, err := claim(t.Context(), db, "nobody", 1); !errors.Is(err, errFenced) {
		t.Error(err)
	}
}
