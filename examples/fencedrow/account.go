package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/zkrecipes/zkrecipes"
)

// schema has the fence: the token of whoever was at the row last.
const schema = `
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS entry (account TEXT NOT NULL, amount INTEGER NOT NULL, token INTEGER NOT NULL);`

// errFenced is what a holder gets that has been replaced, whether it knows that or not.
var errFenced = errors.New("refused: there is no such account, or a newer holder was at it")

// claim is the first access of a holder: it puts up the fence, and reads behind it. What holders before this one have not written by now they cannot write any more,
// so the balance stays what it is until this holder changes it. To compare the token only when writing is not enough: an old holder could write between the
// read and that.
func claim(ctx context.Context, db *sql.DB, account string, token zkrecipes.Token) (balance int64, err error) {
	err = inTransaction(ctx, db, func(tx *sql.Tx) error {
		if err := one(tx.ExecContext(ctx, `UPDATE account SET token = ? WHERE name = ? AND token <= ?`, int64(token), account, int64(token))); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = ?`, account).Scan(&balance)
	})
	return balance, err
}

// book writes what was worked out, with all that belongs to it, if nobody newer has claimed the row.
func book(ctx context.Context, db *sql.DB, account string, amount, balance int64, token zkrecipes.Token) error {
	return inTransaction(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO entry (account, amount, token) VALUES (?, ?, ?)`, account, amount, int64(token)); err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, `UPDATE account SET balance = ? WHERE name = ? AND token = ?`, balance, account, int64(token)))
	})
}

// one is an error unless a statement has changed one row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		return errFenced
	}
	return err
}

// inTransaction commits if fn returns nil.
func inTransaction(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after the commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
